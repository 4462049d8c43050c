//! A relay on loopback between sockets of the tests.

mod close;
mod containment;
mod first_data;
mod handover;
mod hop_first_data;
mod leg_options;
mod limits;
mod negotiation;
mod pacing;
mod policy;
mod pressure;
mod random;
mod servers;
mod shared_sockets;
mod sources;
mod stuck;
#[path = "../support/mod.rs"]
mod support;
mod transfer;
