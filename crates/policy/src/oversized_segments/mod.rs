//! Oversized segments towards clients behind a narrow upstream (Hasegawa §3, §6).
//!
//! A client returns one ACK for each segment, however large. So segments larger than the client
//! asked for, sent as IP fragments, save upstream capacity without any change of the client.
//!
//! - [`size`]: which size is worth using ([`SegmentSizes`], [`Measured`]);
//! - [`OversizedSegments`]: when to use it, and when to go back;
//! - [`OversizedStart`]: the ways to begin with it, two of them from the paper;
//! - [`NarrowLeg`](crate::narrow_leg::NarrowLeg): all of this and sending ahead, for one leg;
//! - [`Verdicts`]: what was found out about clients.

mod probe;
pub mod size;
mod start;
#[cfg(test)]
mod tests;
mod verdicts;

pub use probe::{Event, OversizedSegments};
pub use size::{Measured, SegmentSizes};
pub use start::{OversizedStart, size_after_duplicate_start};
pub use verdicts::{Verdict, Verdicts};
