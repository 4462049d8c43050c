//! Traces of events, as tables (CSV), distributions and a packet capture (pcap).
//!
//! All are [observers](crate::Observer): a simulation without them has no cost. They write to
//! outputs that the caller provides; this crate opens no file.

mod bursts;
mod capture;
mod legs;
mod lines;
mod tables;

pub use bursts::BurstWatch;
pub use capture::Capture;
pub use lines::{CwndLine, Field, QueueLine, RateLine, RttLine};
pub use midspan_link::{Bursts, Histogram};
pub use tables::{Kind, RATE_INTERVAL, Trace};
