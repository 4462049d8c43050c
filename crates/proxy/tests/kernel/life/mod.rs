//! The life of a running proxy: reloads, commands, the service manager.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commands;
mod draining;
mod liveness;
mod notifying;
mod reloading;
mod support;
mod transfers;
mod upgrading;

use midspan_linux::netlink::Netlink;
use midspan_testbed::KernelTests;

/// These tests, with their set-up.
pub const TESTS: KernelTests =
    KernelTests::new().set_up(|| Netlink::open().unwrap().set_up("lo").unwrap());
