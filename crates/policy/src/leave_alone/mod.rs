//! Flows that a proxy must not, or should not, stand in.

mod asymmetric_route;
mod gain;
mod route;

pub use asymmetric_route::{AsymmetricRoutes, Passage};
pub use gain::{Gains, SIZES, SizeGain};
pub use route::Route;
