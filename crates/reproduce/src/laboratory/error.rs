//! Why a measurement in the lab failed.

use midspan_lab::LabError;
use midspan_records::StoreError;
use midspan_units::ParseError;

/// Why a measurement in the lab failed.
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
        /// The kind of name, such as "item".
        what: &'static str,
        /// The paper, or the real paths.
        of: &'static str,
        /// The requested name.
        item: String,
        /// The available names.
        known: String,
    },
    /// The file of stored runs cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The path of a case cannot be written as a path file; therefore its runs cannot be stored.
    #[error("{case}: no path file can have this path, so its runs cannot be stored")]
    Unwritable {
        /// The names of the point and the case.
        case: String,
    },
}
