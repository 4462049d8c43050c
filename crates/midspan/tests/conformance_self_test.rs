//! A test of the conformance suite: a build with a fault must fail.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Command, Output};

use common::MIDSPAN;

/// The name of a fault, the proxy that has it, and the cases that must find it.
const FAULTS: [(&str, &str, &[&str]); 6] = [
    (
        "fin-for-reset",
        "midspan-forward",
        &[
            "reset by server before data",
            "reset by client after data",
            "refused",
            "reset by client lost, data shows it",
            "reset by server lost, data shows it",
        ],
    ),
    (
        "last-pipe-dropped",
        "midspan-forward",
        &[
            "slow readers, then close: downloads",
            "slow readers, then close: uploads",
        ],
    ),
    (
        "accept-before-connect",
        "midspan-transparent",
        &["refused", "no answer to a SYN"],
    ),
    (
        "half-close-ends-both",
        "midspan-forward",
        &[
            "half-close by client, data back",
            "answer after the FIN of the client",
            "data before the server answers",
            "data in the SYN",
            "first answer to the SYN lost",
            "last part of the handshake lost",
            "FIN lost before the proxy",
            "FIN lost behind the proxy",
            "idle for longer than keep-alive takes",
        ],
    ),
    (
        "corked-small-writes",
        "midspan-forward",
        &["one-byte writes, each answered"],
    ),
    (
        "reset-overtakes-data",
        "midspan-forward",
        &[
            "reset by client right behind data",
            "reset by server right behind data",
        ],
    ),
];

fn run(fault: &str, proxy: &str, cases: &[&str]) -> Output {
    Command::new(MIDSPAN)
        .args(["conformance", "--quick", "--json", "--against", proxy])
        .args(["--only", &cases.join(";")])
        .env("MIDSPAN_SEEDED_FAULT", fault)
        .output()
        .unwrap()
}

/// The cases that differ without a reason, with their protocols.
fn missed(output: &Output) -> Vec<String> {
    let records = common::records(output);
    let of_proxy = |record: &&serde_json::Value| record["ok"] == false;
    let missed = records.iter().filter(of_proxy);
    missed
        .map(|record| format!("{}, {}", record["item"], record["case"]))
        .collect()
}

#[test]
fn a_good_build_passes() {
    for (_, proxy, cases) in FAULTS {
        let output = run("", proxy, cases);
        assert_eq!(missed(&output), Vec::<String>::new());
        assert!(output.status.success(), "{proxy} {cases:?}");
    }
}

#[test]
fn builds_with_a_fault_fail() {
    for (fault, proxy, cases) in FAULTS {
        let output = run(fault, proxy, cases);
        let missed = missed(&output);
        println!("{fault}: {missed:?}");
        assert_eq!(output.status.code(), Some(3), "{fault} is not found");
        for case in cases {
            let found = missed.iter().filter(|name| name.contains(case)).count();
            assert_eq!(
                found, 2,
                "{fault} is not found by \"{case}\" over both protocols"
            );
        }
    }
}
