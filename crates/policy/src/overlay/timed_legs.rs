//! The round trips of legs between other nodes, from the times that nodes report when a session is opened.

use std::collections::BTreeMap;

use midspan_units::{Time, TimeSpan};

use super::NodeName;
use super::round_trip::RoundTripEstimate;

/// Most legs that are remembered.
const MOST_LEGS: usize = 4096;

/// What is known of the legs that begin at one node, by the node at the other end.
pub type LegsOut = BTreeMap<NodeName, RoundTripEstimate>;

/// Round trips by the nodes at the beginning and at the end of a leg.
#[derive(Debug, Clone, Default)]
pub struct TimedLegs {
    legs: BTreeMap<NodeName, LegsOut>,
    count: usize,
}

impl TimedLegs {
    /// A session needed this time to pass the leg and return. No leg is added if there are too many.
    pub fn note(&mut self, now: Time, (from, to): (NodeName, NodeName), time: TimeSpan) {
        let known = self.legs.get_mut(&from).and_then(|legs| legs.get_mut(&to));
        if let Some(estimate) = known {
            estimate.note(now, time);
        } else if self.count < MOST_LEGS {
            self.count += 1;
            let legs = self.legs.entry(from).or_default();
            legs.entry(to).or_default().note(now, time);
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
