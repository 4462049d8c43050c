//! Whether the suite of real programs finds faults: builds that have one must differ.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

use midspan_conformance::Family;
use midspan_real_clients::{Gateway, Plan, Verdict, cases, run};

/// A fault by its name, and the case that must find it, over both protocols.
const FAULTS: [(&str, &str); 5] = [
    (
        "fin-for-reset",
        "reset by the server after its answer, reset by the client",
    ),
    ("accept-before-connect", "curl: closed port"),
    (
        "last-pipe-dropped",
        "slow readers of what a server sends before it closes",
    ),
    ("reset-overtakes-data", "100 resets right behind data"),
    (
        "half-close-ends-both",
        "nc: half-close by the client, by the server",
    ),
];

const FAULT: &str = "MIDSPAN_SEEDED_FAULT";

fn main() {
    if let Some(name) = std::env::args().skip_while(|word| word != "inside").nth(1) {
        return play(&name);
    }
    for (fault, case) in FAULTS {
        for seeded in ["", fault] {
            let program = std::env::current_exe().unwrap();
            let output = Command::new(program)
                .args(["inside", case])
                .env(FAULT, seeded)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            let expected = if seeded.is_empty() {
                "same"
            } else {
                "different"
            };
            let found = said.lines().filter(|line| *line == expected).count();
            assert_eq!(found, 2, "\"{case}\" with the fault \"{seeded}\": {said}");
        }
        println!("{fault}: found by \"{case}\"");
    }
}

/// Runs a case and prints how it compares, a line for each protocol.
fn play(name: &str) {
    midspan_linux::namespace::isolate().unwrap();
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
}
