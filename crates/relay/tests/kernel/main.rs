//! A relay that is killed, and one without free descriptors: each test has a process of its own.

mod crash;
mod descriptors;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    KernelTests::new()
        .commands(crash::COMMANDS)
        .set_up(support::set_up_loopback)
        .main()
}
