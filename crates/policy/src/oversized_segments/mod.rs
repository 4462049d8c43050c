//! Oversized segments towards clients behind a narrow upstream (Hasegawa §3, §6).
//!
//! A client returns an ACK for a segment, however large it is. Segments larger than the client
//! asked for, which leave as IP fragments, so save upstream without any change of the client.
//!
//! - [`size`]: which size is worth having ([`Wish`], [`Measured`]);
//! - [`OversizedSegments`]: when to use it, and when to go back;
//! - [`OversizedStart`]: the ways to come to them, of which the paper has two;
//! - [`NarrowSession`]: all this, and sending ahead, as a policy of one session;
//! - [`Verdicts`]: what clients were found to take.

mod probe;
mod session;
pub mod size;
mod start;
#[cfg(test)]
mod tests;
mod verdicts;

pub use probe::{Event, OversizedSegments};
pub use session::{Client, NarrowSession};
pub use size::{Measured, Wish};
pub use start::{OversizedStart, size_after_duplicate_start};
pub use verdicts::{Verdict, Verdicts};
