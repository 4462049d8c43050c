//! Why a question has no answer.

use midspan_model::ModelError;
use thiserror::Error;

/// Why a question about a path has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The analysis does not accept the path.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There are no two hosts between which data could flow.
    #[error("the path has fewer than two hosts: add a [[host]] at each end")]
    Hosts,
    /// A route leads between nodes that are not connected, or from a node to itself.
    #[error("no link leads from {from} to {to}")]
    NoWay {
        /// The one node.
        from: String,
        /// The other node.
        to: String,
    },
    /// The measurement contains no round trip.
    #[error("no round trip was measured: give a ping of the path, or a capture with the handshake")]
    NoRoundTrip,
    /// The question is about proxies, but the path has none.
    #[error("the path has no proxy between {ends}: add a [[proxy]] between them")]
    NoProxy {
        /// The two hosts.
        ends: String,
    },
}
