//! Why there are no figures from the lab.

use midspan_lab::LabError;
use midspan_records::StoreError;
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
    /// The file of finished runs cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The path of an arm cannot be written, so its runs cannot be stored.
    #[error("{case}: no path file can have this path, so its runs cannot be stored")]
    Unwritable {
        /// Point and arm.
        case: String,
    },
}
