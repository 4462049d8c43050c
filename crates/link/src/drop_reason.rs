//! Why a link drops packets.

use std::fmt;

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The queue had no room for it.
    QueueFull,
    /// The queue had room, but packets had waited in it for too long; only in a queue that is
    /// managed actively.
    Early,
    /// It was sent, and lost during propagation.
    Lost,
    /// A fragment of a packet whose other fragments did not arrive in time; only in reassembly.
    Incomplete,
    /// Its frame collided too often; only on a shared medium.
    Contention,
    /// The far end restored its compressed header wrongly, because an earlier packet was lost; only
    /// with header compression.
    Damaged,
    /// A later ACK contains the same information; only in a queue that filters ACKs.
    Filtered,
    /// A fragment, or a packet larger than the MTU, on a link that drops fragments; or a packet
    /// larger than the MTU that cannot be cut.
    Refused,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "queue full",
            Self::Early => "early",
            Self::Lost => "lost",
            Self::Incomplete => "incomplete",
            Self::Contention => "contention",
            Self::Damaged => "damaged",
            Self::Filtered => "filtered",
            Self::Refused => "refused",
        })
    }
}
