//! How a node predicts the completion time of a route: exactly, or by the table of a large simulation.

use std::fmt;

use midspan_units::{ByteSize, TimeSpan};

use super::prediction::{RouteLeg, completion_time};

/// Predicts completion times. The proxy uses [`ExactTimes`]. A simulation of hundreds of nodes passes a table, so that
/// the same code chooses the routes of both ([`KnownOverlay::for_large_simulations`](super::KnownOverlay)).
pub trait CompletionTimes: fmt::Debug + Send + Sync {
    /// The completion time of `size` bytes over these legs, which begin at the server and end at the ingress. `None`
    /// without legs, or if a leg passes nothing. The same legs and size always give the same time.
    fn completion_time(&self, legs: &[RouteLeg], size: ByteSize) -> Option<TimeSpan>;
}

/// The prediction by the analysis: [`completion_time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExactTimes;

impl CompletionTimes for ExactTimes {
    fn completion_time(&self, legs: &[RouteLeg], size: ByteSize) -> Option<TimeSpan> {
        completion_time(legs, size)
    }
}
