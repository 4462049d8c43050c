//! The life of a running proxy: reloads, commands, the service manager.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
#[path = "../common/mod.rs"]
mod common;
mod draining;
mod liveness;
mod notifying;
mod reloading;
mod support;

use std::process::ExitCode;

use midspan_linux::netlink::Netlink;
use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    KernelTests::new()
        .commands(common::COMMANDS)
        .set_up(|| Netlink::open().unwrap().set_up("lo").unwrap())
        .main()
}
