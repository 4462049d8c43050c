//! Scripted TCP sessions over real kernels, with and without a proxy, and the differences.
//!
//! A [`case`] scripts both ends of one connection, or of several. It runs in a [`network`] of
//! namespaces (client – router – gateway – router – server). Each [`end`] records its actions and
//! their results in a [`transcript`]: numbers of bytes, FINs and errors in their order, without
//! times. The expected transcript comes from the run without a proxy, or from the case itself if
//! the proxy ends in it. If a run with one of the [`proxies`] differs, this is a fault, unless
//! [`differences`] contains a reason for the difference.
//!
//! Proxies are programs: the suite uses no internal interface of any proxy.

pub mod case;
pub mod cases;
pub mod differences;
pub mod end;
mod error;
pub mod network;
pub mod pattern;
pub mod proxies;
pub mod results;
mod run;
pub mod stage;
pub mod transcript;

pub use differences::Verdict;
pub use end::LIMIT;
pub use error::{Error, Played, Stop};
pub use network::Family;
pub use run::{Outcome, Participant, Plan, Results, proxy_names, run};
