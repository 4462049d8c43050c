//! Active queue management: what decides which waiting packets are dropped early (RFC 7567).

use std::fmt;

use midspan_units::TimeSpan;

/// How a queue is managed actively: it drops packets before it is full, so that packets do not wait
/// long. It never marks packets instead (ECN, RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueManagement {
    /// The method.
    pub method: Management,
    /// The time that packets may wait for long: `TARGET` of RFC 8289.
    pub target: TimeSpan,
    /// How long packets may wait for more than the target: `INTERVAL` of RFC 8289, about the
    /// longest round trip of the flows.
    pub interval: TimeSpan,
    /// Bytes of the largest packet: `MAXPACKET` of RFC 8289. While at most this many bytes wait,
    /// nothing is dropped.
    pub largest_packet: u32,
}

impl QueueManagement {
    /// A method with the values of RFC 8289 and packets of 1,500 bytes.
    #[must_use]
    pub const fn new(method: Management) -> Self {
        Self {
            method,
            target: TimeSpan::from_milliseconds(5),
            interval: TimeSpan::from_milliseconds(100),
            largest_packet: 1500,
        }
    }
}

/// A method of active queue management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Management {
    /// CoDel (RFC 8289): one queue.
    CoDel,
    /// FlowQueue-CoDel (RFC 8290): a queue for each flow, served in turn, and CoDel in each.
    FqCoDel,
}

impl fmt::Display for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CoDel => "codel",
            Self::FqCoDel => "fq_codel",
        })
    }
}
