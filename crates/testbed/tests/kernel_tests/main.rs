//! The test bed itself: its harness with tests that were planted to fail, its networks and its
//! programs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;
mod networks;
mod planted;
mod programs;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    let tests = KernelTests::new()
        .commands(programs::COMMANDS)
        .modules(&[("planted", planted::TESTS)]);
    // The planted tests are run by those of the harness.
    match std::env::var_os(planted::VARIABLE) {
        Some(_) => tests.only(|name| name.starts_with("planted::")).main(),
        None => tests.only(|name| !name.starts_with("planted::")).main(),
    }
}
