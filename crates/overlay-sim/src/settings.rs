//! What is simulated.

use midspan_units::{ByteSize, TimeSpan};

/// The sessions of a simulation, and what happens to its nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How long sessions begin.
    pub duration: TimeSpan,
    /// Sessions that begin in a second, on average.
    pub rate: f64,
    /// How long the rate rises from zero in a straight line.
    pub rises: TimeSpan,
    /// To how many exits an ingress sends sessions.
    pub exits: usize,
    /// How many leaves are an ingress; all if there are fewer.
    pub ingresses: usize,
    /// The mean size of a session; sizes are exponentially distributed.
    pub size: ByteSize,
    /// The size of a transfer whose completion time the nodes predict (`transfer` in the configuration).
    pub transfer: ByteSize,
    /// Each session with a number that is a multiple of this is compared with perfect knowledge.
    pub sampled: u64,
    /// The share of its CPU time that a transit node needs when its rate is used up, 0…1. Nodes report this share as their
    /// load, and are busy from 0.8 on.
    pub processing: f64,
    /// Transit nodes that fail.
    pub failure: Option<Failure>,
}

/// A share of the transit nodes fails: they are silent from then on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failure {
    /// How long after the first session.
    pub after: TimeSpan,
    /// The share of all transit nodes, at least one node.
    pub share: f64,
}

impl Default for Settings {
    /// An hour at 500 sessions/s of 1 MB.
    fn default() -> Self {
        Self {
            seed: 1,
            duration: TimeSpan::from_seconds(3600),
            rate: 500.0,
            rises: TimeSpan::ZERO,
            exits: 10,
            ingresses: usize::MAX,
            size: ByteSize::from_bytes(1_000_000),
            transfer: ByteSize::from_bytes(1_000_000),
            sampled: 500,
            processing: 0.8,
            failure: None,
        }
    }
}
