//! Rates, sizes, times, probabilities and service classes: parse, print, compute.
//!
//! Every quantity is a separate type, so that a rate is never used as a size. All are integers of a
//! small base unit (bit/s, bytes, nanoseconds, 10⁻¹² of a probability), so that the same input gives the same
//! result on every machine. All parse from text with a unit ("8 Mbit/s", "64 KiB", "250 ms", "0.1 %"), and
//! their printed text parses back to the same value. A [`Dscp`] is a number or a name without unit.
//!
//! This crate is pure: no clock, no I/O, no random source.

mod dscp;
mod number;
mod probability;
mod quantity;
mod rate;
mod serialize;
mod si;
mod size;
mod time;

pub use dscp::{Dscp, DscpError};
pub use number::number;
pub use probability::Probability;
pub use quantity::ParseError;
pub use rate::BitRate;
pub use si::si_value;
pub use size::ByteSize;
pub use time::{Time, TimeSpan};
