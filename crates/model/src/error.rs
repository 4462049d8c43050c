//! Errors for inputs that cannot be analysed.

use thiserror::Error;

/// Why an analysis has no result. Each message names the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ModelError {
    /// A path has no link, or more than can be analysed.
    #[error("a path has 1 to {most} links, this one has {found}: merge or add links")]
    Links {
        /// Links given.
        found: usize,
        /// Most links of a path.
        most: usize,
    },
    /// A segment carries no data.
    #[error("a segment of 0 bytes carries nothing: give the MSS, such as 1448 B")]
    EmptySegment,
    /// There are more proxies than places for them.
    #[error("{proxies} proxies do not fit: this path has {places} places between its links")]
    Proxies {
        /// Requested proxies.
        proxies: usize,
        /// Places between links.
        places: usize,
    },
    /// Proxy positions are not places of the path in ascending order.
    #[error(
        "proxy positions must rise from 1 to {places}: position 1 is between the first and the \
         second link"
    )]
    Positions {
        /// Places between links.
        places: usize,
    },
    /// A number is not strictly between its two bounds.
    #[error("{what} must lie between {low} and {high}")]
    OutOfRange {
        /// The quantity.
        what: &'static str,
        /// Lower bound, as text.
        low: &'static str,
        /// Upper bound, as text.
        high: &'static str,
    },
    /// The chain of legs is empty, or longer than can be analysed.
    #[error("a chain has 1 to {most} legs, this one has {found}")]
    Legs {
        /// Legs given.
        found: usize,
        /// Most legs of a chain.
        most: usize,
    },
}
