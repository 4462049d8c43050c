//! Simulated runs of a path file over lists and ranges of its parameters.
//!
//! Any key of a path file can be [set](Setting) and [swept](Axis): the text is changed and read
//! again, so every value is checked as if the file contained it. Each point runs several times,
//! with the same seeds at every point (common random numbers). Runs are distributed over threads;
//! the result does not depend on their number.

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
