//! Flows that a proxy must not, or should not, stand in.

mod asymmetric_route;

pub use asymmetric_route::{AsymmetricRoutes, Passage};
