//! Errors of a paper's scenario.

use midspan_model::ModelError;
use midspan_sim::{ScenarioError, StopReason};
use midspan_units::{ParseError, Time};

/// Why a paper's scenario has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The simulator refuses the scenario.
    #[error("the paper's scenario cannot be simulated: {0}")]
    Scenario(#[from] ScenarioError),
    /// The path file of the paper's network, or a change of it, is wrong.
    #[error("the paper's network cannot be read: {0}")]
    Network(String),
    /// A setting of the paper cannot be read.
    #[error("a setting of the paper cannot be read: {0}")]
    Setting(#[from] ParseError),
    /// The analysis that is compared with the simulation fails.
    #[error("the paper's scenario cannot be analysed: {0}")]
    Model(#[from] ModelError),
    /// The simulation ended too early, so its counts mean nothing.
    #[error("the simulation ended at {:.3} s instead of running its time: {reason:?}", .until.since(Time::ZERO).as_seconds())]
    Ended {
        /// The time of its end.
        until: Time,
        /// The reason for its end.
        reason: StopReason,
    },
}

impl From<midspan_path::Error> for Error {
    fn from(error: midspan_path::Error) -> Self {
        Self::Network(error.to_string())
    }
}
