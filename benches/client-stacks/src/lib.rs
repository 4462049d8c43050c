//! TCP stacks as clients of a gateway that sends oversized segments.
//!
//! A stack stands behind an access router, whose way to it is a TUN device (or, for the Linux
//! kernel, a veth); a link with a rate leads from there to a gateway with Midspan, and on to a
//! server. Each stack downloads with normal segments, with oversized segments of
//! growing size, and on a path that drops fragments; every byte is compared. What passes the
//! access router is captured: ACKs, fragments and what they carry.
//!
//! | module | job |
//! | --- | --- |
//! | [`network`] | the namespaces |
//! | [`server`] | what is downloaded |
//! | [`midspan`] | Midspan on the gateway, and what it logs of sessions |
//! | [`stack`] | the stacks, and how their clients are built |
//! | [`download`] | one download |
//! | [`traffic`] | what the capture says of it |
//! | [`measure`] | all downloads of a stack |
//! | [`table`] | table and records |
#![cfg(feature = "measure")]

pub mod download;
pub mod measure;
pub mod midspan;
pub mod network;
pub mod server;
pub mod stack;
pub mod table;
pub mod traffic;

/// Anything that stops a measurement.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
