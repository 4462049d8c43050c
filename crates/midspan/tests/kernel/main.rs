//! The program with a running proxy, in network namespaces.

mod capture;
#[path = "../common/mod.rs"]
mod common;
mod explain;
#[cfg(feature = "lab")]
mod gateway_guide;
mod init;
#[cfg(feature = "lab")]
mod overlay_tutorial;
#[cfg(feature = "lab")]
mod page;
#[cfg(feature = "lab")]
mod real_clients;
mod registry;
mod top;
mod two_gateways;

use std::process::ExitCode;

use midspan_testbed::KernelTests;
use midspan_testbed::kernel_tests::Command;

#[cfg(feature = "lab")]
const COMMANDS: &[Command] = &[gateway_guide::FOLLOW, overlay_tutorial::FOLLOW];
#[cfg(not(feature = "lab"))]
const COMMANDS: &[Command] = &[];

fn main() -> ExitCode {
    KernelTests::new().commands(COMMANDS).main()
}
