//! Rates, sizes, times and probabilities: parse, print, compute.
//!
//! Every quantity is a type of its own, so that a rate is never taken for a size. All are
//! integers of a small base unit (bit/s, bytes, nanoseconds), so that the same input gives the
//! same result on every machine. All parse from text with a unit ("8 Mbit/s", "64 KiB",
//! "250 ms", "0.1 %") and print so that the text parses back to the same value.
//!
//! This crate is pure: no clock, no I/O, no random source.

mod probability;
mod quantity;
mod rate;
mod serialize;
mod size;
mod time;

pub use probability::Probability;
pub use quantity::ParseError;
pub use rate::BitRate;
pub use size::ByteSize;
pub use time::{Time, TimeSpan};
