//! Simulated runs of a path file over lists and ranges of its parameters.
//!
//! Any key of a path file can be [set](Setting) and [swept](Axis): its text is changed and read
//! again, so every value is checked as if it had been written there. Each point runs several
//! times, with the same seeds at every point (common random numbers); runs are spread over threads,
//! and the result is the same for any number of them.

mod axis;
mod error;
mod measure;
mod plan;
mod setting;
mod work;

pub use axis::Axis;
pub use error::Error;
pub use measure::{Measure, measure};
pub use plan::{Plan, Row};
pub use setting::Setting;
pub use work::in_parallel;
