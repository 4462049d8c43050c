//! The results of all measurements and computations.
//!
//! One [`Record`] is one number with its meaning. Every command's table, plot, report and `--json`
//! output is made from the same records. A [`Quantity`] is what is measured, a [`Spread`] what
//! repeated measurements of it come to, and a [`Bound`] what they must keep. A [`Store`]
//! keeps the results of finished runs in a file.

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
