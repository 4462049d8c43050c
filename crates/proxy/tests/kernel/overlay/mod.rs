//! An overlay of three Midspans in network namespaces of their own, with the files of `docs/overlay.md`:
//!
//! client – ams (ingress) – fra (transit node) – sin (exit) – server
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod choosing;
mod client_source;
mod early;
mod encrypted;
mod members;
mod refused;
mod sessions;
mod soak;
mod support;
mod transparent;
mod uplinks;
mod warm;
