//! One flow whose ACKs may be thinned.

use std::net::SocketAddr;

use midspan_policy::ack_thinning::{AckHeader, AckTracker, ReceiverRoundTrip};
use midspan_policy::{AckPolicy, AckVerdict, RoundTrip};
use midspan_units::Time;

use crate::segment::{Segment, flags};
use crate::status::FlowStatus;

/// MSS if the SYN was not seen: that of Ethernet. If it is too large, only more ACKs leave.
const SEGMENT_SIZE: u32 = 1460;
/// Smallest MSS (RFC 9293 §3.7.1 for IPv4).
const SEGMENT_SIZE_LEAST: u32 = 536;
/// Bytes of a segment that timestamps take.
const TIMESTAMP_SIZE: u32 = 12;

/// Both ends, this host's end first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl FlowKey {
    pub const fn of_outgoing(segment: &Segment) -> Self {
        Self {
            local: segment.source,
            remote: segment.destination,
        }
    }

    pub const fn of_incoming(segment: &Segment) -> Self {
        Self {
            local: segment.destination,
            remote: segment.source,
        }
    }
}

/// A packet that waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub id: u32,
    pub deadline: Time,
    pub size: u32,
    pub header: AckHeader,
}

pub struct Flow {
    key: FlowKey,
    tracker: AckTracker,
    policy: Option<Box<dyn AckPolicy + Send>>,
    round_trip: ReceiverRoundTrip,
    segment_size: u32,
    /// End of the newest data that this host has sent.
    own_end: Option<u32>,
    pub held: Option<Held>,
    pub last_seen: Time,
    pub acks_seen: u64,
    pub acks_saved: u64,
}

impl Flow {
    pub fn new(key: FlowKey, policy: Option<Box<dyn AckPolicy + Send>>, now: Time) -> Self {
        Self {
            key,
            tracker: AckTracker::default(),
            policy,
            round_trip: ReceiverRoundTrip::default(),
            segment_size: SEGMENT_SIZE,
            own_end: None,
            held: None,
            last_seen: now,
            acks_seen: 0,
            acks_saved: 0,
        }
    }

    pub const fn key(&self) -> FlowKey {
        self.key
    }

    /// A SYN or SYN-ACK of this host leaves.
    pub fn handle_syn(&mut self, now: Time, segment: &Segment) {
        self.round_trip.handle_syn_sent(now);
        if let Some(size) = segment.options.segment_size {
            self.segment_size = u32::from(size).max(SEGMENT_SIZE_LEAST);
        }
    }

    /// A packet of this host is about to leave; returns the verdict.
    pub fn handle_outgoing(&mut self, now: Time, segment: &Segment, flows: u32) -> AckVerdict {
        if segment.data > 0 {
            self.handle_own_data(now, segment);
        }
        let header = segment.ack_header();
        let timestamps = header.timestamp.map_or(0, |_| TIMESTAMP_SIZE);
        let data = self.segment_size.saturating_sub(timestamps);
        let sample = self.tracker.handle_ack(&header, data);
        let Some(policy) = &mut self.policy else {
            return AckVerdict::Pass;
        };
        policy.handle_active_flows(flows);
        policy.acknowledge(now, &sample)
    }

    fn handle_own_data(&mut self, now: Time, segment: &Segment) {
        let end = segment.sequence.wrapping_add(segment.data);
        let is_new = self
            .own_end
            .is_none_or(|last| end.wrapping_sub(last).cast_signed() > 0);
        if is_new {
            self.own_end = Some(end);
            self.round_trip.handle_own_data(now, end);
        } else {
            self.round_trip.handle_own_retransmission();
        }
    }

    /// An ACK with this header has left.
    pub fn handle_sent(&mut self, now: Time, header: &AckHeader) {
        self.tracker.handle_sent(header);
        if let Some(timestamp) = header.timestamp {
            self.round_trip.handle_ack_sent(now, timestamp);
        }
    }

    /// Headers of a packet that arrived.
    pub fn handle_incoming(&mut self, now: Time, segment: &Segment) {
        if segment.has(flags::SYN) {
            let measured = self.round_trip.handle_syn_answered(now);
            self.tell(now, measured);
            return;
        }
        if segment.has(flags::ACK) {
            // If this host answered the SYN, this packet is the third of the handshake.
            let measured = self.round_trip.handle_syn_answered(now);
            self.tell(now, measured);
            let measured = self.round_trip.handle_acknowledged(now, segment.number);
            self.tell(now, measured);
        }
        if segment.data > 0 {
            let echo = segment.options.timestamp.map(|(_, echo)| echo);
            let measured = self.round_trip.handle_data(now, echo);
            self.tell(now, measured);
        }
    }

    fn tell(&mut self, now: Time, measured: Option<RoundTrip>) {
        if let (Some(policy), Some(measured)) = (&mut self.policy, measured) {
            policy.handle_round_trip(now, measured);
        }
    }

    pub fn status(&self) -> FlowStatus {
        let estimate = self
            .policy
            .as_ref()
            .map(|policy| policy.estimate())
            .unwrap_or_default();
        FlowStatus {
            local: self.key.local,
            remote: self.key.remote,
            acks_seen: self.acks_seen,
            acks_saved: self.acks_saved,
            est_cwnd: estimate.congestion_window,
            ppa: estimate.packets_per_ack.max(1),
            rcv_rtt: estimate.round_trip,
        }
    }
}
