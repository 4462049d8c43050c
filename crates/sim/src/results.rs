//! The results of a simulation.

use midspan_link::{Counters, PolledCounters};
use midspan_units::{Time, TimeSpan};

use crate::tcp::{ReceiverCounters, SenderCounters};

/// The results up to the end of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    /// The time at which it ended.
    pub until: Time,
    /// The reason for which it ended then.
    pub stop: StopReason,
    /// Events that were handled.
    pub events: u64,
    /// In the order of the scenario.
    pub flows: Vec<FlowResults>,
    /// In the order of the scenario.
    pub links: Vec<LinkResults>,
    /// Traffic without TCP, in the order of the scenario.
    pub traffic: Vec<TrafficResults>,
    /// Upstream channels of cable networks, in the order of the scenario.
    pub cables: Vec<PolledCounters>,
}

/// The counters of one traffic without TCP, over all its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficResults {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
}

/// A connection was given up, after too many time-outs in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp {
    /// The time.
    pub at: Time,
    /// The leg of the flow, counted from 0.
    pub leg: usize,
}

/// Why a simulation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The configured duration is over.
    TimeIsUp,
    /// Every flow has delivered all its data, or was given up or refused.
    Finished,
    /// There will be no further event, although data is left.
    Stalled,
    /// The scenario's limit of events was reached.
    EventLimit,
}

/// The results of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowResults {
    /// Bytes that arrived in order at the last receiver.
    pub delivered: u64,
    /// When the last byte of a flow of fixed size arrived, or the flow was stopped.
    pub finished: Option<Time>,
    /// When and on which leg the flow was given up.
    pub gave_up: Option<GaveUp>,
    /// When the flow's sender got a proxy's refusal.
    pub refused: Option<Time>,
    /// Whether it has not begun, because its session has taken another overlay route.
    pub unused: bool,
    /// Its legs, from the sender of the data to its receiver.
    pub legs: Vec<LegResults>,
}

/// The results of a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegResults {
    /// The sender's counters.
    pub sender: SenderCounters,
    /// The receiver's counters.
    pub receiver: ReceiverCounters,
    /// Bytes that were sent at least once.
    pub sent: u64,
    /// Bytes that were acknowledged to the sender.
    pub acknowledged: u64,
    /// Bytes that arrived in order.
    pub delivered: u64,
    /// The smoothed round-trip time at the end.
    pub round_trip_time: Option<TimeSpan>,
}

/// The counters of a link. A packet counts as delivered or lost as soon as it is handed to the
/// link, although it may still have been in transit at the end; see `FixedLink` of the link crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkResults {
    /// From its first node to its second.
    pub up: Counters,
    /// From its second node to its first.
    pub down: Counters,
}
