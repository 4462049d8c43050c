//! Errors while a report is made.

use thiserror::Error;

/// Why a plot or a report could not be made.
#[derive(Debug, Error)]
pub enum Error {
    /// The drawing library refused. This is a fault in this crate, not in the data.
    #[error("could not draw the plot \"{plot}\": {reason}; please report this as a bug")]
    Drawing {
        /// The plot's title.
        plot: String,
        /// The message of the drawing library.
        reason: String,
    },
    /// The page could not be rendered. This is a fault in this crate, not in the data.
    #[error("could not put the page together: {0}; please report this as a bug")]
    Template(#[from] askama::Error),
}
