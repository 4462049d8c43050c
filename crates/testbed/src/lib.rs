//! Networks of namespaces, programs that run in them, and the tests that need both.
//!
//! - [`network`]: hosts, routers, links, addresses and routes, each host a network namespace.
//! - [`program`]: a program is started with a configuration, waited for, asked to end.
//! - `kernel_tests` (feature `kernel-tests`): the harness of tests that need a kernel to
//!   themselves, each in a process and a network namespace of its own.
//! - `testing` (the same feature): the short forms for such tests; they panic where the others
//!   return an error.
//!
//! The lab, the conformance suite, the benches and all kernel tests build on it.

#[cfg(feature = "kernel-tests")]
pub mod kernel_tests;
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
