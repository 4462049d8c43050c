//! Real programs through Midspan, beside plain routing.
//!
//! A [`case`] is a server and a client: programs of Debian, driven by two short shell scripts. They
//! run in the [`midspan_conformance::network`] of namespaces, with the firewall and the masquerade
//! of the gateway guide on the gateway. The lines that the client's script prints (exit statuses,
//! checksums of the data moved, kinds of ends) are what a user sees. They are first collected with
//! plain routing, then with Midspan on the [`gateway`] in each of its ways. A line that differs is a
//! fault, unless [`differences`] has the reason why it is so.
//!
//! Nothing of the machine is touched: each script has process and mount namespaces of its own,
//! with which all its programs end.

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
