//! Why there is no result.

use midspan_document::Located;
use midspan_sim::ScenarioError;
use miette::{Diagnostic, LabeledSpan, SourceCode};
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum Error {
    /// The path cannot be used.
    #[error("\"{given}\" {problem}")]
    Written {
        /// Its name.
        given: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// There is no such flow.
    #[error(
        "{key}: there is no `{part}` {place}{}",
        .near.as_ref().map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default()
    )]
    NoSuchPlace {
        /// The whole key.
        key: String,
        /// The part of it that does not exist.
        part: String,
        /// The place where it was looked for.
        place: String,
        /// The nearest name.
        near: Option<String>,
    },
    /// The path file, an override or a sweep has an error at one place.
    #[error("{0}")]
    Located(#[from] Located),
    /// The simulator refuses the path.
    #[error("the path \"{path}\" cannot be simulated: {error}")]
    Scenario {
        /// The path.
        path: String,
        /// The reason.
        error: ScenarioError,
    },
    /// A run cannot be stored.
    #[error(transparent)]
    Store(#[from] midspan_records::StoreError),
    /// A flow can never finish.
    #[error("the simulation of \"{path}\" was stopped: flow \"{flow}\" {reason}")]
    NeverFinishes {
        /// The path.
        path: String,
        /// The flow.
        flow: String,
        /// The event that it has waited for.
        reason: String,
    },
}

impl Diagnostic for Error {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        match self {
            Self::Located(error) => error.source_code(),
            _ => None,
        }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        match self {
            Self::Located(error) => error.labels(),
            _ => None,
        }
    }
}
