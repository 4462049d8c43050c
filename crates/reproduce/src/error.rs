//! Why a paper's scenario gave no result.

use midspan_model::ModelError;
use midspan_sim::{ScenarioError, StopReason};
use midspan_units::{ParseError, Time};

/// Why a paper's scenario gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The simulator refuses the scenario.
    #[error("the paper's scenario cannot be simulated: {0}")]
    Scenario(#[from] ScenarioError),
    /// A setting of the paper cannot be read.
    #[error("a setting of the paper cannot be read: {0}")]
    Setting(#[from] ParseError),
    /// The analysis that stands beside the simulation fails.
    #[error("the paper's scenario cannot be analysed: {0}")]
    Model(#[from] ModelError),
    /// The simulation ended before its time, so that its counts mean nothing.
    #[error("the simulation ended at {:.3} s instead of running its time: {reason:?}", .until.since(Time::ZERO).as_seconds())]
    Ended {
        /// When it ended.
        until: Time,
        /// Why.
        reason: StopReason,
    },
}
