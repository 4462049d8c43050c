//! Oversized segments towards clients behind a narrow upstream (Hasegawa §3, §6).
//!
//! A client returns one ACK for each segment, however large. So segments that are larger than the client's
//! MSS, sent as IP fragments, save upstream capacity without any change of the client.
//!
//! - [`size`]: which segment size gains most ([`SegmentSizes`], [`Measured`]);
//! - [`OversizedSegments`]: when a leg uses this size, and when it returns to the client's own;
//! - [`OversizedStart`]: how a session begins with oversized segments: by a probe, or in one of the paper's two
//!   ways;
//! - [`NarrowLeg`](crate::narrow_leg::NarrowLeg): all of this and sending ahead, for one leg;
//! - [`Verdicts`]: which clients accept oversized segments.

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
