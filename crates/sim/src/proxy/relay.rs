//! One session at a split proxy, in one direction.

use std::collections::VecDeque;

use midspan_link::Stream;
use midspan_units::{Time, TimeSpan};

use super::configuration::{Buffers, LocalAck, RelayConfiguration, ServiceTime};
use crate::packet::{Data, DataKind};
use crate::random::exponential;
use crate::tcp::{Receiver, Sender};

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
    /// When the next paced segment may be issued.
    next_issue: Time,
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
    /// A relay that has seen nothing yet, and draws its service times from `stream`.
    #[must_use]
    pub const fn new(configuration: RelayConfiguration, stream: Stream) -> Self {
        Self {
            configuration,
            stream,
            arrived: VecDeque::new(),
            opening: Opening::NotAsked,
            read: 0,
            forwarded: 0,
            job: None,
            next_issue: Time::ZERO,
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
        inbound.handle_release(match self.configuration.buffers {
            Buffers::Separate { .. } => self.read,
            Buffers::Granted { .. } => outbound.unacknowledged(),
        });
        self.check_invariants(inbound, outbound);
        self.read - read_before
    }

    /// When to [`run`](Self::run) again without any other input.
    #[must_use]
    pub fn poll_timeout(&self, outbound: &Sender) -> Option<Time> {
        let service = self.job.as_ref().map(|(end, _)| *end);
        let waiting = self.read - self.forwarded;
        let paced = self.configuration.pacing.is_some() && waiting > 0;
        let issue = (paced && self.room(outbound) >= waiting.min(segment_size(outbound)))
            .then_some(self.next_issue);
        match (service, issue) {
            // Served and paced: nothing is issued while a segment is served.
            (Some(end), Some(_)) if self.local_ack() == Some(LocalAck::BeforeService) => Some(end),
            _ => service.into_iter().chain(issue).min(),
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
        inbound.handle_segment(now, segment);
        if self.opening == Opening::NotAsked {
            self.opening = Opening::Asked;
        }
        debug_assert!(segment.kind != DataKind::Synchronise || segment.length == 0);
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
        if self.configuration.pacing.is_some() {
            return self.next_paced(now, inbound, outbound).map(Job::Forward);
        }
        let ready = inbound.next() - self.read;
        let room = self.room(outbound);
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

    /// Shikama §3.2: forward data is read when all that was read before has been issued.
    fn next_paced(&mut self, now: Time, inbound: &Receiver, outbound: &Sender) -> Option<u64> {
        if self.read == self.forwarded {
            self.read = inbound.next();
        }
        let chunk = (self.read - self.forwarded).min(segment_size(outbound));
        let issue = chunk > 0 && now >= self.next_issue && self.room(outbound) >= chunk;
        if !issue {
            return None;
        }
        let rate = self.configuration.pacing?;
        let size = chunk + u64::from(outbound.configuration().header_size);
        self.next_issue = now + rate.transmission_time(size);
        Some(chunk)
    }

    fn finish(&mut self, now: Time, job: Job, inbound: &mut Receiver, outbound: &mut Sender) {
        match job {
            Job::Acknowledge(segment) => self.accept(now, &segment, inbound),
            Job::Open => outbound.handle_open(),
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

    /// Bytes that the outbound leg's send buffer can take.
    const fn room(&self, outbound: &Sender) -> u64 {
        match self.configuration.buffers {
            Buffers::Separate { send } => {
                send.saturating_sub(outbound.written() - outbound.unacknowledged())
            }
            // The advertised window of the inbound leg is the limit.
            Buffers::Granted { .. } => u64::MAX,
        }
    }

    fn check_invariants(&self, inbound: &Receiver, outbound: &Sender) {
        debug_assert!(self.forwarded <= self.read && self.read <= inbound.next());
        debug_assert_eq!(self.forwarded, outbound.written());
        debug_assert!(match self.configuration.buffers {
            Buffers::Separate { send } => outbound.written() - outbound.unacknowledged() <= send,
            Buffers::Granted { size } => inbound.next() - outbound.unacknowledged() <= size,
        });
    }
}

fn segment_size(outbound: &Sender) -> u64 {
    u64::from(outbound.configuration().segment_size)
}
