//! Some real programs through this build, compared with plain routing; `make real-clients` runs all
//! cases.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use midspan_conformance::Family;
use midspan_real_clients::{Gateway, Plan, Verdict, cases, run};
use midspan_testbed::{kernel_test, skip};

// Cases whose programs are installed on nearly every machine.

/// `scripts/install-dependencies` installs curl for every test, so cases of curl must run.
const SURE: &str = "curl";

#[kernel_test]
fn curl_uses_a_connection_for_100_urls() {
    const CASE: &str = "curl: 100 URLs over one connection";
    play(CASE, &[Gateway::EndToEnd, Gateway::Socks5]);
}

#[kernel_test]
fn curl_is_told_of_a_closed_port() {
    play("curl: closed port", &[Gateway::EndToEnd, Gateway::Early]);
}

#[kernel_test]
fn curl_sends_files() {
    const CASE: &str = "curl: PUT with Expect, chunked PUT, PUT by HTTP/2";
    play(CASE, &[Gateway::Early, Gateway::Http]);
}

#[kernel_test]
fn netcat_closes_half_a_connection() {
    const CASE: &str = "nc: half-close by the client, by the server";
    play(CASE, &[Gateway::EndToEnd]);
}

#[kernel_test]
fn resets_arrive() {
    const CASE: &str = "reset by the server after its answer, reset by the client";
    play(CASE, &[Gateway::EndToEnd]);
}

#[kernel_test]
fn ssh_runs_commands() {
    const CASE: &str = "ssh: command, exit status, terminal, 20 MB by standard input";
    play(CASE, &[Gateway::EndToEnd]);
}

/// Runs a case with these kinds of gateways, over both protocols, and compares.
fn play(name: &str, gateways: &[Gateway]) {
    let mut chosen = cases::all();
    chosen.retain(|case| case.name == name);
    assert_eq!(chosen.len(), 1, "no case \"{name}\"");
    let plan = Plan {
        cases: chosen,
        families: vec![Family::V4, Family::V6],
        gateways: gateways.to_vec(),
        program: PathBuf::from(env!("CARGO_BIN_EXE_midspan")),
    };
    let results = run(&plan, &mut |outcome| {
        if matches!(outcome.verdict, Verdict::Different | Verdict::Void) {
            println!(
                "{name}, {}, {}: {:?}\n  with plain routing:\n{}  seen:\n{}{}",
                outcome.family.name(),
                outcome.gateway.name(),
                outcome.verdict,
                outcome.expected,
                outcome.seen,
                outcome.background
            );
        }
    })
    .unwrap();
    for skipped in &results.skipped {
        assert!(!name.starts_with(SURE), "{}", skipped.reason);
        skip(&skipped.reason);
    }
    assert!(results.nothing_differs() && results.nothing_void());
}
