//! Simulated runs of a path file over lists and ranges of its parameters.
//!
//! Any key of a path file can be [set](midspan_document::Override) and
//! [swept](midspan_document::Sweep): every value is checked as if the file contained it. Each point
//! runs several times, with the same seeds at every point (common random numbers). Runs are
//! distributed over threads; the result does not depend on their number. A run that fails does not
//! end the others: its point has a row with the reason.

mod error;
mod measure;
mod plan;
mod work;

pub use error::Error;
pub use measure::{FlowRun, Measure, measure, measure_flows};
pub use plan::{Failure, Plan, Row, Status, Step};
pub use work::{in_parallel, in_parallel_each};
