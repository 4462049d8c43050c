//! Observation of a running proxy: metrics, live sessions, lines of the log, captures. Observers do
//! not disturb the proxy.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../capture_file/mod.rs"]
mod capture_file;
mod capturing;
#[path = "../common/mod.rs"]
mod common;
mod hostile;
mod seen;
mod support;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    KernelTests::new()
        .commands(common::COMMANDS)
        .set_up(support::set_up_network)
        .main()
}
