//! Why there are no figures from the lab.

use std::io;
use std::path::PathBuf;

use midspan_lab::LabError;
use midspan_units::ParseError;

use crate::Paper;

/// Why there are no figures from the lab.
#[derive(Debug, thiserror::Error)]
pub enum LaboratoryError {
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A path is wrong.
    #[error(transparent)]
    Path(#[from] midspan_path::Error),
    /// A setting cannot be read.
    #[error("a setting of the paper cannot be read: {0}")]
    Setting(#[from] ParseError),
    /// The paper has no figures from the lab.
    #[error("the lab has no figures of {}", .0.name())]
    None(Paper),
    /// There is no such item.
    #[error("the lab has no item \"{item}\" of {}; it has {known}", .paper.name())]
    Item {
        /// The paper.
        paper: Paper,
        /// What was asked for.
        item: String,
        /// What there is.
        known: String,
    },
    /// The file of finished measurements cannot be used.
    #[error("{}: {source}", file.display())]
    State {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A line of that file is no measurement.
    #[error("{}:{line}: no measurement: {reason}", file.display())]
    StateLine {
        /// The file.
        file: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}
