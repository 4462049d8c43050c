//! One session at a split proxy, in one direction.

use std::collections::VecDeque;

use midspan_link::Stream;
use midspan_policy::{Handshake, InputPacing, LegDecision, PacingBy};
use midspan_units::{Time, TimeSpan};

use super::configuration::{Buffers, LocalAck, RelayConfiguration, ServiceTime};
use crate::packet::{Data, DataKind};
use crate::random::exponential;
use crate::tcp::{Receiver, Sender, SenderConfiguration};

/// Joins the receiver of the inbound leg to the sender of the outbound leg.
///
/// After every input to one of the two, call [`run`](Self::run), then take out what both have to
/// send; and again at the time of [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Relay {
    configuration: RelayConfiguration,
    /// Draws the service times.
    stream: Stream,
    /// Segments that wait for service before they are acknowledged.
    arrived: VecDeque<Data>,
    /// A SYN came: the outbound leg is to be opened.
    opening: Opening,
    /// Bytes read from the inbound leg, in all.
    read: u64,
    /// Bytes written to the outbound leg, in all. What is between the two is being served, or
    /// waits for its turn in pacing.
    forwarded: u64,
    /// What is being served, and until when.
    job: Option<(Time, Job)>,
    /// Pacing at the input of TCP, where it is asked for.
    pacing: Option<InputPacing>,
    /// A SYN that is answered when the outbound leg's has been.
    held: Option<Data>,
    /// The outbound leg's SYN was answered, or needed no answer.
    established: bool,
    /// Most bytes that are written and not acknowledged; `None` for no limit.
    in_flight_cap: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    NotAsked,
    Asked,
    Done,
}

/// What takes service time.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// A segment that is acknowledged afterwards.
    Acknowledge(Data),
    /// The opening of the outbound leg.
    Open,
    /// So many bytes that were acknowledged already.
    Forward(u64),
}

impl Relay {
    /// A relay that has seen nothing yet, writes to a sender that is set as `outbound`, and
    /// draws its service times from `stream`.
    #[must_use]
    pub fn new(
        configuration: RelayConfiguration,
        outbound: &SenderConfiguration,
        stream: Stream,
    ) -> Self {
        let pacing = |rate| InputPacing::new(rate, outbound.segment_size, outbound.header_size);
        Self {
            pacing: configuration.pacing.map(pacing),
            held: None,
            established: false,
            in_flight_cap: None,
            configuration,
            stream,
            arrived: VecDeque::new(),
            opening: Opening::NotAsked,
            read: 0,
            forwarded: 0,
            job: None,
        }
    }

    /// A segment of the inbound leg arrives at the proxy.
    pub fn handle_segment(&mut self, now: Time, segment: &Data, inbound: &mut Receiver) {
        if self.local_ack() == Some(LocalAck::AfterService) {
            self.arrived.push_back(*segment);
        } else {
            self.accept(now, segment, inbound);
        }
    }

    /// Moves what may be moved. Returns the bytes that were read from the inbound leg in one
    /// piece: the forward data.
    pub fn run(&mut self, now: Time, inbound: &mut Receiver, outbound: &mut Sender) -> u64 {
        let read_before = self.read;
        self.answer_held(now, inbound, outbound);
        loop {
            let mut moved = false;
            if let Some((_, job)) = self.job.take_if(|(end, _)| *end <= now) {
                self.finish(now, job, inbound, outbound);
                moved = true;
            }
            if self.local_ack() != Some(LocalAck::BeforeService)
                && let Some(job) = self.next_forward(now, inbound, outbound)
            {
                self.finish(now, job, inbound, outbound);
                moved = true;
            }
            if self.job.is_none()
                && let Some(job) = self.next_served(now, inbound, outbound)
            {
                self.job = Some((now + self.service_time(), job));
                moved = true;
            }
            if !moved {
                break;
            }
        }
        inbound.handle_release(
            now,
            match self.configuration.buffers {
                Buffers::Separate { .. } => self.read,
                Buffers::Granted { .. } => outbound.unacknowledged(),
            },
        );
        let waiting = inbound.next() - self.forwarded;
        outbound.handle_full_buffer(self.room(outbound) < waiting.min(segment_size(outbound)));
        self.check_invariants(inbound, outbound);
        self.read - read_before
    }

    /// When to [`run`](Self::run) again without any other input.
    #[must_use]
    pub fn poll_timeout(&self, outbound: &Sender) -> Option<Time> {
        let service = self.job.as_ref().map(|(end, _)| *end);
        let paced = self
            .pacing
            .as_ref()
            .filter(|pacing| self.room(outbound) >= pacing.chunk());
        let issue = paced.and_then(InputPacing::poll_timeout);
        match (service, issue) {
            // Served and paced: nothing is issued while a segment is served.
            (Some(end), Some(_)) if self.local_ack() == Some(LocalAck::BeforeService) => Some(end),
            _ => service.into_iter().chain(issue).min(),
        }
    }

    /// Carries out what a policy decided for the outbound leg: its send buffer, what may wait in
    /// it, its rate where forwarding is paced, and the rest by the sender itself. Congestion
    /// control is the scenario's.
    pub fn handle_decision(&mut self, decision: &LegDecision, outbound: &mut Sender) {
        if let (Some(size), Buffers::Separate { send }) =
            (decision.send_buffer, &mut self.configuration.buffers)
        {
            *send = size.bytes();
        }
        if let Some(limit) = decision.not_sent_limit {
            self.configuration.notsent_lowat = Some(limit.bytes());
        }
        let mut for_sender = *decision;
        if let Some(cap) = decision.in_flight_cap {
            self.in_flight_cap = Some(cap.bytes());
            // Nothing more is written; what has been is still sent.
            for_sender.in_flight_cap = Some(cap).filter(|cap| cap.bytes() > 0);
        }
        if let Some(rate) = decision.pacing_rate {
            match &mut self.pacing {
                Some(pacing) => pacing.set_rate(rate),
                None if decision.pacing_by == PacingBy::Input => {
                    let tcp = outbound.configuration();
                    let pacing = InputPacing::new(rate, tcp.segment_size, tcp.header_size);
                    self.pacing = Some(pacing);
                }
                None => {}
            }
            for_sender.pacing_rate = decision.pacing_rate.filter(|_| self.pacing.is_none());
        }
        outbound.handle_decision(&for_sender);
        if let Some(pacing) = &mut self.pacing {
            pacing.set_segment_size(outbound.configuration().segment_size);
        }
    }

    /// Bytes that were read from the inbound leg and not yet written to the outbound one.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.read - self.forwarded
    }

    fn local_ack(&self) -> Option<LocalAck> {
        self.configuration.service.map(|service| service.local_ack)
    }

    fn accept(&mut self, now: Time, segment: &Data, inbound: &mut Receiver) {
        let end_to_end = self.configuration.handshake == Handshake::EndToEnd;
        if end_to_end && segment.kind == DataKind::Synchronise && !self.established {
            self.held = Some(*segment);
        } else {
            inbound.handle_segment(now, segment);
        }
        if self.opening == Opening::NotAsked {
            self.opening = Opening::Asked;
        }
        debug_assert!(segment.kind != DataKind::Synchronise || segment.length == 0);
    }

    /// The outbound leg is established: a SYN that waits for that is answered.
    fn answer_held(&mut self, now: Time, inbound: &mut Receiver, outbound: &Sender) {
        self.established |= outbound.is_open();
        if self.established
            && let Some(segment) = self.held.take()
        {
            inbound.handle_segment(now, &segment);
        }
    }

    /// What is served next.
    fn next_served(&mut self, now: Time, inbound: &Receiver, outbound: &Sender) -> Option<Job> {
        match self.local_ack()? {
            LocalAck::AfterService => self.arrived.pop_front().map(Job::Acknowledge),
            LocalAck::BeforeService => self.next_forward(now, inbound, outbound),
        }
    }

    /// What is forwarded next.
    fn next_forward(&mut self, now: Time, inbound: &Receiver, outbound: &Sender) -> Option<Job> {
        if self.opening == Opening::Asked {
            self.opening = Opening::Done;
            return Some(Job::Open);
        }
        let room = self.room(outbound);
        if let Some(pacing) = &mut self.pacing {
            // Forward data is read when all that was read before has been issued.
            if pacing.may_read() {
                pacing.handle_read(inbound.next() - self.read);
                self.read = inbound.next();
            }
            return pacing.poll_chunk(now, room).map(Job::Forward);
        }
        let ready = inbound.next() - self.read;
        let bytes = if self.local_ack() == Some(LocalAck::BeforeService) {
            // Served one by one.
            let chunk = ready.min(segment_size(outbound));
            if room >= chunk { chunk } else { 0 }
        } else {
            ready.min(room)
        };
        self.read += bytes;
        (bytes > 0).then_some(Job::Forward(bytes))
    }

    fn finish(&mut self, now: Time, job: Job, inbound: &mut Receiver, outbound: &mut Sender) {
        match job {
            Job::Acknowledge(segment) => self.accept(now, &segment, inbound),
            Job::Open => {
                outbound.handle_open();
                self.answer_held(now, inbound, outbound);
            }
            Job::Forward(bytes) => {
                self.forwarded += bytes;
                outbound.handle_write(bytes);
            }
        }
    }

    fn service_time(&mut self) -> TimeSpan {
        match self.configuration.service.map(|service| service.time) {
            None => TimeSpan::ZERO,
            Some(ServiceTime::Constant(time)) => time,
            Some(ServiceTime::Exponential(mean)) => exponential(&mut self.stream, mean),
        }
    }

    /// Whether more can be moved as soon as the outbound leg has sent what it was given.
    #[must_use]
    pub const fn limits_unsent(&self) -> bool {
        self.configuration.notsent_lowat.is_some()
    }

    /// Whether connections are refused: whoever sends here gets a reset.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        self.configuration.refuse
    }

    /// Bytes that the outbound leg's send buffer can take. It holds a segment at least.
    fn room(&self, outbound: &Sender) -> u64 {
        let written = outbound.written();
        let buffer = match self.configuration.buffers {
            Buffers::Separate { send } => {
                let used = written - outbound.unacknowledged();
                send.max(segment_size(outbound)).saturating_sub(used)
            }
            // The advertised window of the inbound leg is the limit.
            Buffers::Granted { .. } => u64::MAX,
        };
        let unsent = self.configuration.notsent_lowat.map_or(u64::MAX, |most| {
            most.max(segment_size(outbound))
                .saturating_sub(outbound.not_sent())
        });
        let cap = self.in_flight_cap.map_or(u64::MAX, |most| match most {
            0 => 0,
            most => most
                .max(segment_size(outbound))
                .saturating_sub(written - outbound.unacknowledged()),
        });
        buffer.min(unsent).min(cap)
    }

    fn check_invariants(&self, inbound: &Receiver, outbound: &Sender) {
        debug_assert!(self.forwarded <= self.read && self.read <= inbound.next());
        debug_assert_eq!(self.forwarded, outbound.written());
        debug_assert!(match self.configuration.buffers {
            // A decision may have lowered it below what is in it.
            Buffers::Separate { .. } => true,
            Buffers::Granted { size } => inbound.next() - outbound.unacknowledged() <= size,
        });
    }
}

fn segment_size(outbound: &Sender) -> u64 {
    u64::from(outbound.configuration().segment_size)
}
