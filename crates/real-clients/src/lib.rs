//! Real programs through Midspan, compared with plain routing.
//!
//! A [`case`] is a client and mostly a server: programs of Debian, started by short shell scripts.
//! They run in the [`midspan_conformance::network`] of namespaces. The gateway has the firewall of the
//! gateway guide and, except in some cases, its masquerade. The client's script prints the results
//! that a user sees: exit statuses, checksums of the transferred data, how connections end. The suite
//! collects these lines first with plain routing, then with each kind of [`gateway`] that the case can
//! use: a transparent listener with each handshake, SOCKS5, HTTP. It adds lines about Midspan's own
//! faults, such as too few sessions. A line that differs is a fault, unless [`differences`] contains a
//! reason for the difference.
//!
//! The suite changes nothing on the machine: each script has process and mount namespaces of its
//! own, and all its programs end with these namespaces.

pub mod case;
pub mod cases;
pub mod differences;
mod error;
pub mod gateway;
mod needed;
mod plan;
pub mod results;
mod run;
mod script;
mod stage;
mod transcript;

pub use case::Case;
pub use differences::Verdict;
pub use error::Error;
pub use gateway::Gateway;
pub use needed::Needed;
pub use plan::Plan;
pub use run::{Outcome, Results, Skipped, run};
pub use transcript::Transcript;
