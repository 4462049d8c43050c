//! Why there are no figures from the lab.

use std::io;
use std::path::PathBuf;

use midspan_lab::LabError;
use midspan_units::ParseError;

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
    /// There is no such item.
    #[error("the lab has no {what} \"{item}\" of {of}; it has {known}")]
    Item {
        /// What an item is, such as "item".
        what: &'static str,
        /// The paper, or what else is measured.
        of: &'static str,
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
