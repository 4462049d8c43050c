//! The results of all measurements and computations.
//!
//! One [`Record`] is one number with its meaning. A command makes its table, plots, report and
//! `--json` output from the same records. A [`Quantity`] has the name and the unit of a measured
//! number. A [`Spread`] is the median of repeated measurements with its range and interval. A
//! [`Bound`] is a limit that a number has to meet. A [`Store`] keeps the results of finished runs in a
//! file or a folder.

mod bound;
pub mod quantity;
mod record;
mod spread;
pub mod statistics;
mod store;

pub use bound::Bound;
pub use quantity::{Better, Quantity};
pub use record::{By, Record, Records};
pub use spread::Spread;
pub use store::{Merged, RunKey, RunKind, Store, StoreError, merge};
