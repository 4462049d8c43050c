//! The choice of overlay routes, and what the overlay nodes measure.
//!
//! A session has flows for each route. When it begins, the policy of its ingress chooses one, and the flows of
//! the others are unused. What the nodes know comes from the senders of hops, once a second and at the end,
//! and from exchanges between the nodes. Exchanges are not packets: their round trip is that of the links at
//! this time.

mod ways;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use midspan_policy::overlay::{
    CallFailure, ChoiceSettings, ChosenRoutes, Congestion, KnownOverlay, Left, LegReading, Node,
    NodeName, OperatorRoute, Overlay, Route, RouteBy, RouteDecision, RouteDestination, RoutePolicy,
    Wanted, WantedHost,
};
use midspan_policy::prefix::site_prefix;
use midspan_policy::{LegSample, Network};
use midspan_units::{ByteSize, Probability, Time, TimeSpan};

use super::Simulation;
use super::application::FlowState;
use crate::observer::Observer;
use crate::scenario::{
    ChoosingNode, ChosenSession, ChosenSessions, NodeId, OverlayKnowledge, Scenario, ScenarioError,
};
use crate::tcp::Variant;
use ways::{Way, ways};

/// How often sessions are read, and how often exchanges can become due.
const TICK: TimeSpan = TimeSpan::from_seconds(1);
/// The exchanges before a simulation: their number and interval, so that no node is on probation.
const BEFORE: (u64, TimeSpan) = (5, TimeSpan::from_seconds(10));
/// The time between a simulation and the next one that begins with its knowledge.
const PAUSE: TimeSpan = TimeSpan::from_seconds(5);
/// How long a transit node waits for the next node.
const TRANSIT_LIMIT: TimeSpan = TimeSpan::from_milliseconds(4500);
/// A client whose session no route carries tries again after this time.
const AGAIN: TimeSpan = TimeSpan::from_seconds(1);
/// Where the nodes accept hops, and the port of the servers.
const HOP_PORT: u16 = 7704;
const SERVER_PORT: u16 = 80;

/// The overlay nodes and the sessions for which they choose.
#[derive(Debug)]
pub(super) struct OverlayState {
    members: BTreeMap<NodeId, Member>,
    /// Between overlay nodes, and from these to servers.
    ways: BTreeMap<(NodeId, NodeId), Way>,
    /// The nodes' clock at the start of the simulation.
    ahead: TimeSpan,
    sessions: Vec<SessionState>,
    next_tick: Time,
    /// Segments sent, and sent again, at the newest reading of each leg.
    read: BTreeMap<usize, (u32, u32)>,
}

#[derive(Debug)]
struct Member {
    name: NodeName,
    choice: ChosenRoutes,
    known: KnownOverlay,
}

#[derive(Debug)]
struct SessionState {
    client: NodeId,
    server: NodeId,
    alternatives: Vec<AlternativeState>,
    phase: Phase,
    /// The routes that have failed.
    tried: Vec<Route>,
    /// The failure that shows at the next decision.
    failure: Option<(Route, CallFailure)>,
}

#[derive(Debug)]
struct AlternativeState {
    /// The overlay nodes, the ingress first.
    stops: Vec<NodeId>,
    flows: Vec<PartOfSession>,
}

/// A flow of a session.
#[derive(Debug)]
struct PartOfSession {
    flow: u32,
    /// Whether it begins by itself, and not when requests arrive.
    begins: bool,
    /// The nodes at the ends of its legs.
    nodes: Vec<NodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A route is chosen at this time.
    Waits(Time),
    /// It has taken this alternative at this time.
    Runs(usize, Time),
    Ended,
}

/// The address of a node.
fn address(node: NodeId) -> IpAddr {
    let node = u16::try_from(node.0).unwrap_or(u16::MAX);
    Ipv6Addr::new(0x2001, 0xdb8, 0, node, 0, 0, 0, 1).into()
}

/// The overlay as this node sees it. As in the lab, sessions leave at the exits, and all of them are those
/// of the overlay.
fn overlay_of(own: &ChoosingNode, nodes: &[ChoosingNode]) -> Overlay {
    let all = Network {
        address: Ipv6Addr::UNSPECIFIED.into(),
        length: 0,
    };
    let others = nodes
        .iter()
        .filter(|node| node.exit && node.node != own.node);
    let exits: Vec<NodeName> = others.map(|exit| exit.name.clone()).collect();
    let route = (!exits.is_empty()).then(|| OperatorRoute {
        destinations: vec![RouteDestination::All],
        by: RouteBy::Exits {
            exits,
            or_here: false,
        },
    });
    let nodes = nodes.iter().map(|node| Node {
        transit: node.transit,
        serves: match node.exit {
            true => vec![all],
            false => Vec::new(),
        },
        ..Node::new(
            node.name.clone(),
            Some(SocketAddr::new(address(node.node), HOP_PORT)),
        )
    });
    Overlay {
        routes: route.into_iter().collect(),
        choice: ChoiceSettings {
            exchange: true,
            control: Probability::ZERO,
            ..ChoiceSettings::default()
        },
        ..Overlay::new(own.name.clone(), nodes.collect())
    }
}

impl OverlayState {
    /// The overlay of a scenario; `None` if it has none. Its flows begin when their route is chosen.
    pub(super) fn of(
        scenario: &Scenario,
        flows: &mut [FlowState],
    ) -> Result<Option<Self>, ScenarioError> {
        let Some(overlay) = &scenario.overlay else {
            return Ok(None);
        };
        let mut state = Self {
            members: members(overlay, scenario.seed),
            ways: ways(scenario, overlay)?,
            ahead: TimeSpan::ZERO,
            sessions: (overlay.sessions.iter())
                .map(|session| session_state(scenario, session, flows))
                .collect(),
            next_tick: Time::ZERO,
            read: BTreeMap::new(),
        };
        match &overlay.knowledge {
            Some(knowledge) => state.begin_with(knowledge),
            None => state.exchange_before(),
        }
        Ok(Some(state))
    }

    /// Begins with what another simulation has left.
    fn begin_with(&mut self, knowledge: &OverlayKnowledge) {
        for (node, known) in &knowledge.known {
            if let Some(member) = self.members.get_mut(node) {
                member.known = known.clone();
            }
        }
        self.ahead = knowledge.clock.since(Time::ZERO) + PAUSE;
    }

    /// Exchanges with the links as they are at the start.
    fn exchange_before(&mut self) {
        let (count, interval) = BEFORE;
        let pairs: Vec<(NodeId, NodeId)> = self.ways.keys().copied().collect();
        for round in 0..count {
            for (from, to) in &pairs {
                self.exchange(Time::ZERO, Time::ZERO + interval * round, *from, *to);
            }
        }
        self.ahead = interval * count;
    }

    /// What the nodes know at this time.
    fn knowledge(&self, now: Time) -> OverlayKnowledge {
        let members = self.members.iter();
        OverlayKnowledge {
            known: members
                .map(|(node, member)| (*node, member.known.clone()))
                .collect(),
            clock: now + self.ahead,
        }
    }

    /// One node requests the row of another one, if both are overlay nodes. `clock` is the time of the nodes.
    fn exchange(&mut self, now: Time, clock: Time, from: NodeId, to: NodeId) {
        let round_trip = self
            .ways
            .get(&(from, to))
            .and_then(|way| way.round_trip(now));
        let Some(round_trip) = round_trip else {
            return;
        };
        let Some(other) = self.members.get(&to) else {
            return;
        };
        let (name, row) = (other.name.clone(), other.known.own_row(clock));
        if let Some(member) = self.members.get_mut(&from) {
            member.known.note_row(clock, &name, round_trip, row);
        }
    }

    /// The exchanges that are due.
    fn exchange_due(&mut self, now: Time) {
        let clock = now + self.ahead;
        let due = self.ways.iter().filter(|(_, way)| way.next_exchange <= now);
        let due: Vec<(NodeId, NodeId)> = due.map(|(pair, _)| *pair).collect();
        for (from, to) in due {
            self.exchange(now, clock, from, to);
            let other = self.members.get(&to).map(|other| &other.name);
            let interval = (self.members.get(&from).zip(other))
                .map_or(TICK, |(member, name)| member.known.interval(clock, name));
            if let Some(way) = self.ways.get_mut(&(from, to)) {
                way.next_exchange = now + interval;
            }
        }
    }

    /// When something is due; `None` if all sessions have ended.
    fn next(&self) -> Option<Time> {
        let is_over = |session: &SessionState| session.phase == Phase::Ended;
        if self.sessions.iter().all(is_over) {
            return None;
        }
        let waiting = self
            .sessions
            .iter()
            .filter_map(|session| match session.phase {
                Phase::Waits(at) => Some(at),
                Phase::Runs(..) | Phase::Ended => None,
            });
        waiting.chain([self.next_tick]).min()
    }

    /// Lets the ingress choose the route of a session. Returns the number of the alternative; `None` if the
    /// route fails, so that another one is chosen later.
    fn choose(&mut self, now: Time, session: usize) -> Option<usize> {
        let clock = now + self.ahead;
        let Self {
            members,
            ways,
            sessions,
            ..
        } = self;
        let session = sessions.get_mut(session)?;
        let ingress = *session.alternatives.first()?.stops.first()?;
        let ids: BTreeMap<NodeName, NodeId> = members
            .iter()
            .map(|(id, member)| (member.name.clone(), *id))
            .collect();
        let member = members.get_mut(&ingress)?;
        let own = member.name.clone();
        if let Some((route, failure)) = session.failure.take() {
            member.known.note_failed(clock, &own, &route, &failure);
        }
        let server = address(session.server);
        let wanted = Wanted {
            client: address(session.client),
            host: WantedHost::Address(server),
            port: SERVER_PORT,
            tried: &session.tried,
        };
        let decision = member.choice.route(clock, &wanted, &mut member.known);
        let site = site_prefix(server);
        let round_trip = |from: NodeId, to: NodeId| {
            let way = ways.get(&(from, to));
            way.and_then(|way| way.round_trip(now))
        };
        let route = match decision {
            RouteDecision::Through(route) => route,
            RouteDecision::Nowhere => {
                session.tried.clear();
                session.phase = Phase::Waits(now + AGAIN);
                return None;
            }
            RouteDecision::Here | RouteDecision::ByAddress => {
                if let Some(time) = round_trip(ingress, session.server) {
                    member.known.note_opened_here(clock, site, time);
                }
                session.phase = Phase::Runs(0, now);
                return Some(0);
            }
        };
        let after = route
            .nodes()
            .iter()
            .filter_map(|name| ids.get(name).copied());
        let stops: Vec<NodeId> = std::iter::once(ingress).chain(after).collect();
        let hops = stops.windows(2).zip(route.hops(&own));
        for (place, (pair, (from, to))) in hops.enumerate() {
            if round_trip(pair[0], pair[1]).is_none() {
                let (wait, node) = match place {
                    0 => (member.known.connect_limit(clock, to), None),
                    _ => (TRANSIT_LIMIT, Some(from.clone())),
                };
                let failure = CallFailure {
                    node,
                    is_busy: false,
                };
                session.failure = Some((route.clone(), failure));
                session.tried.push(route.clone());
                session.phase = Phase::Waits(now + wait);
                return None;
            }
        }
        let connected = stops
            .iter()
            .skip(1)
            .zip(stops.iter().skip(2).copied().chain([session.server]));
        let times: Vec<(NodeName, TimeSpan)> = (connected.zip(route.nodes()))
            .filter_map(|((from, to), name)| Some((name.clone(), round_trip(*from, to)?)))
            .collect();
        let first = stops.get(1).and_then(|next| round_trip(ingress, *next));
        let opened = (&route, Some(site));
        let handshake = first.unwrap_or_default();
        member
            .known
            .note_opened(clock, &own, opened, handshake, &times);
        let mut alternatives = session.alternatives.iter();
        let chosen = alternatives.position(|one| one.stops == stops).unwrap_or(0);
        session.phase = Phase::Runs(chosen, now);
        Some(chosen)
    }

    /// A sender of a hop has measured this.
    fn note_reading(
        &mut self,
        now: Time,
        pair: [NodeId; 2],
        leg: usize,
        read: (LegSample, Variant),
    ) {
        let clock = now + self.ahead;
        let Some(name) = self.members.get(&pair[1]).map(|member| member.name.clone()) else {
            return;
        };
        let (sample, variant) = read;
        let before = self.read.entry(leg).or_default();
        let sent = sample.segments_sent.saturating_sub(before.0);
        let lost = sample.segments_retransmitted.saturating_sub(before.1);
        *before = (sample.segments_sent, sample.segments_retransmitted);
        if sent == 0 {
            return;
        }
        let reading = LegReading {
            round_trip: sample.round_trip_time,
            least_round_trip: sample.minimum_round_trip_time,
            sent: sent.into(),
            lost: lost.into(),
            rate: sample.delivery_rate,
            // The relay has given it no more data.
            is_application_limited: sample.not_sent == ByteSize::default(),
            congestion: match variant {
                Variant::Bbr => Congestion::Bbr,
                Variant::Cubic => Congestion::Cubic,
                Variant::Tahoe | Variant::Reno | Variant::NewReno | Variant::Sack => {
                    Congestion::Reno
                }
            },
        };
        if let Some(member) = self.members.get_mut(&pair[0]) {
            member.known.note_reading(clock, &name, &reading);
        }
    }

    /// A session has ended after it has carried these bytes.
    fn note_ended(&mut self, now: Time, session: usize, carried: (ByteSize, TimeSpan)) {
        let clock = now + self.ahead;
        let Some(session) = self.sessions.get_mut(session) else {
            return;
        };
        let Phase::Runs(chosen, _) = session.phase else {
            return;
        };
        session.phase = Phase::Ended;
        let left = match chosen {
            0 => Left::Here,
            _ => Left::Overlay,
        };
        let ingress = session
            .alternatives
            .first()
            .and_then(|one| one.stops.first());
        let site = site_prefix(address(session.server));
        if let Some(member) = ingress.and_then(|ingress| self.members.get_mut(ingress)) {
            member.known.note_ended(clock, site, left, carried);
        }
    }
}

fn members(overlay: &ChosenSessions, seed: u64) -> BTreeMap<NodeId, Member> {
    let member = |own: &ChoosingNode| {
        let member = Member {
            name: own.name.clone(),
            choice: ChosenRoutes::new(overlay_of(own, &overlay.nodes)),
            known: KnownOverlay::new(seed),
        };
        (own.node, member)
    };
    overlay.nodes.iter().map(member).collect()
}

fn session_state(
    scenario: &Scenario,
    session: &ChosenSession,
    flows: &mut [FlowState],
) -> SessionState {
    let mut part = |id: usize| {
        let flow = scenario.flows.get(id)?;
        let begins = flows.get_mut(id)?.next_write.take().is_some();
        let splits = flow.splits.iter().map(|split| split.node);
        Some(PartOfSession {
            flow: u32::try_from(id).ok()?,
            begins,
            nodes: std::iter::once(flow.from)
                .chain(splits)
                .chain([flow.to])
                .collect(),
        })
    };
    let alternatives = session.alternatives.iter().map(|one| AlternativeState {
        stops: one.stops.clone(),
        flows: one.flows.iter().filter_map(|flow| part(flow.0)).collect(),
    });
    SessionState {
        client: session.client,
        server: session.server,
        alternatives: alternatives.collect(),
        phase: Phase::Waits(Time::ZERO + session.start),
        tried: Vec::new(),
        failure: None,
    }
}

impl<O: Observer> Simulation<O> {
    /// What the overlay nodes know of each other at this time, after a last reading of their senders;
    /// `None` if they choose no routes.
    pub fn overlay_knowledge(&mut self) -> Option<OverlayKnowledge> {
        let mut overlay = self.overlay.take()?;
        self.read_sessions(&mut overlay);
        let knowledge = overlay.knowledge(self.now);
        self.overlay = Some(overlay);
        Some(knowledge)
    }

    /// The time has come at which sessions choose their routes, or nodes measure.
    pub(super) fn handle_overlay(&mut self) {
        let now = self.now;
        let Some(mut overlay) = self.overlay.take() else {
            return;
        };
        if overlay.next_tick <= now {
            self.read_sessions(&mut overlay);
            overlay.exchange_due(now);
            overlay.next_tick = now + TICK;
        }
        for session in 0..overlay.sessions.len() {
            let phase = overlay.sessions[session].phase;
            if let Phase::Waits(at) = phase
                && at <= now
                && let Some(chosen) = overlay.choose(now, session)
            {
                self.begin_alternative(&overlay.sessions[session], chosen);
            }
        }
        if let Some(at) = overlay.next() {
            self.schedule.wake(self.places.overlay(), at.max(now));
        }
        self.overlay = Some(overlay);
    }

    /// The flows of one alternative of a session begin, and those of the others never do.
    fn begin_alternative(&mut self, session: &SessionState, chosen: usize) {
        let now = self.now;
        for (place, alternative) in session.alternatives.iter().enumerate() {
            for part in &alternative.flows {
                let flow = &mut self.flows[part.flow as usize];
                if place != chosen {
                    flow.unused = true;
                    self.unfinished -= 1;
                } else if part.begins {
                    flow.next_write = Some(now);
                    self.handle_flow(part.flow);
                }
            }
        }
    }

    fn read_sessions(&self, overlay: &mut OverlayState) {
        for session in 0..overlay.sessions.len() {
            self.read_session(overlay, session);
        }
    }

    /// Reads the senders of a session's hops, and notes its end.
    fn read_session(&self, overlay: &mut OverlayState, session: usize) {
        let Phase::Runs(chosen, since) = overlay.sessions[session].phase else {
            return;
        };
        let mut readings = Vec::new();
        let (mut has_ended, mut end, mut carried) = (true, since, 0);
        let alternative = overlay.sessions[session].alternatives.get(chosen);
        for part in alternative
            .iter()
            .flat_map(|alternative| &alternative.flows)
        {
            let flow = &self.flows[part.flow as usize];
            has_ended &= flow.has_ended();
            end = end.max(flow.finished.unwrap_or(since));
            for (leg, pair) in flow.legs().zip(part.nodes.windows(2)) {
                let pair = [pair[0], pair[1]];
                if pair.iter().all(|node| overlay.members.contains_key(node)) {
                    let sender = &self.senders[leg];
                    let read = (sender.sample(self.now), sender.configuration().variant);
                    readings.push((pair, leg, read));
                }
            }
            let last = flow.legs().last();
            carried += last.map_or(0, |leg| self.receivers[leg].next());
        }
        for (pair, leg, read) in readings {
            overlay.note_reading(self.now, pair, leg, read);
        }
        if has_ended {
            let carried = (ByteSize::from_bytes(carried), end.since(since));
            overlay.note_ended(self.now, session, carried);
        }
    }
}
