//! How well the analysis agrees with the simulator, over paths drawn at random.

mod draw;
mod predicted;
mod simulated;
mod summary;
#[cfg(test)]
mod tests;

pub use draw::{Draw, DrawnLeg};
pub use summary::{Agreement, Compared};
