//! Simulated runs of a path file over lists and ranges of its parameters.
//!
//! Any key of a path file can be [set](midspan_document::Override) and
//! [swept](midspan_document::Sweep): every value is checked as if the file contained it. A *point* is
//! one combination of swept values, in one [`Case`]. Each point runs a
//! number of times, with the same seeds at every point (common random numbers). Runs are distributed
//! over threads; the result does not depend on the number of threads. If a run fails, the others
//! continue, and the point's rows contain the reason ([`Row::failure`]). Finished runs can be stored
//! ([`RUNS`]), and distributed over several calls and machines ([`Part`]).

mod case;
mod error;
mod measure;
mod numbers;
mod plan;
mod rows;
mod run;
mod runs;
mod work;

pub use case::{Case, UnknownCase};
pub use error::Error;
pub use measure::{FlowRun, Measure, measure, measure_flows};
pub use numbers::column_of;
pub use plan::Plan;
pub use rows::{Failure, Row, RunRow, Status};
pub use run::{NoShard, Part, RUNS, Shard, StoredFlow, StoredRun};
pub use runs::{Counts, Execution, Runs, Step};
pub use work::{in_parallel, in_parallel_each};
