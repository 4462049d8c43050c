//! The properties of one direction of a link, and how they change over time.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

/// One direction of a link.
///
/// A packet that arrives waits in the queue, is sent at the rate, may be lost during propagation,
/// and arrives at the far end after the delay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    /// The properties at the start.
    pub state: State,
    /// Room for waiting packets; the packet in transmission is not counted.
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
    /// Probability that a packet is lost; independent for each packet.
    pub loss: Probability,
}

/// Room for waiting packets. A packet for which there is no room is dropped (drop-tail).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// This number of packets, whatever their size.
    Packets(u32),
    /// This number of bytes, overhead not counted.
    Bytes(ByteSize),
}

impl Default for QueueLimit {
    /// 1,000 packets, the default of Linux devices.
    fn default() -> Self {
        Self::Packets(1000)
    }
}

/// How a direction changes over time, for example by hand-overs or fading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The changes, in order of time.
    pub steps: Vec<Step>,
    /// Start again from the first step after this time; it must be later than the last step.
    pub repeat: Option<TimeSpan>,
}

/// One change. `None`: no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The time since the start of the run (or of the repetition).
    pub at: TimeSpan,
    /// The new rate.
    pub rate: Option<BitRate>,
    /// The new propagation delay. Packets never overtake each other.
    pub delay: Option<TimeSpan>,
    /// The new probability of loss.
    pub loss: Option<Probability>,
}
