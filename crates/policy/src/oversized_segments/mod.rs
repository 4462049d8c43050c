//! Oversized segments towards clients behind a narrow upstream (Hasegawa §3, §6).
//!
//! A client returns an ACK for a segment, however large it is. Segments larger than the client
//! asked for, which leave as IP fragments, so save upstream without any change of the client.
//!
//! - [`size`]: which size is worth having ([`Wish`], [`Measured`]);
//! - [`OversizedSegments`]: when to use it, and when to go back;
//! - [`Verdicts`]: what clients were found to take.

mod probe;
pub mod size;
#[cfg(test)]
mod tests;
mod verdicts;

pub use probe::{Event, OversizedSegments};
pub use size::{Measured, Wish};
pub use verdicts::{Verdict, Verdicts};
