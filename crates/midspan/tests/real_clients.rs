//! Some real programs through this build, beside plain routing; `make real-clients` has all.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use midspan_conformance::Family;
use midspan_real_clients::{Gateway, Plan, Verdict, cases, run};

/// Cases whose programs nearly every machine has, by the gateways with which they run.
const CHOSEN: [(&str, &[Gateway]); 6] = [
    (
        "curl: 100 URLs over one connection",
        &[Gateway::EndToEnd, Gateway::Socks5],
    ),
    ("curl: closed port", &[Gateway::EndToEnd, Gateway::Early]),
    (
        "curl: PUT with Expect, chunked PUT, PUT by HTTP/2",
        &[Gateway::Early, Gateway::Http],
    ),
    (
        "nc: half-close by the client, by the server",
        &[Gateway::EndToEnd],
    ),
    (
        "reset by the server after its answer, reset by the client",
        &[Gateway::EndToEnd],
    ),
    (
        "ssh: command, exit status, terminal, 20 MB by standard input",
        &[Gateway::EndToEnd],
    ),
];

/// Programs that `scripts/install-dependencies` installs for every test: these cases must run.
const SURE: &str = "curl";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("inside") => inside(),
        // As `cargo test NAME` or its options ask for; there is one test here.
        Some(filter) if !filter.starts_with('-') && !"real_clients".contains(filter) => {
            ExitCode::SUCCESS
        }
        // In a process of its own: the one that leaves the host's network has one thread.
        _ => {
            let program = std::env::current_exe().unwrap();
            let status = Command::new(program).arg("inside").status().unwrap();
            assert!(status.success(), "{status}");
            println!("test real_clients ... ok");
            ExitCode::SUCCESS
        }
    }
}

fn inside() -> ExitCode {
    midspan_linux::namespace::isolate().unwrap();
    let mut failed = false;
    for (name, gateways) in CHOSEN {
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
            println!("skipped: {name}: {}", skipped.reason);
            failed |= name.starts_with(SURE);
        }
        failed |= !results.nothing_differs() || !results.nothing_void();
    }
    ExitCode::from(u8::from(failed))
}
