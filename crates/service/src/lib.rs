//! The parts that `midspan run` and `midspan thin` have in common.
//!
//! A daemon is a privileged process (the *helper*), which handles no traffic, and processes of the same
//! program with fewer rights, which the helper starts:
//!
//! | module | content |
//! | --- | --- |
//! | [`child`] | starting and ending such a process; how it ignores signals and becomes another user |
//! | [`message`] | messages between the two, with descriptors |
//! | [`liveness`] | the rule that decides whether a thread or process makes progress |
//! | [`notify`] | the service manager: ready, reloading, stopping, alive |
//! | [`signals`] | signals as descriptors to wait for |
//! | [`user`] | the user that a child becomes |
//! | [`logging`] | the log, on standard error |
//! | [`pages`] | metrics and state over HTTP |

pub mod child;
pub mod liveness;
pub mod logging;
pub mod message;
pub mod notify;
pub mod pages;
pub mod signals;
pub mod user;
