//! What can be seen of a running proxy: metrics, live sessions, lines of the log, captures; and
//! that nobody who asks for them disturbs it.
//!
//! Everything happens on the loopback interface of a network namespace of its own.

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
