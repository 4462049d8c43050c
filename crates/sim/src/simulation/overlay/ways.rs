//! The links between overlay nodes, and between these and servers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use midspan_link::Configuration;
use midspan_units::{Probability, Time, TimeSpan};

use crate::scenario::{ChosenSessions, NodeId, Scenario, ScenarioError, route_of};

/// The links from one node to another and back.
#[derive(Debug)]
pub(super) struct Way {
    links: Vec<Configuration>,
    pub(super) next_exchange: Time,
}

impl Way {
    pub(super) fn new(
        scenario: &Scenario,
        from: NodeId,
        to: NodeId,
    ) -> Result<Self, ScenarioError> {
        let places = route_of(scenario, "", from, to)?;
        let configuration = |place: &u32| {
            let link = scenario.links.get(*place as usize / 2)?;
            Some(link.directions[*place as usize % 2].clone())
        };
        Ok(Self {
            links: (places.iter().flat_map(|route| route.iter()))
                .filter_map(configuration)
                .collect(),
            next_exchange: Time::ZERO,
        })
    }

    /// The time of an empty packet there and back, without queues; `None` while nothing passes a link.
    pub(super) fn round_trip(&self, now: Time) -> Option<TimeSpan> {
        let time = now.since(Time::ZERO);
        self.links.iter().try_fold(TimeSpan::ZERO, |sum, link| {
            let state = link.schedule.state_at(link.state, time);
            (state.loss < Probability::ONE).then(|| sum + state.delay)
        })
    }
}

pub(super) fn ways(
    scenario: &Scenario,
    overlay: &ChosenSessions,
) -> Result<BTreeMap<(NodeId, NodeId), Way>, ScenarioError> {
    let nodes = || overlay.nodes.iter().map(|node| node.node);
    let servers = overlay.sessions.iter().map(|session| session.server);
    let ends: Vec<NodeId> = nodes().chain(servers).collect();
    let mut ways = BTreeMap::new();
    for from in nodes() {
        for to in ends.iter().filter(|to| **to != from) {
            if let Entry::Vacant(way) = ways.entry((from, *to)) {
                way.insert(Way::new(scenario, from, *to)?);
            }
        }
    }
    Ok(ways)
}
