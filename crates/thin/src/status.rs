//! What the agent has done, for those who watch.

use std::net::SocketAddr;

use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// All flows together, since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Pure ACKs of known flows that were judged.
    pub acks_seen: u64,
    /// Of them, those that left.
    pub acks_sent: u64,
    /// Of them, those that a later one made superfluous.
    pub acks_saved: u64,
    /// Bytes of those that were judged, at the network layer.
    pub bytes_seen: u64,
    /// Bytes of those that were saved.
    pub bytes_saved: u64,
    /// Packets that passed since they were something else: data, SYN, FIN, RST.
    pub others: u64,
    /// Packets that passed since they could not be read.
    pub unreadable: u64,
    /// Packets that passed since there were too many flows.
    pub untracked: u64,
    /// ACKs that passed since too many were held.
    pub unheld: u64,
    /// Time-outs: ACKs that left since their time had come.
    pub timeouts: u64,
    /// Headers that arrived and were lost before they were read; only round trips are measured
    /// with them.
    pub headers_lost: u64,
    /// Flows that are known.
    pub flows: u64,
    /// ACKs that wait.
    pub held: u64,
    /// Time since the start.
    pub running: TimeSpan,
    /// The flows with the most ACKs.
    pub busiest: Vec<FlowStatus>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// This side's end.
    pub local: SocketAddr,
    /// The far end, which sends the data.
    pub remote: SocketAddr,
    /// ACKs that were judged.
    pub acks_seen: u64,
    /// ACKs that were saved.
    pub acks_saved: u64,
    /// `est_cwnd` in segments; 0 for policies without one.
    pub est_cwnd: u32,
    /// Packets per ACK as it is now.
    pub ppa: u32,
    /// `rcv_RTT`, where it is known.
    pub rcv_rtt: Option<TimeSpan>,
}

impl Status {
    /// Most flows in [`busiest`](Self::busiest).
    pub const BUSIEST: usize = 20;

    /// The part of ACKs that was saved, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn saved_share(&self) -> f64 {
        self.acks_saved as f64 / self.acks_seen.max(1) as f64
    }
}
