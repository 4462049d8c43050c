//! The counters of the agent, for observers.

use std::net::SocketAddr;

use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// All flows together, since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Pure ACKs of known flows that were examined.
    pub acks_seen: u64,
    /// Examined ACKs that left.
    pub acks_sent: u64,
    /// Examined ACKs that a later ACK replaced.
    pub acks_saved: u64,
    /// Bytes of the examined ACKs, at the network layer.
    pub bytes_seen: u64,
    /// Bytes of the replaced ACKs.
    pub bytes_saved: u64,
    /// Other packets, which passed: data, SYN, FIN, RST.
    pub others: u64,
    /// Packets that passed because they could not be parsed.
    pub unreadable: u64,
    /// Packets that passed because there were too many flows.
    pub untracked: u64,
    /// ACKs that passed because too many were held.
    pub unheld: u64,
    /// Time-outs: ACKs that left because their maximum waiting time was over.
    pub timeouts: u64,
    /// Headers of arriving packets that were lost before they were read; they are only used to measure
    /// round trips.
    pub headers_lost: u64,
    /// Known flows.
    pub flows: u64,
    /// ACKs that are waiting.
    pub held: u64,
    /// Time since the start.
    pub running: TimeSpan,
    /// The flows with the most ACKs.
    pub busiest: Vec<FlowStatus>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The end on this host.
    pub local: SocketAddr,
    /// The other end, which sends the data.
    pub remote: SocketAddr,
    /// Examined ACKs.
    pub acks_seen: u64,
    /// Replaced ACKs.
    pub acks_saved: u64,
    /// `est_cwnd` in segments; 0 for policies without one.
    pub est_cwnd: u32,
    /// The current packets per ACK.
    pub ppa: u32,
    /// `rcv_RTT`, if it is known.
    pub rcv_rtt: Option<TimeSpan>,
}

impl Status {
    /// Most flows in [`busiest`](Self::busiest).
    pub const BUSIEST: usize = 20;

    /// The share of ACKs that was saved, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn saved_share(&self) -> f64 {
        self.acks_saved as f64 / self.acks_seen.max(1) as f64
    }
}
