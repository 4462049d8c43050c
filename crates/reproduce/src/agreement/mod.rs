//! How well the analysis agrees with the simulator, over paths drawn at random.

mod draw;
mod figures;
mod predicted;
mod runs;
mod simulated;
mod summary;
#[cfg(test)]
mod tests;

pub use draw::{Draw, DrawnLeg};
pub use figures::{plot, records};
pub use runs::{AgreementError, Simulated, Simulations};
pub use summary::{Agreement, Compared};
