//! Bursts on the wired leg, and the forward data that make them.

use midspan_link::DropReason;
use midspan_sim::trace::{BurstWatch, Histogram};
use midspan_sim::{LinkId, Observer, Packet, Scenario, ScenarioError};
use midspan_units::{Time, TimeSpan};

use super::NARROW;

/// After this time, the first slow start is over.
const START: TimeSpan = TimeSpan::from_seconds(10);
/// The legs to the proxy and from the proxy.
const WIRELESS: usize = 0;
const WIRED: usize = 1;

/// Watches a run after its first slow start.
#[derive(Debug)]
pub(super) struct Watch {
    bursts: BurstWatch,
    late_drops: u64,
}

/// The results of all runs of a setting.
#[derive(Debug, Clone, Default)]
pub(super) struct Bursts {
    /// Lengths of bursts on the wired leg, in packets.
    pub(super) lengths: Histogram,
    /// Sizes of forward data, in segments.
    pub(super) forward: Histogram,
    /// Packets that found the queue of n2 full after the first slow start.
    pub(super) late_drops: u64,
}

impl Watch {
    pub(super) fn new(scenario: &Scenario) -> Result<Self, ScenarioError> {
        Ok(Self {
            bursts: BurstWatch::new(scenario, START)?,
            late_drops: 0,
        })
    }
}

impl Observer for Watch {
    fn sent(&mut self, now: Time, packet: &Packet) {
        self.bursts.sent(now, packet);
    }

    fn dropped(&mut self, at: Time, link: LinkId, up: bool, _: &Packet, reason: DropReason) {
        let late = at.since(Time::ZERO) >= START;
        if late && up && link == NARROW && reason == DropReason::QueueFull {
            self.late_drops += 1;
        }
    }

    fn forwarded(&mut self, now: Time, connection: u32, bytes: u64) {
        self.bursts.forwarded(now, connection, bytes);
    }
}

impl Bursts {
    /// Adds the results of a run.
    pub(super) fn add(&mut self, mut watch: Watch) {
        if let Some(lengths) = watch.bursts.bursts(WIRED) {
            self.lengths.merge(lengths);
        }
        if let Some(forward) = watch.bursts.forward_data(WIRELESS) {
            self.forward.merge(forward);
        }
        self.late_drops += watch.late_drops;
    }
}
