//! Flows that a proxy must not, or should not, split.

mod asymmetric_route;
mod flows_by_size;
mod gain;
mod recent_goodputs;
mod route;

pub use asymmetric_route::{AsymmetricRoutes, KnownAsymmetry, Passage};
pub use flows_by_size::{FlowsBySize, SIZES, SizeGain};
pub use gain::{Gains, KnownGain};
pub(crate) use recent_goodputs::RecentGoodputs;
pub use route::Route;
