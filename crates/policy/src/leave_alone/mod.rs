//! Flows that a proxy must not, or should not, split.

mod asymmetric_route;
mod gain;
mod route;

pub use asymmetric_route::{AsymmetricRoutes, KnownAsymmetry, Passage};
pub use gain::{Gains, KnownGain, SIZES, SizeGain};
pub use route::Route;
