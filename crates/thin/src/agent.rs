//! The agent without its sockets: packets and times in, verdicts out.

use std::collections::{BTreeSet, HashMap};

use midspan_policy::AckVerdict;
use midspan_units::{Time, TimeSpan};

use crate::flow::{Flow, FlowKey, Held};
use crate::segment::{Segment, flags};
use crate::settings::Settings;
use crate::status::Status;

/// A flow without a packet for this time is removed.
const AGE_LIMIT: TimeSpan = TimeSpan::from_seconds(60);
/// How often old flows are removed, and sending flows are counted.
const SWEEP_INTERVAL: TimeSpan = TimeSpan::from_seconds(1);

/// Thins the ACKs of many flows.
///
/// - Input: [`handle_packet`](Self::handle_packet) takes a queued packet,
///   [`handle_incoming`](Self::handle_incoming) the headers of a packet that arrived.
/// - Time: [`poll_timeout`](Self::poll_timeout) returns when to call
///   [`handle_timeout`](Self::handle_timeout).
/// - Output: [`take_verdicts`](Self::take_verdicts), [`status`](Self::status).
///
/// Every queued packet gets one verdict: at once, or, if it is held, with a later packet of its flow or at
/// its deadline. The settings limit the number of flows; packets of further flows pass.
pub struct Agent {
    settings: Settings,
    started: Option<Time>,
    /// Separate from `index`, so that a deadline refers to a flow with few bytes.
    flows: HashMap<FlowKey, Flow>,
    deadlines: BTreeSet<(Time, u32)>,
    /// Flows by the packet that they hold.
    holders: HashMap<u32, FlowKey>,
    verdicts: Vec<(u32, bool)>,
    next_sweep: Time,
    active_flows: u32,
    counters: Status,
}

impl Agent {
    /// An agent without flows.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            started: None,
            flows: HashMap::new(),
            deadlines: BTreeSet::new(),
            holders: HashMap::new(),
            verdicts: Vec::new(),
            next_sweep: Time::ZERO,
            active_flows: 1,
            counters: Status::default(),
        }
    }

    /// A packet, from its IP header on, waits in the queue under this number.
    pub fn handle_packet(&mut self, now: Time, id: u32, packet: &[u8]) {
        self.started.get_or_insert(now);
        let Some(segment) = Segment::parse(packet) else {
            self.counters.unreadable += 1;
            self.verdicts.push((id, true));
            return;
        };
        let key = FlowKey::of_outgoing(&segment);
        if segment.has(flags::SYN) {
            self.forget(key);
        }
        if !self.flows.contains_key(&key) {
            let is_end = segment.has(flags::RST) || !segment.has(flags::ACK | flags::SYN);
            if is_end || self.flows.len() >= self.settings.flows {
                let passed = if is_end {
                    &mut self.counters.others
                } else {
                    &mut self.counters.untracked
                };
                *passed += 1;
                self.verdicts.push((id, true));
                return;
            }
            let flow = Flow::new(key, self.settings.policy(), now);
            self.flows.insert(key, flow);
        }
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        flow.last_seen = now;
        if segment.has(flags::SYN) {
            flow.handle_syn(now, &segment);
            self.counters.others += 1;
            self.verdicts.push((id, true));
            return;
        }
        if segment.has(flags::RST) {
            self.forget(key);
            self.counters.others += 1;
            self.verdicts.push((id, true));
            return;
        }
        let mut verdict = flow.handle_outgoing(now, &segment, self.active_flows);
        let header = segment.ack_header();
        let is_pure = header.plain;
        if is_pure {
            flow.acks_seen += 1;
            self.counters.acks_seen += 1;
            self.counters.bytes_seen += u64::from(segment.size);
        } else {
            self.counters.others += 1;
        }
        // Half of the queue is reserved for packets that only pass through it.
        let most = usize::try_from(self.settings.queue_length / 2).unwrap_or(usize::MAX);
        let may_hold = flow.held.is_some() || self.holders.len() < most;
        if matches!(verdict, AckVerdict::HoldUntil(_)) && !(may_hold && is_pure) {
            self.counters.unheld += 1;
            verdict = AckVerdict::PassAfterHeld;
        }
        let before = self.take_held(key);
        match (verdict, before) {
            (AckVerdict::PassAfterHeld, Some(before)) => self.send(now, key, before),
            (_, Some(before)) => self.save(key, before),
            (_, None) => {}
        }
        let held = Held {
            id,
            deadline: now,
            size: segment.size,
            header,
        };
        match verdict {
            AckVerdict::HoldUntil(deadline) => self.hold(key, Held { deadline, ..held }),
            _ if is_pure => self.send(now, key, held),
            _ => self.verdicts.push((id, true)),
        }
    }

    /// The first bytes of a packet that arrived, from its IP header on.
    pub fn handle_incoming(&mut self, now: Time, packet: &[u8]) {
        // Oversized segments arrive in fragments, and have timestamps like others.
        let Some(segment) = Segment::parse_first(packet) else {
            return;
        };
        if let Some(flow) = self.flows.get_mut(&FlowKey::of_incoming(&segment)) {
            flow.handle_incoming(now, &segment);
        }
    }

    /// Lets ACKs leave whose deadline has come, and removes old flows.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            let holder = self.holders.get(&id).copied();
            match holder.and_then(|key| Some((key, self.take_held(key)?))) {
                Some((key, held)) => {
                    self.counters.timeouts += 1;
                    self.send(now, key, held);
                }
                // This never happens; but a packet in the queue must leave.
                None => {
                    self.deadlines.pop_first();
                    self.verdicts.push((id, true));
                }
            }
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.flows
                .retain(|_, flow| flow.held.is_some() || now.since(flow.last_seen) < AGE_LIMIT);
            let active = self
                .flows
                .values()
                .filter(|flow| now.since(flow.last_seen) < SWEEP_INTERVAL)
                .count();
            self.active_flows = u32::try_from(active).unwrap_or(u32::MAX).max(1);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` without flows.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let sweep = (!self.flows.is_empty()).then_some(self.next_sweep);
        deadline.into_iter().chain(sweep).min()
    }

    /// The verdicts since the last call: packet numbers, and whether each packet passes.
    pub fn take_verdicts(&mut self, into: &mut Vec<(u32, bool)>) {
        into.append(&mut self.verdicts);
    }

    /// The counters so far.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let mut busiest: Vec<&Flow> = self.flows.values().collect();
        busiest.sort_by_key(|flow| {
            let key = flow.key();
            (std::cmp::Reverse(flow.acks_seen), key.local, key.remote)
        });
        Status {
            flows: self.flows.len() as u64,
            held: self.holders.len() as u64,
            running: self
                .started
                .map(|start| now.since(start))
                .unwrap_or_default(),
            busiest: busiest
                .into_iter()
                .take(Status::BUSIEST)
                .map(Flow::status)
                .collect(),
            ..self.counters.clone()
        }
    }

    fn hold(&mut self, key: FlowKey, held: Held) {
        if let Some(flow) = self.flows.get_mut(&key) {
            self.deadlines.insert((held.deadline, held.id));
            self.holders.insert(held.id, key);
            flow.held = Some(held);
        } else {
            self.verdicts.push((held.id, true));
        }
    }

    fn take_held(&mut self, key: FlowKey) -> Option<Held> {
        let held = self.flows.get_mut(&key)?.held.take()?;
        self.deadlines.remove(&(held.deadline, held.id));
        self.holders.remove(&held.id);
        Some(held)
    }

    fn send(&mut self, now: Time, key: FlowKey, held: Held) {
        self.verdicts.push((held.id, true));
        self.counters.acks_sent += 1;
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.handle_sent(now, &held.header);
        }
    }

    fn save(&mut self, key: FlowKey, held: Held) {
        self.verdicts.push((held.id, false));
        self.counters.acks_saved += 1;
        self.counters.bytes_saved += u64::from(held.size);
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.acks_saved += 1;
        }
    }

    /// Removes a flow; its held ACK leaves.
    fn forget(&mut self, key: FlowKey) {
        if let Some(held) = self.take_held(key) {
            self.verdicts.push((held.id, true));
            self.counters.acks_sent += 1;
        }
        self.flows.remove(&key);
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
