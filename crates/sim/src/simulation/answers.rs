//! Receivers that answer a data packet as soon as it is sent.
//!
//! If the fate of a packet on its last link is known when it is sent, and the receiver only
//! acknowledges it, then the ACK is known as well: the receiver is *joined* to its links, as one
//! link is to another. The packet and its ACK are then processed in one step, and the first event
//! is the ACK's arrival at the sender. The results are the same (a test compares them): packets
//! reach a receiver, and its ACKs reach their first link, in the same order and at the same times.
//! `join` checks the conditions for this.

use std::collections::BTreeMap;

use midspan_units::{Time, TimeSpan};

use super::Simulation;
use super::application::FlowState;
use super::leg::Parts;
use crate::network::{Handed, Network};
use crate::observer::Observer;
use crate::packet::{Data, Packet, PacketDirection, Passage, Segment, Signals};

/// Joins the receivers for which this is possible.
///
/// Such a receiver is at the end of a bulk flow, has no timer, and acknowledges every packet. All
/// packets on the first link of its ACKs come from joined receivers behind the same last link, one
/// packet after another. And the simulation cannot end early, while ACKs with future times have
/// been sent.
pub(super) fn join(parts: &mut Parts, network: &Network) {
    if !parts.flows.iter().any(|flow| parts.is_endless(flow)) {
        return;
    }
    let mut may: Vec<Option<[u32; 2]>> = (0..parts.legs.len())
        .map(|leg| parts.ends_of_answering(leg, network))
        .collect();
    // For each direction on which ACKs start, the last link before it; `None` if there are several.
    let mut before: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    for (leg, ends) in parts.legs.iter().zip(&may) {
        for direction in [PacketDirection::Forward, PacketDirection::Back] {
            for (hop, place) in leg.route(direction).iter().enumerate() {
                let own = ends
                    .filter(|_| direction == PacketDirection::Back && hop == 0)
                    .map(|[last, _]| last);
                let known = before.entry(*place).or_insert(own);
                if *known != own {
                    *known = None;
                }
            }
        }
    }
    for (leg, ends) in parts.legs.iter_mut().zip(&mut may) {
        leg.joined = ends
            .take()
            .is_some_and(|[last, first]| before.get(&first) == Some(&Some(last)));
    }
}

impl Parts {
    /// Whether a flow never ends, whatever happens.
    fn is_endless(&self, flow: &FlowState) -> bool {
        let patient = |leg: usize| self.senders[leg].configuration().give_up_after == u32::MAX;
        let refused = |leg: usize| {
            let relay = self.legs[leg].onward;
            relay.is_some_and(|relay| self.relays[relay as usize].1.refuses())
        };
        flow.is_endless() && flow.legs().all(|leg| patient(leg) && !refused(leg))
    }

    /// For a leg whose receiver only acknowledges: the last link of its data, and the first link of
    /// its ACKs.
    fn ends_of_answering(&self, leg: usize, network: &Network) -> Option<[u32; 2]> {
        let receiver = self.receivers.get(leg)?;
        let state = &self.legs[leg];
        let last = *state.route(PacketDirection::Forward).last()?;
        let first = *state.route(PacketDirection::Back).first()?;
        let answers = receiver.acknowledges_every_segment()
            && state.onward.is_none()
            && self.flows[state.flow as usize].is_bulk();
        // An ACK without any delay could arrive before other events of the same time.
        let known = network.is_fixed(last) && network.is_fixed_and_takes_time(first);
        (answers && known).then_some([last, first])
    }
}

impl<O: Observer> Simulation<O> {
    /// In a run up to and including `until`: packets that reach a joined receiver before the
    /// returned time are answered when they are sent.
    pub(super) fn answers_before(&self, until: Time) -> Time {
        // Policies may have to see each ACK when it leaves.
        if O::WATCHES || self.control.is_some() {
            Time::ZERO
        } else {
            until + TimeSpan::from_nanoseconds(1)
        }
    }

    /// Sends a packet of `size` bytes, and lets a joined receiver answer it.
    #[inline]
    pub(super) fn send_data(&mut self, leg: u32, size: u32, data: Data) {
        let state = &self.legs[leg as usize];
        if O::WATCHES || !state.joined {
            self.send(leg, PacketDirection::Forward, size, Segment::Data(data));
            return;
        }
        let mut packet = Packet {
            connection: leg,
            size,
            passage: Passage::new(PacketDirection::Forward),
            signals: Signals::default(),
            segment: Segment::Data(data),
        };
        let route = state.route(PacketDirection::Forward);
        let before = self.answered_before;
        let handed = self
            .network
            .handle(&mut self.schedule, self.now, route, &mut packet, before);
        let Handed::Arrives(at) = handed else {
            // The drop is not reported, because there is no observer.
            return;
        };
        let receiver = &mut self.receivers[leg as usize];
        receiver.handle_segment(at, &data);
        receiver.handle_release(at, u64::MAX);
        while let Some(ack) = receiver.poll_transmit() {
            let mut packet = Packet {
                connection: leg,
                size: receiver.size_of(&ack),
                passage: Passage::new(PacketDirection::Back),
                signals: Signals::default(),
                segment: Segment::Acknowledgement(ack),
            };
            let route = state.route(PacketDirection::Back);
            self.network
                .handle(&mut self.schedule, at, route, &mut packet, Time::ZERO);
        }
        debug_assert!(receiver.poll_timeout().is_none(), "joined, and has a timer");
    }
}
