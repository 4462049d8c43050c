//! An overlay of three Midspans in network namespaces of their own, with the files of `docs/overlay.md`:
//!
//! client – ams (ingress) – fra (transit node) – sin (exit) – server
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod choosing;
#[path = "../common/mod.rs"]
mod common;
mod refused;
mod sessions;
mod support;

use std::process::ExitCode;

use midspan_testbed::KernelTests;

fn main() -> ExitCode {
    KernelTests::new().commands(common::COMMANDS).main()
}
