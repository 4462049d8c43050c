//! The properties of one direction of a link, and how they change over time.

use midspan_units::{BitRate, Probability, TimeSpan};

use crate::ack_queue::QueueDiscipline;
use crate::loss_process::LossPattern;
use crate::queue::QueueLimit;

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
    /// Which packets are lost.
    pub losses: LossPattern,
    /// How the queue treats pure ACKs; any other than the plain one needs a limit in packets.
    pub queue_discipline: QueueDiscipline,
    /// Largest packet that passes whole, in bytes (at least [`LEAST_MTU`](crate::LEAST_MTU));
    /// larger ones pass in fragments. `None`: packets of any size pass whole.
    pub mtu: Option<u32>,
    /// Whether IP fragments are dropped, as by routers and firewalls that inspect transport
    /// headers.
    pub drops_fragments: bool,
    /// Whether TCP/IP headers are compressed (RFC 1144); this needs a plain queue and no schedule.
    pub header_compression: bool,
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
