//! Policies in the simulation: their samples come from simulated sockets, and their decisions are
//! carried out on these. The policies are those of the policy crate, as the proxy runs them.

use std::collections::BTreeMap;
use std::fmt;

use midspan_policy::{
    AckPolicy, AckSample, AckVerdict, Knowledge, Leg as Side, LegDecision, Policy, SessionId,
    SessionSample,
};
use midspan_units::{ByteSize, Time};

use super::Simulation;
use super::policies::{Session, outbound_side, request};
use crate::observer::Observer;
use crate::packet::Acknowledgement;
use crate::scenario::{FlowId, NodeId};

/// All policies of a simulation.
#[derive(Default)]
pub(super) struct Control {
    /// By relay: the policy of its session, and the node of its proxy.
    sessions: BTreeMap<u32, (NodeId, Box<dyn Policy + Send>)>,
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
            policy,
        } = session;
        let Some(state) = self.flows.get(flow.0) else {
            return;
        };
        let Some(relay) = state.leg(split).and_then(|leg| self.legs[leg].onward) else {
            return;
        };
        if let Some(interval) = policy.sampling_interval() {
            let at = state.start + interval;
            self.schedule.wake(self.places.control(relay), at);
        }
        let control = self.control.get_or_insert_default();
        control.sessions.insert(relay, (node, policy));
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

    /// Passes a sample to a policy.
    pub(super) fn take_sample(&mut self, relay: u32) {
        let (inbound, _) = self.relays[relay as usize];
        let flow = &self.flows[self.legs[inbound as usize].flow as usize];
        if flow.has_ended() {
            return;
        }
        let sample = self.session_sample(relay);
        let side = self.outbound_side(relay);
        let Some(control) = &mut self.control else {
            return;
        };
        let Some((node, policy)) = control.sessions.get_mut(&relay) else {
            return;
        };
        let known = control.known.entry(*node).or_default();
        let decision = *policy.sample(self.now, &sample, known).leg(side);
        if let Some(interval) = policy.sampling_interval() {
            let at = self.now + interval.max(midspan_units::TimeSpan::from_nanoseconds(1));
            self.schedule.wake(self.places.control(relay), at);
        }
        self.decide(relay, &decision);
        self.run_relay(relay);
    }

    fn decide(&mut self, relay: u32, decision: &LegDecision) {
        let (inbound, relay) = &mut self.relays[relay as usize];
        relay.handle_decision(decision, &mut self.senders[*inbound as usize + 1]);
    }

    /// The side of a relay on which its outbound leg is.
    fn outbound_side(&self, relay: u32) -> Side {
        let (inbound, _) = self.relays[relay as usize];
        outbound_side(self.flows[self.legs[inbound as usize].flow as usize].client)
    }

    fn session_sample(&self, relay: u32) -> SessionSample {
        let session = SessionId(u64::from(relay));
        let flow = self.legs[self.relays[relay as usize].0 as usize].flow;
        let request = Some(request(FlowId(flow as usize)));
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
