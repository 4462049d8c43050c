//! The board of `deploy/grafana` and the alerts of `deploy/prometheus`, on a real Prometheus and a
//! real Alertmanager that watch a real Midspan. `make test-monitoring` runs these tests; `make test`
//! does not, because they need programs of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod alerts;
mod board;
#[path = "../common/mod.rs"]
mod common;
mod prometheus;
// A part of what these tests have in common with those of transparent listeners.
#[allow(unused_imports)]
#[path = "../kernel/transparent/support.rs"]
mod support;

use std::process::{Command, ExitCode};

use midspan_testbed::{KernelTests, kernel_test};

fn main() -> ExitCode {
    KernelTests::new()
        .commands(common::COMMANDS)
        .set_up(|| {
            for program in ["prometheus", "promtool", "prometheus-alertmanager", "nft"] {
                let found = Command::new(program).arg("--version").output();
                assert!(
                    found.is_ok(),
                    "no program {program}: run make test-monitoring"
                );
            }
        })
        .main()
}

/// The rules are tested unchanged, in a time of their own.
#[kernel_test]
fn the_rules_pass_their_tests() {
    for arguments in [
        ["check", "rules", "midspan.rules.yml"],
        ["test", "rules", "midspan.test.yml"],
    ] {
        let result = Command::new("promtool")
            .args(arguments)
            .current_dir(prometheus::FOLDER)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&result.stdout);
        let errors = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success(), "{arguments:?}: {text}{errors}");
        println!("{text}");
    }
}
