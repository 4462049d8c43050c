//! What a simulation returns.

use midspan_link::{Counters, PolledCounters};
use midspan_units::{Time, TimeSpan};

use crate::tcp::{ReceiverCounters, SenderCounters};

/// What happened up to the end of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Results {
    /// Until when it ran.
    pub until: Time,
    /// Why it ended there.
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

/// What became of traffic without TCP, all its sources together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficResults {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
}

/// A connection was given up: too many time-outs in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp {
    /// When.
    pub at: Time,
    /// On which leg of the flow, from 0.
    pub leg: usize,
}

/// Why a simulation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The time that was asked for is over.
    TimeIsUp,
    /// Every flow has delivered all its data, or was given up or refused.
    Finished,
    /// Nothing will ever happen again, although data is left.
    Stalled,
    /// The scenario's limit of events was reached.
    EventLimit,
}

/// What happened to a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowResults {
    /// Bytes that arrived in order at the last receiver.
    pub delivered: u64,
    /// When the last byte of a flow of fixed size arrived, or the flow was stopped.
    pub finished: Option<Time>,
    /// When and where it was given up.
    pub gave_up: Option<GaveUp>,
    /// When its sender learnt that a proxy refuses it.
    pub refused: Option<Time>,
    /// Its legs, from the sender of the data to its receiver.
    pub legs: Vec<LegResults>,
}

/// What happened on a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegResults {
    /// What its sender did.
    pub sender: SenderCounters,
    /// What its receiver saw.
    pub receiver: ReceiverCounters,
    /// Bytes that were sent at least once.
    pub sent: u64,
    /// Bytes that the sender knows to have arrived.
    pub acknowledged: u64,
    /// Bytes that arrived in order.
    pub delivered: u64,
    /// The smoothed round-trip time at the end.
    pub round_trip_time: Option<TimeSpan>,
}

/// What passed through a link. What was handed to a link counts as delivered or lost at once,
/// although it may still have been on its way at the end; see `FixedLink` of the link crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkResults {
    /// From its first node to its second.
    pub up: Counters,
    /// From its second node to its first.
    pub down: Counters,
}
