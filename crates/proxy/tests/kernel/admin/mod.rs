//! Observation of a running proxy: metrics, live sessions, lines of the log, captures. Observers do
//! not disturb the proxy.
//!
//! All tests use the loopback interface of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod capturing;
mod hostile;
mod seen;
mod support;

use midspan_testbed::KernelTests;

/// These tests, with their set-up.
pub const TESTS: KernelTests = KernelTests::new().set_up(support::set_up_network);
