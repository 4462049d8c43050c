//! Makes legs, relays and links from a scenario.

use std::collections::BTreeSet;
use std::sync::Arc;

use midspan_link::{Direction, PolledMedium, Stream, Streams};
use midspan_units::Time;

use super::application::{DialogueState, FlowState};
use super::background::TrafficSource;
use crate::network::{Directed, Medium, Network};
use crate::packet::PacketDirection;
use crate::proxy::{Buffers, Relay};
use crate::random::stream_for;
use crate::scenario::{self, Cable, Flow, LinkId, Routes, Scenario, ScenarioError, Traffic};
use crate::tcp::{Receiver, ReceiverConfiguration, Sender, Variant};

/// One TCP connection of a flow.
#[derive(Debug)]
pub(super) struct Leg {
    routes: Routes,
    pub(super) flow: u32,
    pub(super) header_size: u32,
    /// The relay that writes to its sender.
    pub(super) feeder: Option<u32>,
    /// The relay that reads from its receiver.
    pub(super) onward: Option<u32>,
    /// See `answers`.
    pub(super) joined: bool,
}

impl Leg {
    #[inline]
    pub(super) fn route(&self, direction: PacketDirection) -> &[u32] {
        match direction {
            PacketDirection::Forward => &self.routes[0],
            PacketDirection::Back => &self.routes[1],
        }
    }
}

/// The parts made from a scenario's flows.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) legs: Vec<Leg>,
    pub(super) senders: Vec<Sender>,
    pub(super) receivers: Vec<Receiver>,
    pub(super) relays: Vec<(u32, Relay)>,
    pub(super) flows: Vec<FlowState>,
    pub(super) dialogues: Vec<DialogueState>,
    pub(super) traffic: Vec<TrafficSource>,
    /// The distinct routes: many flows share a few of them, which then stay in the processor's
    /// cache.
    routes: BTreeSet<Arc<[u32]>>,
}

pub(super) fn build(scenario: &Scenario) -> Result<Parts, ScenarioError> {
    let mut parts = Parts::default();
    for flow in &scenario.flows {
        parts.add_flow(scenario, flow)?;
    }
    for (number, dialogue) in (0..).zip(&scenario.dialogues) {
        let state = DialogueState::new(number, dialogue, &mut parts.flows);
        parts.dialogues.push(state);
    }
    for (number, traffic) in (0..).zip(&scenario.traffic) {
        parts.add_traffic(scenario, traffic, number)?;
    }
    Ok(parts)
}

impl Parts {
    fn share(&mut self, routes: Routes) -> Routes {
        routes.map(|route| {
            if let Some(known) = self.routes.get(&route) {
                return Arc::clone(known);
            }
            self.routes.insert(Arc::clone(&route));
            route
        })
    }

    fn add_flow(&mut self, scenario: &Scenario, flow: &Flow) -> Result<(), ScenarioError> {
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
                    let relay = Relay::new(split.relay, &split.outbound, stream);
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
            let selective = sender.variant.is_selective();
            let receiver = Receiver::new(ReceiverConfiguration {
                // SACK is used if both ends offer it (RFC 2018 §2).
                selective: receiver.selective && selective,
                ..receiver
            });
            let window = receiver.initial_window();
            let mut sender_at_peer =
                Sender::new(sender, window).with_peer_window_scale(receiver.window_scale());
            if sender.variant == Variant::Bbr {
                sender_at_peer.track(gain_cycle(scenario.seed, &flow.name, position));
            }
            self.senders.push(sender_at_peer);
            self.receivers.push(receiver);
            let routes = self.share(routes);
            self.legs.push(Leg {
                routes,
                flow: index(self.flows.len())?,
                header_size: sender.header_size,
                feeder,
                onward,
                joined: false,
            });
            feeder = onward;
        }
        let flow = FlowState::new(flow, scenario.seed, first_leg, legs);
        self.flows.push(flow);
        Ok(())
    }

    fn add_traffic(
        &mut self,
        scenario: &Scenario,
        traffic: &Traffic,
        number: u32,
    ) -> Result<(), ScenarioError> {
        let connection = index(self.legs.len())?;
        let routes = scenario::route_of(scenario, &traffic.name, traffic.from, traffic.to)?;
        let sources = TrafficSource::of(scenario, traffic, number, connection);
        self.traffic.extend(sources);
        let leg = || Leg {
            routes: routes.clone(),
            flow: u32::MAX,
            header_size: 0,
            feeder: None,
            onward: None,
            joined: false,
        };
        self.legs
            .extend(std::iter::repeat_with(leg).take(traffic.sources as usize));
        Ok(())
    }
}

/// The stream that draws the phases of BBR on a leg of a flow, counted from 0.
pub(super) fn gain_cycle(seed: u64, flow: &str, leg: usize) -> Stream {
    stream_for(seed, "gain cycle", &format!("{flow}/{leg}"))
}

fn index(length: usize) -> Result<u32, ScenarioError> {
    u32::try_from(length).map_err(|_| ScenarioError::TooMany { count: length })
}

pub(super) fn network(
    scenario: &Scenario,
    legs: &[Leg],
    join: bool,
) -> Result<Network, ScenarioError> {
    let mut links = Vec::with_capacity(2 * scenario.links.len());
    let mut media: Vec<Medium> = Vec::new();
    let mut stations: Vec<Vec<_>> = scenario.cables.iter().map(|_| Vec::new()).collect();
    let mut places: Vec<Vec<u32>> = stations.iter().map(|_| Vec::new()).collect();
    for (number, link) in scenario.links.iter().enumerate() {
        let ends = [Direction::Up, Direction::Down];
        for (end, direction) in ends.into_iter().enumerate() {
            let configuration = &link.directions[end];
            let streams = Streams {
                seed: scenario.seed,
                link: &link.name,
                direction,
            };
            let of_cable = |cable: &Cable| cable.links.contains(&LinkId(number));
            let cable = scenario.cables.iter().position(of_cable);
            if let Some(cable) = cable.filter(|_| direction == Direction::Up) {
                let entrance = midspan_link::entrance(configuration, streams);
                links.push(Directed::shared(entrance, cable, stations[cable].len()));
                stations[cable].push(midspan_link::station(configuration, streams));
                places[cable].push(index(2 * number)?);
                continue;
            }
            let parts = midspan_link::build(configuration, streams);
            links.push(Directed::own(parts.map_err(|error| {
                ScenarioError::Link {
                    link: link.name.clone(),
                    error,
                }
            })?));
        }
    }
    for ((cable, stations), links) in scenario.cables.iter().zip(stations).zip(places) {
        media.push(Medium {
            medium: PolledMedium::new(cable.configuration, stations),
            links,
        });
    }
    let feeders = scenario::feeders(links.len(), legs.iter().map(|leg| &leg.routes));
    let end = Time::ZERO + scenario.duration;
    Ok(Network::new(links, media, &feeders, end, join))
}
