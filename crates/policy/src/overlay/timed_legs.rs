//! The round trips of legs between other nodes, from the times that nodes report when a session is opened.

use std::collections::BTreeMap;

use midspan_units::{Time, TimeSpan};

use super::NodeName;
use super::round_trip::RoundTripEstimate;

/// Most legs that are remembered.
const MOST_LEGS: usize = 4096;

/// What is known of the legs that begin at one node, by the node at the other end.
#[derive(Debug, Clone, Default)]
pub struct LegsOut {
    legs: BTreeMap<NodeName, RoundTripEstimate>,
    newest: Time,
}

/// Round trips by the nodes at the beginning and at the end of a leg.
#[derive(Debug, Clone, Default)]
pub struct TimedLegs {
    legs: BTreeMap<NodeName, LegsOut>,
    count: usize,
}

impl TimedLegs {
    /// A session needed this time to pass the leg and return. No leg is added if there are too many.
    pub fn note(&mut self, now: Time, (from, to): (NodeName, NodeName), time: TimeSpan) {
        let known = self.legs.get_mut(&from);
        if let Some(legs) = known
            && let Some(estimate) = legs.legs.get_mut(&to)
        {
            estimate.note(now, time);
            legs.newest = now;
        } else if self.count < MOST_LEGS {
            self.count += 1;
            let legs = self.legs.entry(from).or_default();
            legs.legs.entry(to).or_default().note(now, time);
            legs.newest = now;
        }
    }

    /// The legs that begin at this node.
    pub fn from(&self, node: &NodeName) -> Option<&LegsOut> {
        match node.uplink() {
            None => self.legs.get(node),
            Some(_) => self.legs.get(&node.node()),
        }
    }
}

impl LegsOut {
    /// The leg to this node.
    pub fn get(&self, to: &NodeName) -> Option<&RoundTripEstimate> {
        self.legs.get(to)
    }

    /// When the newest time of all these legs was noted.
    pub const fn newest(&self) -> Time {
        self.newest
    }
}
