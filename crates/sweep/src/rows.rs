//! The rows of a sweep's results.

use midspan_records::Quantity;

use crate::Case;
use crate::measure::Measure;

/// One quantity of one flow at one point. A flow of which no run succeeded has one row, without
/// values.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The value of each swept key, in the order of the sweeps.
    pub point: Vec<String>,
    /// What carried the flows.
    pub case: Case,
    /// The flow's name.
    pub flow: String,
    /// The quantity that was measured.
    pub quantity: &'static Quantity,
    /// One value for each repetition that succeeded.
    pub values: Vec<f64>,
    /// The runs that failed, if there are any.
    pub failure: Option<Failure>,
}

/// Runs of one flow at one point that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Number of runs that failed.
    pub failed: usize,
    /// Number of runs.
    pub runs: usize,
    /// The seed of the first of them.
    pub seed: u64,
    /// Why the first of them failed.
    pub reason: String,
}

/// One flow of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The value of each swept key, in the order of the sweeps.
    pub point: Vec<String>,
    /// What carried the flows.
    pub case: Case,
    /// The best overlay route for the flow in this run, if the case is the oracle; the chosen one, if nodes
    /// choose.
    pub route: Option<String>,
    /// The flow's name.
    pub flow: String,
    /// The seed of the run.
    pub seed: u64,
    /// What was measured; or why the flow can never finish.
    pub outcome: Result<Vec<Measure>, String>,
    /// The commit of Midspan that made the run.
    pub commit: String,
}

/// How a row came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Every run succeeded.
    Ok,
    /// Some runs failed; the values are those of the others.
    Partial,
    /// Every run failed.
    Failed,
}

impl Status {
    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
        }
    }
}

impl Row {
    /// How the row came about.
    #[must_use]
    pub const fn status(&self) -> Status {
        match (&self.failure, self.values.is_empty()) {
            (None, _) => Status::Ok,
            (Some(_), false) => Status::Partial,
            (Some(_), true) => Status::Failed,
        }
    }

    /// Why runs failed, if any did.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(format!(
            "{} of {} runs failed, the first with seed {}: {}",
            failure.failed, failure.runs, failure.seed, failure.reason
        ))
    }
}
