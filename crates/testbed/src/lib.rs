//! Networks of namespaces, programs that run in them, and the harness of the tests that need both.
//!
//! - [`network`]: hosts and routers, each a network namespace; links, addresses and routes.
//! - [`program`]: starts a program with a configuration, waits until it is ready, and ends it.
//! - [`loopback`]: sessions through a proxy on this machine, without namespaces.
//! - `kernel_tests` (feature `kernel-tests`): the harness of kernel tests. It runs each test in a
//!   process and a network namespace of its own.
//! - `testing` (the same feature): short forms for kernel tests. They panic where the other modules
//!   return an error.
//!
//! All kernel tests, the lab, the suites `conformance` and `real-clients`, and the benches that need
//! a network or start programs use this crate.

#[cfg(feature = "kernel-tests")]
pub mod kernel_tests;
pub mod loopback;
pub mod network;
pub mod program;
#[cfg(feature = "kernel-tests")]
pub mod testing;

#[cfg(feature = "kernel-tests")]
pub use kernel_tests::{KernelTests, skip, skip_part};
#[cfg(feature = "kernel-tests")]
pub use midspan_testbed_macros::kernel_test;

#[cfg(feature = "kernel-tests")]
#[doc(hidden)]
pub use inventory;
