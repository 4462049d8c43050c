//! TCP stacks as clients of a gateway that sends oversized segments.
//!
//! A stack is behind an access router, which reaches it by a TUN device (the Linux kernel's stack:
//! by a veth pair). A link with a rate limit joins the access router and a gateway with Midspan;
//! behind the gateway is a server. Each stack downloads over IPv4 and IPv6: once with normal segments,
//! twice with oversized segments of each size, and twice with the smallest of these sizes on a path
//! that drops fragments. Every received byte is compared. A capture at the access router records
//! ACKs, fragments and the data in them.
//!
//! | module | content |
//! | --- | --- |
//! | [`network`] | the namespaces |
//! | [`server`] | the downloaded data |
//! | [`midspan`] | Midspan on the gateway, and its log lines about sessions |
//! | [`stack`] | the stacks, and how their clients are built |
//! | [`download`] | one download |
//! | [`traffic`] | the evaluation of the capture |
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

/// Any error that stops a measurement.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
