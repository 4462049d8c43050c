//! What one direction of a link is like, and how that changes over time.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

/// One direction of a link.
///
/// A packet that arrives waits in the queue, is sent at the rate, is perhaps lost on the way,
/// and arrives at the far end after the delay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// What holds at the start.
    pub state: State,
    /// Room for packets that wait, not counting the one that is being sent.
    pub queue: QueueLimit,
    /// Bytes that the link layer adds to every packet (framing), counted by the rate.
    pub overhead: u32,
    /// How rate, delay and loss change over time.
    pub schedule: Schedule,
}

/// The properties of a direction that may change over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// Rate at which packets are sent; `None` for no limit.
    pub rate: Option<BitRate>,
    /// Propagation delay.
    pub delay: TimeSpan,
    /// Probability that a packet is lost on the way, each by itself.
    pub loss: Probability,
}

/// Room for waiting packets. A packet that finds no room is dropped (drop-tail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many packets, whatever their size.
    Packets(u32),
    /// So many bytes, overhead not counted.
    Bytes(ByteSize),
}

impl Default for QueueLimit {
    /// 1,000 packets, the default of Linux devices.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

/// How a direction changes over time: hand-overs, fading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The changes, in order of time.
    pub steps: Vec<Step>,
    /// Start again from the first step after this time; must be later than the last step.
    pub repeat: Option<TimeSpan>,
}

/// One change. What is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// When, since the start of the run (or of the repetition).
    pub at: TimeSpan,
    /// The new rate.
    pub rate: Option<BitRate>,
    /// The new propagation delay. Packets never overtake each other.
    pub delay: Option<TimeSpan>,
    /// The new probability of loss.
    pub loss: Option<Probability>,
}
