//! Whether a scenario can be simulated.

mod links;
mod sources;

use std::collections::BTreeSet;

use midspan_link::LEAST_MTU;

use crate::proxy::{Buffers, RelayConfiguration};
use crate::scenario::{Flow, NodeId, Scenario, ScenarioError};
use crate::tcp::{AckRule, ByteCounting, ReceiverConfiguration, SenderConfiguration};

pub(super) fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    let mut names = BTreeSet::new();
    for link in &scenario.links {
        check_nodes(scenario, &format!("link \"{}\"", link.name), &link.between)?;
        if !names.insert(&link.name) {
            return Err(ScenarioError::SameName {
                name: link.name.clone(),
            });
        }
        for mtu in link.directions.iter().filter_map(|end| end.mtu) {
            if mtu < LEAST_MTU {
                return Err(ScenarioError::Setting {
                    place: format!("link \"{}\"", link.name),
                    setting: "the MTU",
                    problem: format!("is {mtu}; it must be at least {LEAST_MTU}"),
                });
            }
        }
    }
    for link in &scenario.links {
        links::check_queues(link)?;
    }
    for cable in &scenario.cables {
        links::check_cable(scenario, cable)?;
    }
    for flow in &scenario.flows {
        check_flow(scenario, flow)?;
    }
    for traffic in &scenario.traffic {
        sources::check_traffic(scenario, traffic)?;
    }
    for dialogue in &scenario.dialogues {
        sources::check_dialogue(scenario, dialogue)?;
    }
    Ok(())
}

fn check_nodes(scenario: &Scenario, place: &str, nodes: &[NodeId]) -> Result<(), ScenarioError> {
    let count = scenario.nodes.len();
    match nodes.iter().find(|node| node.0 >= count) {
        None => Ok(()),
        Some(node) => Err(ScenarioError::UnknownNode {
            place: place.to_owned(),
            node: node.0,
            count,
        }),
    }
}

fn check_flow(scenario: &Scenario, flow: &Flow) -> Result<(), ScenarioError> {
    let mut nodes = vec![flow.from, flow.to];
    nodes.extend(flow.splits.iter().map(|split| split.node));
    check_nodes(scenario, &format!("flow \"{}\"", flow.name), &nodes)?;
    sources::check_source(flow)?;
    let last = flow.splits.len() + 1;
    Leg(flow, 1).check_sender(&flow.sender)?;
    for (leg, split) in (1..).zip(&flow.splits) {
        Leg(flow, leg).check_receiver(&split.inbound)?;
        Leg(flow, leg).check_relay(&split.relay, &split.inbound)?;
        Leg(flow, leg + 1).check_sender(&split.outbound)?;
    }
    Leg(flow, last).check_receiver(&flow.receiver)
}

/// A leg of a flow, counted from 1.
struct Leg<'a>(&'a Flow, usize);

impl Leg<'_> {
    fn at_least(&self, setting: &'static str, value: u64, least: u64) -> Result<(), ScenarioError> {
        if value >= least {
            return Ok(());
        }
        Err(ScenarioError::TooSmall {
            flow: self.0.name.clone(),
            leg: self.1,
            setting,
            value,
            least,
        })
    }

    fn check_sender(&self, sender: &SenderConfiguration) -> Result<(), ScenarioError> {
        let segment = u64::from(sender.segment_size);
        self.at_least("the segment size", segment, 1)?;
        if let Some(ceiling) = sender.segment_ceiling {
            self.at_least("the segment ceiling", u64::from(ceiling), 1)?;
        }
        if sender.window_scale.is_some_and(|scale| scale > 14) {
            return Err(ScenarioError::Setting {
                place: format!("flow \"{}\", leg {}", self.0.name, self.1),
                setting: "the window scale",
                problem: "must be at most 14 (RFC 7323)".to_owned(),
            });
        }
        self.at_least("the initial window", u64::from(sender.initial_window), 1)?;
        self.at_least("the window limit", sender.window_limit, segment)?;
        if let ByteCounting::Limit(segments) = sender.byte_counting {
            self.at_least("the limit of byte counting", u64::from(segments), 1)?;
        }
        let minimum = sender.minimum_timeout.nanoseconds();
        self.at_least(
            "the initial time-out (ns)",
            sender.initial_timeout.nanoseconds(),
            1,
        )?;
        self.at_least("the minimum time-out (ns)", minimum, 1)?;
        let maximum = sender.maximum_timeout.nanoseconds();
        self.at_least("the maximum time-out (ns)", maximum, minimum)
    }

    fn check_receiver(&self, receiver: &ReceiverConfiguration) -> Result<(), ScenarioError> {
        let segment = u64::from(receiver.segment_size);
        self.at_least("the receive buffer", receiver.buffer, segment.max(1))?;
        if let AckRule::Delayed { segments, .. } | AckRule::DelayedAndThinned { segments, .. } =
            receiver.acknowledge
        {
            self.at_least("the segments for each ACK", u64::from(segments), 1)?;
        }
        Ok(())
    }

    fn check_relay(
        &self,
        relay: &RelayConfiguration,
        inbound: &ReceiverConfiguration,
    ) -> Result<(), ScenarioError> {
        let segment = u64::from(inbound.segment_size).max(1);
        match relay.buffers {
            Buffers::Separate { send } => self.at_least("the send buffer", send, segment),
            Buffers::Granted { size } => self.at_least("the granted buffer", size, segment),
        }
    }
}
