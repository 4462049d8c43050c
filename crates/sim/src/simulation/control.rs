//! Policies in the simulation: their samples come from simulated sockets, and their decisions are
//! carried out on these. The policies are those of the policy crate, as the proxy runs them.

use std::collections::BTreeMap;
use std::fmt;

use midspan_policy::{
    AckPolicy, AckSample, AckVerdict, Knowledge, Leg as Side, LegDecision, Policy, Request,
    SessionId, SessionSample,
};
use midspan_units::{ByteSize, Time, TimeSpan};

use super::Simulation;
use super::policies::{Session, outbound_side};
use crate::observer::Observer;
use crate::packet::Acknowledgement;
use crate::scenario::{FlowId, NodeId};

/// All policies of a simulation.
#[derive(Default)]
pub(super) struct Control {
    /// By relay.
    sessions: BTreeMap<u32, Controlled>,
    /// What the sessions of each proxy have left for later ones.
    known: BTreeMap<NodeId, Knowledge>,
    /// By leg.
    thinning: BTreeMap<u32, Thinning>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("sessions", &self.sessions.len())
            .field("thinning", &self.thinning.len())
            .finish()
    }
}

/// A session under a policy.
struct Controlled {
    /// The node of its proxy.
    node: NodeId,
    request: Request,
    policy: Box<dyn Policy + Send>,
    /// The initial windows from which one is chosen when it begins; `None` once it has begun.
    learning: Option<Vec<u32>>,
}

/// The ACKs of one leg under a policy.
struct Thinning {
    policy: Box<dyn AckPolicy + Send>,
    /// The newest ACK that is held back, and until when.
    held: Option<(Acknowledgement, Time)>,
    /// Number and window edge of the previous ACK.
    last: (u64, u64),
}

impl<O: Observer> Simulation<O> {
    /// Adds a policy for a session at a proxy that exists.
    pub(super) fn add_policy(&mut self, session: Session) {
        let Session {
            flow,
            split,
            node,
            request,
            policy,
            learning,
        } = session;
        let Some(state) = self.flows.get(flow.0) else {
            return;
        };
        let Some(relay) = state.leg(split).and_then(|leg| self.legs[leg].onward) else {
            return;
        };
        let first = match &learning {
            Some(_) => Some(TimeSpan::ZERO),
            None => policy.sampling_interval(number_of(relay)),
        };
        if let Some(after) = first {
            let at = state.start + after;
            self.schedule.wake(self.places.control(relay), at);
        }
        let session = Controlled {
            node,
            request,
            policy,
            learning,
        };
        let control = self.control.get_or_insert_default();
        control.sessions.insert(relay, session);
    }

    /// Sets the policy that decides which ACKs of a leg, counted from 0, leave its receiver.
    /// Returns false, and does nothing, if there is no such leg.
    pub fn set_ack_policy(
        &mut self,
        flow: FlowId,
        leg: usize,
        policy: Box<dyn AckPolicy + Send>,
    ) -> bool {
        let found = self.flows.get(flow.0).and_then(|state| state.leg(leg));
        let Some(leg) = found.and_then(|leg| u32::try_from(leg).ok()) else {
            return false;
        };
        let edge = self.receivers[leg as usize].window_edge();
        let thinning = Thinning {
            policy,
            held: None,
            last: (self.receivers[leg as usize].next(), edge),
        };
        let control = self.control.get_or_insert_default();
        control.thinning.insert(leg, thinning);
        true
    }

    /// The time of a session's policy has come: the session begins, or is sampled.
    pub(super) fn handle_control(&mut self, relay: u32) {
        let flow = self.flow_of(relay);
        if self.flows[flow as usize].has_ended() {
            return;
        }
        let sessions = self.control.as_mut().map(|control| &mut control.sessions);
        let session = sessions.and_then(|sessions| sessions.get_mut(&relay));
        match session.and_then(|session| session.learning.take()) {
            Some(windows) => self.begin_session(relay, &windows),
            None => self.take_sample(relay),
        }
    }

    /// Lets a policy choose how the outbound leg starts, by what earlier sessions have left.
    fn begin_session(&mut self, relay: u32, windows: &[u32]) {
        let now = self.now;
        let side = self.outbound_side(relay);
        let Some(control) = &mut self.control else {
            return;
        };
        let Some(session) = control.sessions.get_mut(&relay) else {
            return;
        };
        let known = control.known.entry(session.node).or_default();
        let (policy, request) = (&mut session.policy, &session.request);
        let (start, window) = match side {
            Side::Client => {
                let window = policy.window(now, request, windows, known);
                let start = policy.start(now, request, window, known);
                (start.client, window.map(|window| window.window))
            }
            Side::Server => {
                let start = policy.server_start(now, request, windows, known);
                let window = start.initial_window;
                (start, window)
            }
        };
        let sends_ahead = policy.sends_ahead();
        if let Some(interval) = policy.sampling_interval(number_of(relay)) {
            self.schedule
                .wake(self.places.control(relay), now + interval);
        }
        let (inbound, relay) = &mut self.relays[relay as usize];
        let sender = &mut self.senders[*inbound as usize + 1];
        if let Some(name) = &start.congestion_control {
            sender.handle_congestion_control(now, name);
        }
        if let Some(window) = window {
            sender.start_with(window);
        }
        if sends_ahead {
            sender.read_windows_with(start.window_scale);
        }
        if let Some(flight) = start.first_flight {
            relay.spread(flight);
        }
    }

    /// The sessions of a flow that ends leave what they have learned.
    pub(super) fn end_sessions(&mut self, flow: u32) {
        if self.control.is_none() {
            return;
        }
        let state = &self.flows[flow as usize];
        let lasted = state.finished.map(|end| end.since(state.start));
        for leg in state.legs() {
            let Some(relay) = self.legs[leg].onward else {
                continue;
            };
            let sample = SessionSample {
                lasted,
                ..self.session_sample(relay)
            };
            let Some(control) = &mut self.control else {
                continue;
            };
            if let Some(session) = control.sessions.get_mut(&relay) {
                let known = control.known.entry(session.node).or_default();
                session.policy.end(self.now, &sample, known);
            }
        }
    }

    /// The connection whose requests have arrived sends its first response: what its first flow has
    /// measured of the round trip on each leg holds for the second as well.
    pub(super) fn share_round_trips(&mut self, requests: u32, answers: u32) {
        if self.control.is_none() {
            return;
        }
        let [requests, answers] = [requests, answers].map(|flow| self.flows[flow as usize].legs());
        for (request, answer) in requests.rev().zip(answers) {
            if let Some(relay) = self.legs[answer].feeder {
                let round_trip = self.senders[request].round_trip_time();
                self.relays[relay as usize].1.set_round_trip(round_trip);
            }
        }
    }

    fn flow_of(&self, relay: u32) -> u32 {
        let (inbound, _) = self.relays[relay as usize];
        self.legs[inbound as usize].flow
    }

    /// Passes a sample to a policy.
    fn take_sample(&mut self, relay: u32) {
        let sample = self.session_sample(relay);
        let side = self.outbound_side(relay);
        let Some(control) = &mut self.control else {
            return;
        };
        let Some(session) = control.sessions.get_mut(&relay) else {
            return;
        };
        let known = control.known.entry(session.node).or_default();
        let decision = *session.policy.sample(self.now, &sample, known).leg(side);
        if let Some(interval) = session.policy.sampling_interval(number_of(relay)) {
            let at = self.now + interval.max(TimeSpan::from_nanoseconds(1));
            self.schedule.wake(self.places.control(relay), at);
        }
        self.decide(relay, &decision);
        self.run_relay(relay);
    }

    fn decide(&mut self, relay: u32, decision: &LegDecision) {
        let (inbound, relay) = &mut self.relays[relay as usize];
        let sender = &mut self.senders[*inbound as usize + 1];
        if let Some(name) = decision.congestion_control {
            sender.handle_congestion_control(self.now, name);
        }
        if decision.bbr_again {
            sender.begin_bbr_again(self.now);
        }
        relay.handle_decision(decision, sender);
    }

    /// The side of a relay on which its outbound leg is.
    fn outbound_side(&self, relay: u32) -> Side {
        outbound_side(self.flows[self.flow_of(relay) as usize].client)
    }

    fn session_sample(&self, relay: u32) -> SessionSample {
        let session = number_of(relay);
        let sessions = self.control.as_ref().map(|control| &control.sessions);
        let session_of = sessions.and_then(|sessions| sessions.get(&relay));
        let request = session_of.map(|session| session.request);
        let side = self.outbound_side(relay);
        let (inbound, relay) = &self.relays[relay as usize];
        let inward = self.receivers[*inbound as usize].sample();
        let outward = self.senders[*inbound as usize + 1].sample(self.now);
        let held = ByteSize::from_bytes(relay.held());
        match side {
            Side::Server => SessionSample {
                session,
                request,
                client: inward,
                server: outward,
                held_towards_server: held,
                ..SessionSample::default()
            },
            Side::Client => SessionSample {
                session,
                request,
                client: outward,
                server: inward,
                held_towards_client: held,
                ..SessionSample::default()
            },
        }
    }

    /// An ACK is about to leave a receiver: the thinning policy of the leg, if any, decides.
    pub(super) fn thin(&mut self, leg: u32, ack: Acknowledgement) {
        let segment = u64::from(self.senders[leg as usize].configuration().segment_size);
        let now = self.now;
        let Some(thinning) = self.thinning(leg) else {
            self.send_ack(leg, ack);
            return;
        };
        match thinning.judge(now, &ack, segment) {
            AckVerdict::Pass => {
                thinning.held = None;
                self.send_ack(leg, ack);
            }
            AckVerdict::HoldUntil(at) => {
                // The first deadline holds: a later ACK does not extend the wait of an earlier one.
                let at = thinning.held.map_or(at, |(_, held)| held.min(at)).max(now);
                thinning.held = Some((ack, at));
                self.schedule.wake(self.places.receiver(leg), at);
            }
            AckVerdict::PassAfterHeld => {
                if let Some((held, _)) = thinning.held.take() {
                    self.send_ack(leg, held);
                }
                self.send_ack(leg, ack);
            }
        }
    }

    pub(super) fn held_ack_deadline(&mut self, leg: u32) -> Option<Time> {
        let (_, at) = self.thinning(leg)?.held?;
        Some(at)
    }

    /// Sends the held ACK if its time has come.
    pub(super) fn release_held_ack(&mut self, leg: u32) {
        let now = self.now;
        let held = self
            .thinning(leg)
            .and_then(|thinning| thinning.held.take_if(|(_, at)| *at <= now));
        if let Some((ack, _)) = held {
            self.send_ack(leg, ack);
        }
    }

    #[inline]
    fn thinning(&mut self, leg: u32) -> Option<&mut Thinning> {
        self.control.as_mut()?.thinning.get_mut(&leg)
    }
}

impl Thinning {
    fn judge(&mut self, now: Time, ack: &Acknowledgement, segment: u64) -> AckVerdict {
        let (number, edge) = std::mem::replace(&mut self.last, (ack.number, ack.window_edge));
        let segments = (ack.number - number).div_ceil(segment.max(1));
        let same = ack.number == number;
        self.policy.acknowledge(
            now,
            &AckSample {
                // The low 32 bits, as on the wire.
                #[allow(clippy::cast_possible_truncation)]
                number: ack.number as u32,
                newly_covered: u32::try_from(segments).unwrap_or(u32::MAX),
                // A candidate for each segment that arrives.
                arrived: 1,
                duplicate: same && ack.window_edge == edge,
                selective: !ack.blocks.is_empty(),
                window_update: same && ack.window_edge != edge,
                ..AckSample::default()
            },
        )
    }
}

/// The number of a relay's session, for its policy.
fn number_of(relay: u32) -> SessionId {
    SessionId(u64::from(relay))
}
