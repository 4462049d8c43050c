//! One session at a split proxy, in one direction.

use std::collections::VecDeque;

use midspan_link::Stream;
use midspan_policy::{FirstFlight, Handshake, InputPacing, LegDecision, PacingBy};
use midspan_units::{Time, TimeSpan};

use super::configuration::{Buffers, LocalAck, RelayConfiguration, ServiceTime};
use crate::packet::{Data, DataKind};
use crate::random::exponential;
use crate::tcp::{Receiver, Sender, SenderConfiguration};

/// Joins the receiver of the inbound leg to the sender of the outbound leg.
///
/// After every input to the receiver or the sender, call [`run`](Self::run), then take out what
/// both have to send. Do the same at the time of [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Relay {
    configuration: RelayConfiguration,
    /// Draws the service times.
    stream: Stream,
    /// Segments that wait for service before they are acknowledged.
    arrived: VecDeque<Data>,
    /// Whether a SYN has arrived, so that the outbound leg must be opened.
    opening: Opening,
    /// The time until the outbound leg can be opened.
    connect_time: TimeSpan,
    /// Total number of bytes read from the inbound leg.
    read: u64,
    /// Total number of bytes written to the outbound leg. The bytes between the two totals are in
    /// service, or wait in pacing.
    forwarded: u64,
    /// The job in service, and its end.
    job: Option<(Time, Job)>,
    /// Pacing at the input of TCP, if configured.
    pacing: Option<InputPacing>,
    /// A first flight that is to be spread, until it begins.
    first_flight: Option<FirstFlight>,
    /// The pacing that spreads it.
    spreading: Option<InputPacing>,
    /// Bytes that were read during the first flight, and are not part of it.
    behind_flight: u64,
    /// The round trip on the outbound leg, measured on another flow of the same connection.
    round_trip: Option<TimeSpan>,
    /// A SYN that is answered after the outbound leg's SYN was answered.
    held: Option<Data>,
    /// Whether the outbound leg's SYN was answered, or needed no answer.
    established: bool,
    /// Largest number of bytes that may be written and not acknowledged; `None`: no limit.
    in_flight_cap: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    NotAsked,
    /// From this time on, the outbound leg can be opened.
    Asked(Time),
    Done,
}

/// A job that takes service time.
#[derive(Debug, Clone, Copy)]
enum Job {
    /// A segment that is acknowledged after its service.
    Acknowledge(Data),
    /// The opening of the outbound leg.
    Open,
    /// A number of bytes that were acknowledged already.
    Forward(u64),
}

impl Relay {
    /// A new relay that writes to a sender configured as `outbound`, and draws its service times
    /// from `stream`.
    #[must_use]
    pub fn new(
        configuration: RelayConfiguration,
        outbound: &SenderConfiguration,
        stream: Stream,
    ) -> Self {
        let pacing = |rate| InputPacing::new(rate, outbound.segment_size, outbound.header_size);
        Self {
            pacing: configuration.pacing.map(pacing),
            first_flight: None,
            spreading: None,
            behind_flight: 0,
            round_trip: None,
            held: None,
            established: false,
            in_flight_cap: None,
            configuration,
            stream,
            arrived: VecDeque::new(),
            opening: Opening::NotAsked,
            connect_time: match outbound.handshake {
                true => configuration.connect_time,
                false => TimeSpan::ZERO,
            },
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

    /// Moves all data that can be moved. Returns the number of bytes that were read from the
    /// inbound leg in one piece: the forward data.
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

    /// When to call [`run`](Self::run) again if there is no other input.
    #[must_use]
    pub fn poll_timeout(&self, outbound: &Sender) -> Option<Time> {
        let service = self.job.as_ref().map(|(end, _)| *end);
        let before_service = self.local_ack() == Some(LocalAck::BeforeService);
        if let Opening::Asked(from) = self.opening
            && (service.is_none() || !before_service)
        {
            // Nothing is forwarded before.
            return service.into_iter().chain([from]).min();
        }
        let paced = self
            .pacing
            .as_ref()
            .filter(|pacing| self.room(outbound) >= pacing.chunk());
        let spread = self
            .spreading
            .as_ref()
            .filter(|pacing| self.room(outbound) >= pacing.chunk());
        let issue = paced.or(spread).and_then(InputPacing::poll_timeout);
        match (service, issue) {
            // With service and pacing, nothing is issued while a segment is in service.
            (Some(end), Some(_)) if before_service => Some(end),
            _ => service.into_iter().chain(issue).min(),
        }
    }

    /// Carries out a policy's decision for the outbound leg: the relay sets its send buffer, the
    /// limit of unsent data and its rate if forwarding is paced; the sender itself does the rest.
    /// The caller changes the sender's congestion control.
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
            // Nothing more is written; data that was written is still sent.
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

    /// The first data of the session leaves spread like this. It has no effect if forwarding is
    /// paced or takes service time.
    pub const fn spread(&mut self, flight: FirstFlight) {
        if self.pacing.is_none() && self.configuration.service.is_none() {
            self.first_flight = Some(flight);
        }
    }

    /// The round trip on the outbound leg, as far as another flow of the same connection has
    /// measured it.
    pub const fn set_round_trip(&mut self, round_trip: Option<TimeSpan>) {
        self.round_trip = round_trip;
    }

    /// Bytes that were read from the inbound leg and not yet written to the outbound leg.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.read - self.forwarded
    }

    fn local_ack(&self) -> Option<LocalAck> {
        self.configuration.service.map(|service| service.local_ack)
    }

    fn accept(&mut self, now: Time, segment: &Data, inbound: &mut Receiver) {
        let end_to_end =
            self.configuration.handshake == Handshake::EndToEnd || self.configuration.inbound_hop;
        if end_to_end && segment.kind == DataKind::Synchronise && !self.established {
            self.held = Some(*segment);
        } else {
            inbound.handle_segment(now, segment);
        }
        if self.opening == Opening::NotAsked {
            self.opening = Opening::Asked(now + self.connect_time);
        }
        debug_assert!(segment.kind != DataKind::Synchronise || segment.length == 0);
    }

    /// If the outbound leg is established, answers a SYN that waits for that.
    fn answer_held(&mut self, now: Time, inbound: &mut Receiver, outbound: &Sender) {
        self.established |= outbound.is_open();
        if self.established
            && let Some(segment) = self.held.take()
        {
            inbound.handle_segment(now, &segment);
        }
    }

    /// The next job for service.
    fn next_served(&mut self, now: Time, inbound: &Receiver, outbound: &Sender) -> Option<Job> {
        match self.local_ack()? {
            LocalAck::AfterService => self.arrived.pop_front().map(Job::Acknowledge),
            LocalAck::BeforeService => self.next_forward(now, inbound, outbound),
        }
    }

    /// The next job that forwards data.
    fn next_forward(&mut self, now: Time, inbound: &Receiver, outbound: &Sender) -> Option<Job> {
        if let Opening::Asked(from) = self.opening {
            if now < from {
                return None;
            }
            self.opening = Opening::Done;
            return Some(Job::Open);
        }
        let room = self.room(outbound);
        if let Some(pacing) = &mut self.pacing {
            // Forward data is read when all earlier data has been issued.
            if pacing.may_read() {
                pacing.handle_read(inbound.next() - self.read);
                self.read = inbound.next();
            }
            return pacing.poll_chunk(now, room).map(Job::Forward);
        }
        if self.behind_flight > 0 {
            let bytes = self.behind_flight.min(room);
            self.behind_flight -= bytes;
            return (bytes > 0).then_some(Job::Forward(bytes));
        }
        if inbound.next() > self.read
            && let Some(flight) = self.first_flight.take()
        {
            let round_trip = outbound.round_trip_time().or(self.round_trip);
            let tcp = outbound.configuration();
            self.spreading = flight.pacing(tcp.segment_size, tcp.header_size, round_trip);
        }
        if let Some(spreading) = &mut self.spreading {
            if spreading.may_read() {
                spreading.handle_read(inbound.next() - self.read);
                self.read = inbound.next();
            }
            let chunk = spreading.poll_chunk(now, room);
            if let Some(over) = self.spreading.take_if(|spreading| spreading.is_over()) {
                self.behind_flight = over.remaining();
            }
            return chunk.map(Job::Forward);
        }
        let ready = inbound.next() - self.read;
        let bytes = if self.local_ack() == Some(LocalAck::BeforeService) {
            // Segments are served one by one.
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

    /// Whether more data can be moved as soon as the outbound leg has sent what was written.
    #[must_use]
    pub const fn limits_unsent(&self) -> bool {
        self.configuration.notsent_lowat.is_some()
    }

    /// Whether connections are refused: any sender gets a reset.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        self.configuration.refuse
    }

    /// Bytes for which the outbound leg's send buffer has room. It holds at least one segment.
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
            // A decision may have lowered the size below the amount of data in the buffer.
            Buffers::Separate { .. } => true,
            Buffers::Granted { size } => inbound.next() - outbound.unacknowledged() <= size,
        });
    }
}

fn segment_size(outbound: &Sender) -> u64 {
    u64::from(outbound.configuration().segment_size)
}
