//! The results of all measurements and computations.
//!
//! One [`Record`] is one number with its meaning. Every command's table, plot, report and `--json`
//! output is made from the same records.

mod record;
pub mod statistics;

pub use record::{By, Record, Records};
