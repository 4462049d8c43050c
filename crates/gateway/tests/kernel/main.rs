//! Rules, routes and marks of a real kernel, in network namespaces.

mod adopting;
mod initial_window;
mod oversized;
mod plans;
mod raised;
mod rules_meanwhile;
mod two_namespaces;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    KernelTests::new().commands(initial_window::COMMANDS).main()
}
