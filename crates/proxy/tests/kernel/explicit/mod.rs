//! Explicit listeners (SOCKS5, HTTP) and the PROXY protocol, with curl and HAProxy and with clients
//! that break the rules; names, access rules, reloads.
//!
//! All tests use the interfaces of a network namespace of their own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod closing;
mod crowding;
mod exchange;
mod hostile;
mod name_servers;
mod names;
mod own_addresses;
mod proxy_protocol;
mod rates;
mod servers;
mod serving;
mod source_addresses;
mod support;

use midspan_testbed::KernelTests;

/// These tests, with their set-up.
pub const TESTS: KernelTests = KernelTests::new().set_up(support::set_up_network);
