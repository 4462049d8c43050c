//! Scripted TCP sessions over real kernels, with and without a proxy, and what differs.
//!
//! A [`case`] scripts both ends of a connection, or of many. It runs in a [`network`] of
//! namespaces, client – router – gateway – router – server, and each [`end`] writes down what it
//! does and sees: a [`transcript`] of bytes, ends and error numbers in order, without times. The
//! run without a proxy gives the expected transcript. What a run with one of the [`proxies`] has
//! otherwise is a fault, unless [`differences`] has a reason why it cannot be avoided.
//!
//! Proxies are programs: nothing here looks inside them.

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
pub use error::{Error, Played, Stop};
pub use network::Family;
pub use run::{Outcome, Participant, Plan, Results, proxy_names, run};
