//! From a scenario to legs, relays and links.

use midspan_link::Direction;
use midspan_units::Time;

use crate::network::{Directed, Network, NewLink};
use crate::packet::Way;
use crate::proxy::{Buffers, Relay};
use crate::random::stream_for;
use crate::scenario::{self, Flow, Scenario, ScenarioError, Source};
use crate::tcp::{Receiver, ReceiverConfiguration, Sender, Variant};

/// One TCP connection of a flow.
#[derive(Debug)]
pub(super) struct Leg {
    routes: [Box<[u32]>; 2],
    pub(super) flow: u32,
    pub(super) header_size: u32,
    /// The relay that writes to its sender.
    pub(super) feeder: Option<u32>,
    /// The relay that reads from its receiver.
    pub(super) onward: Option<u32>,
}

impl Leg {
    #[inline]
    pub(super) fn route(&self, way: Way) -> &[u32] {
        match way {
            Way::Forward => &self.routes[0],
            Way::Back => &self.routes[1],
        }
    }
}

#[derive(Debug)]
pub(super) struct FlowState {
    pub(super) start: Time,
    pub(super) stop: Option<Time>,
    pub(super) started: bool,
    /// `None` for a flow without end.
    pub(super) size: Option<u64>,
    pub(super) first_leg: u32,
    legs: u32,
    pub(super) finished: Option<Time>,
}

impl FlowState {
    pub(super) fn legs(&self) -> impl Iterator<Item = usize> {
        let first = self.first_leg as usize;
        first..first + self.legs as usize
    }

    pub(super) fn leg(&self, leg: usize) -> Option<usize> {
        self.legs().nth(leg)
    }
}

/// What a scenario's flows are made into.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) legs: Vec<Leg>,
    pub(super) senders: Vec<Sender>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) relays: Vec<(u32, Relay)>,
    pub(super) flows: Vec<FlowState>,
}

pub(super) fn build(scenario: &Scenario) -> Result<Parts, ScenarioError> {
    let mut parts = Parts::default();
    for flow in &scenario.flows {
        parts.add_flow(scenario, flow)?;
    }
    Ok(parts)
}

impl Parts {
    fn add_flow(&mut self, scenario: &Scenario, flow: &Flow) -> Result<(), ScenarioError> {
        let index = |length: usize| {
            u32::try_from(length).map_err(|_| ScenarioError::TooMany { count: length })
        };
        let first_leg = index(self.legs.len())?;
        let routes = scenario::routes(scenario, flow)?;
        let legs = index(routes.len())?;
        let mut feeder = None;
        for (position, routes) in routes.into_iter().enumerate() {
            let sender = match position.checked_sub(1) {
                Some(before) => flow.splits[before].outbound,
                None => flow.sender,
            };
            let mut onward = None;
            let receiver = match flow.splits.get(position) {
                Some(split) => {
                    onward = Some(index(self.relays.len())?);
                    let place = format!("{}/{position}", flow.name);
                    let stream = stream_for(scenario.seed, "service", &place);
                    let relay = Relay::new(split.relay, stream);
                    self.relays.push((index(self.legs.len())?, relay));
                    match split.relay.buffers {
                        Buffers::Granted { size } => ReceiverConfiguration {
                            buffer: size,
                            ..split.inbound
                        },
                        Buffers::Separate { .. } => split.inbound,
                    }
                }
                None => flow.receiver,
            };
            let selective = matches!(sender.variant, Variant::Sack | Variant::Cubic);
            self.senders.push(Sender::new(sender, receiver.buffer));
            self.receivers.push(Receiver::new(ReceiverConfiguration {
                // SACK is used where both ends offer it (RFC 2018 §2).
                selective: receiver.selective && selective,
                ..receiver
            }));
            self.legs.push(Leg {
                routes,
                flow: index(self.flows.len())?,
                header_size: sender.header_size,
                feeder,
                onward,
            });
            feeder = onward;
        }
        self.flows.push(FlowState {
            start: Time::ZERO + flow.start,
            stop: flow.stop.map(|stop| Time::ZERO + (flow.start + stop)),
            started: false,
            size: match flow.source {
                Source::Bulk => None,
                Source::Fixed(size) => Some(size.bytes()),
            },
            first_leg,
            legs,
            finished: None,
        });
        Ok(())
    }
}

pub(super) fn network(
    scenario: &Scenario,
    legs: &[Leg],
    join: bool,
) -> Result<Network, ScenarioError> {
    let mut links = Vec::with_capacity(2 * scenario.links.len());
    for link in &scenario.links {
        let ends = [Direction::Up, Direction::Down];
        for (index, direction) in ends.into_iter().enumerate() {
            let directed = Directed::new(NewLink {
                seed: scenario.seed,
                name: &link.name,
                direction,
                configuration: &link.directions[index],
                loss: &link.loss[index],
            });
            links.push(directed.map_err(|error| ScenarioError::Schedule {
                link: link.name.clone(),
                error,
            })?);
        }
    }
    let feeders = scenario::feeders(links.len(), legs.iter().map(|leg| &leg.routes));
    let end = Time::ZERO + scenario.duration;
    Ok(Network::new(links, &feeders, end, join))
}
