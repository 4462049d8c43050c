//! A test of the suite of real programs: with a fault in the build, the suite must find a
//! difference.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::ExitCode;

use midspan_conformance::Family;
use midspan_real_clients::{Gateway, Plan, Verdict, cases, run};
use midspan_testbed::program::Launch;
use midspan_testbed::{KernelTests, kernel_test, kernel_tests};

const FAULT: &str = "MIDSPAN_SEEDED_FAULT";

const COMMANDS: &[kernel_tests::Command] = &[("play", |arguments| play(arguments[0]))];

fn main() -> ExitCode {
    KernelTests::new().commands(COMMANDS).main()
}

#[kernel_test]
fn a_fin_for_a_reset() {
    const CASE: &str = "reset by the server after its answer, reset by the client";
    is_found("fin-for-reset", CASE);
}

#[kernel_test]
fn an_answer_before_the_servers() {
    is_found("accept-before-connect", "curl: closed port");
}

#[kernel_test]
fn a_last_pipe_that_is_dropped() {
    const CASE: &str = "slow readers of what a server sends before it closes";
    is_found("last-pipe-dropped", CASE);
}

#[kernel_test]
fn a_reset_that_overtakes_data() {
    is_found("reset-overtakes-data", "100 resets right behind data");
}

#[kernel_test]
fn a_half_close_that_ends_both() {
    const CASE: &str = "nc: half-close by the client, by the server";
    is_found("half-close-ends-both", CASE);
}

/// Checks over both protocols that this case finds the fault, and finds nothing in a build without
/// it.
fn is_found(fault: &str, case: &str) {
    for (seeded, expected) in [("", "same"), (fault, "different")] {
        let launch = Launch::this_program("play")
            .arg(case)
            .environment(FAULT, seeded);
        let finished = launch.finish().unwrap();
        let errors = finished.output + &finished.log;
        assert!(finished.status.success(), "{errors}");
        let found = errors.lines().filter(|line| *line == expected).count();
        assert_eq!(found, 2, "\"{case}\" with the fault \"{seeded}\": {errors}");
    }
}

/// Runs a case and prints the result of the comparison, a line for each protocol.
fn play(name: &str) -> ExitCode {
    let mut chosen = cases::all();
    chosen.retain(|case| case.name == name);
    let plan = Plan {
        cases: chosen,
        families: vec![Family::V4, Family::V6],
        gateways: vec![Gateway::EndToEnd],
        program: PathBuf::from(env!("CARGO_BIN_EXE_midspan")),
    };
    let results = run(&plan, &mut |outcome| {
        if outcome.gateway != Gateway::Direct {
            let differs = outcome.verdict == Verdict::Different;
            println!("{}", if differs { "different" } else { "same" });
            print!("{}", outcome.seen);
        }
    })
    .unwrap();
    for skipped in results.skipped {
        println!("skipped: {}", skipped.reason);
    }
    ExitCode::SUCCESS
}
