//! Networks from measured data, which is not part of this repository.
//!
//! | data | where | format |
//! | --- | --- | --- |
//! | Seattle, PlanetLab | GitHub, `uofa-rzhu3/NetLatency-Data` | a folder with one matrix of round trips per time slice: [`matrices`] |
//! | Skyplane | GitHub, `skyplane-project/skyplane`, `profiles/latency.csv` and `profiles/throughput.csv` in its history | tables of regions: [`regions`] |
//!
//! Neither has losses: draw them with [`weather`](crate::weather). All input is checked and bounded.

mod matrices;
mod profiles;
mod roles;

use thiserror::Error;

pub use matrices::{Slices, matrices};
pub use profiles::regions;

/// Most bytes of one file, and most files.
pub const MOST_BYTES: usize = 16 << 20;
/// See [`MOST_BYTES`].
pub const MOST_FILES: usize = 2_000;

/// Data cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// A line has wrong content.
    #[error("{file}, line {line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// The line, the first one is 1.
        line: usize,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// A file is wrong as a whole.
    #[error("{file}: {what}")]
    File {
        /// The file.
        file: String,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// The data is complete, but no network.
    #[error(transparent)]
    Network(#[from] crate::network::NetworkError),
}

/// An error in a line; `place` counts from 0.
fn line_error(file: &str, place: usize, what: impl Into<String>) -> ReadError {
    ReadError::Line {
        file: file.to_owned(),
        line: place + 1,
        what: what.into(),
    }
}

/// An error of a whole file.
fn file_error(file: &str, what: impl Into<String>) -> ReadError {
    ReadError::File {
        file: file.to_owned(),
        what: what.into(),
    }
}
