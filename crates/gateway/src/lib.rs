//! The changes that Midspan makes to a machine, and their removal.
//!
//! | module | what it changes |
//! | --- | --- |
//! | [`interception`] | rules, routes and kernel parameters that bring forwarded connections to the relay |
//! | [`initial_window`] | routes and rules that give marked connections an initial window or an MTU |
//! | [`takeover`] | rules that reset unknown connections after this gateway has taken over from another one |
//! | [`acknowledgement_queue`], [`acknowledgements_first`] | rules and queues of ACK thinning |
//!
//! [`interception::survey`] and [`ruleset`] read the rules and other settings of the host, and change
//! nothing. Each change belongs to one network namespace and to one process at a time ([`claim`]). The
//! process removes its changes when it ends; [`leftovers`] removes those of a process that was killed. This
//! crate has no `unsafe` code and does not decide anything about connections. It uses netlink and `nft`
//! through the crate `linux`, runs `tc`, and writes files of `/proc/sys`.

pub mod acknowledgement_queue;
pub mod acknowledgements_first;
pub mod claim;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod initial_window;
pub mod interception;
pub mod leftovers;
mod mark_rules;
mod ours;
pub mod ruleset;
pub mod takeover;

pub use ours::PROTOCOL;
