//! Signals that accompany data and acknowledgements: timestamps, marks, announced windows, echoes;
//! and ACKs that are regenerated before they reach their sender.

use std::collections::VecDeque;

use midspan_policy::ack_thinning::AckRegeneration;
use midspan_units::Time;

use super::Simulation;
use crate::observer::Observer;
use crate::packet::{Acknowledgement, Packet, PacketDirection, Segment, Signals};
use crate::scenario::Scenario;
use crate::tcp::AckRule;

/// Size of an ICMP echo with a number and a time, in bytes: 20 + 8 + 8.
const ECHO: u32 = 36;

/// The signals that the sender of a leg has received and echoes in its data.
#[derive(Debug, Default)]
pub(super) struct LegSignals {
    received: Signals,
    regeneration: Option<Box<Regeneration>>,
}

/// The regeneration of a leg's ACKs.
#[derive(Debug)]
struct Regeneration {
    policy: AckRegeneration,
    /// The ACKs that are still to arrive, in order of time.
    ahead: VecDeque<(Time, Acknowledgement)>,
}

/// The signals of all legs; empty if no flow of the scenario uses any.
pub(super) fn signals(scenario: &Scenario) -> Vec<LegSignals> {
    let needed = scenario.flows.iter().any(|flow| {
        let inbound = flow.splits.iter().map(|split| &split.inbound);
        let mut receivers = inbound.chain([&flow.receiver]);
        flow.regenerate_acks.is_some()
            || receivers.any(|receiver| {
                matches!(
                    receiver.acknowledge,
                    AckRule::Thinned(_) | AckRule::DelayedAndThinned { .. }
                )
            })
    });
    if !needed {
        return Vec::new();
    }
    let mut signals = Vec::new();
    for flow in &scenario.flows {
        signals.extend(flow.splits.iter().map(|_| LegSignals::default()));
        let regeneration = flow.regenerate_acks.map(|segments| {
            let segment = flow
                .splits
                .last()
                .map_or(flow.sender, |split| split.outbound);
            Box::new(Regeneration {
                policy: AckRegeneration::new(segments, segment.segment_size),
                ahead: VecDeque::new(),
            })
        });
        signals.push(LegSignals {
            received: Signals::default(),
            regeneration,
        });
    }
    signals
}

impl<O: Observer> Simulation<O> {
    /// The signals that a packet of a leg carries.
    #[inline]
    pub(super) fn signals_of(&mut self, leg: u32, direction: PacketDirection) -> Signals {
        if self.signals.is_empty() {
            return Signals::default();
        }
        let timestamp = self.timestamp();
        let Some(signals) = self.signals.get_mut(leg as usize) else {
            return Signals::default();
        };
        match direction {
            PacketDirection::Back => Signals {
                timestamp,
                ..Signals::default()
            },
            PacketDirection::Forward => {
                let sender = &self.senders[leg as usize];
                let segment = u64::from(sender.configuration().segment_size).max(1);
                let echoed = Signals {
                    window: u16::try_from(sender.cwnd() / segment).unwrap_or(u16::MAX),
                    ..signals.received
                };
                signals.received.marked = false;
                echoed
            }
        }
    }

    /// A clock in milliseconds, as in Linux and other systems (RFC 7323 §5.4).
    #[allow(clippy::cast_possible_truncation)] // It wraps.
    pub(super) fn timestamp(&self) -> u32 {
        (self.now.since(Time::ZERO).nanoseconds() / 1_000_000) as u32
    }

    /// A packet has arrived: takes its signals.
    pub(super) fn receive_signals(&mut self, packet: &Packet) {
        let leg = packet.connection;
        match packet.segment {
            Segment::Data(_) => {
                let receiver = &mut self.receivers[leg as usize];
                receiver.handle_signals(self.now, packet.signals);
                if let Some(number) = receiver.poll_echo(self.now) {
                    self.send(leg, PacketDirection::Back, ECHO, Segment::Echo(number));
                }
            }
            Segment::Acknowledgement(_) => {
                if let Some(signals) = self.signals.get_mut(leg as usize) {
                    let marked = signals.received.marked || packet.signals.marked;
                    signals.received = Signals {
                        marked,
                        ..packet.signals
                    };
                }
            }
            _ => {}
        }
    }

    /// An echo has arrived: a request is answered, a reply is passed to the receiver.
    pub(super) fn deliver_echo(&mut self, packet: &Packet, number: u16) {
        let leg = packet.connection;
        match packet.direction() {
            PacketDirection::Back => {
                self.send(leg, PacketDirection::Forward, ECHO, Segment::Echo(number))
            }
            PacketDirection::Forward => {
                self.receivers[leg as usize].handle_echo_reply(self.now, number);
            }
        }
    }

    /// Regenerates an ACK of a leg. Returns false if the ACKs of that leg are not regenerated.
    pub(super) fn regenerate(&mut self, leg: u32, ack: &Acknowledgement) -> bool {
        let now = self.now;
        let Some(Regeneration { policy, ahead }) = self.regeneration(leg) else {
            return false;
        };
        for made in policy.handle_ack(now, ack.number) {
            let acknowledgement = if made.number == ack.number {
                *ack
            } else {
                Acknowledgement {
                    number: made.number,
                    // The remaining window becomes smaller as the number grows.
                    window_edge: ack.window_edge,
                    blocks: crate::packet::SelectiveBlocks::default(),
                }
            };
            ahead.push_back((made.at, acknowledgement));
        }
        if let Some((at, _)) = ahead.front() {
            let at = *at;
            self.schedule.wake(self.places.sender(leg), at.max(now));
        }
        true
    }

    pub(super) fn regenerated_deadline(&mut self, leg: u32) -> Option<Time> {
        Some(self.regeneration(leg)?.ahead.front()?.0)
    }

    /// The next regenerated ACK whose time has come.
    pub(super) fn poll_regenerated(&mut self, leg: u32) -> Option<Acknowledgement> {
        let now = self.now;
        let ahead = &mut self.regeneration(leg)?.ahead;
        Some(ahead.pop_front_if(|(at, _)| *at <= now)?.1)
    }

    fn regeneration(&mut self, leg: u32) -> Option<&mut Regeneration> {
        let signals = self.signals.get_mut(leg as usize)?;
        signals.regeneration.as_deref_mut()
    }
}
