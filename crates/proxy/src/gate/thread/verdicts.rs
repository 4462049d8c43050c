//! What becomes of a packet that waited in the queue.

use std::os::fd::OwnedFd;

use midspan_linux::packet_queue::Verdict;
use midspan_policy::Request;
use tracing::{debug, warn};

use super::super::held::{Held, Packet};
use super::super::statistics::count;
use super::{LOG_INTERVAL, Worker};

impl Worker {
    /// Our own call ends before the client's SYN leaves: its answer must not find our socket, and
    /// NAT must not give it another port because ours is in use.
    pub(super) fn end_call(&self, server: OwnedFd, request: Request) {
        drop(server);
        let Request { client, server } = request;
        // There is none where the host does not track our call.
        let _ = self.tracking.forget(client, server, self.server_zone);
    }

    /// Whether connection tracking has no room for the entries of one more session.
    pub(super) fn is_tracking_full(&mut self) -> bool {
        (self.tracked).look(self.now, &self.tracking, &self.counters);
        let is_full = self.tracked.is_full(self.now);
        if is_full {
            count(&self.counters.passed_tracking);
        }
        is_full
    }

    /// A connection that was about to be opened passes untouched.
    pub(super) fn leave(&mut self, packet: u32, request: Request) {
        self.settle(request);
        self.pass(packet);
    }

    /// The same; the rules show what the client answers if the server's answer does not come by.
    pub(super) fn leave_watched(&mut self, packet: &Packet, request: Request) {
        self.settle(request);
        let mark = Some(packet.mark & !self.mask | self.watched_mark);
        self.decide(packet.id, Verdict::Accept { mark });
    }

    /// The rules answer with a RST.
    pub(super) fn refuse(&mut self, packet: &Packet, request: Request) {
        self.settle(request);
        let mark = Some(packet.mark & !self.mask | self.refused_mark);
        self.decide(packet.id, Verdict::Accept { mark });
    }

    /// Nothing is awaited any more, nor by copies of its SYN that wait in the queue.
    fn settle(&mut self, request: Request) {
        if let Some(sequence) = self.openings.forget(request) {
            self.settled.note(self.now, request, sequence);
        }
    }

    /// Nobody has answered: the client tries again, or gives up.
    pub(super) fn give_up(&mut self, held: Held) {
        count(&self.counters.unanswered);
        self.openings.forget(held.arrival.request);
        // Many dark servers would fill the table of connection tracking with such calls.
        self.end_call(held.server, held.arrival.request);
        self.decide(held.packet.id, Verdict::Drop);
    }

    /// It goes on as if there were no gate.
    pub(super) fn pass(&mut self, packet: u32) {
        self.decide(packet, Verdict::Accept { mark: None });
    }

    /// What is to be done with it; the kernel is told at the end of the turn at the latest.
    pub(super) fn decide(&mut self, packet: u32, verdict: Verdict) {
        // An error: the queue was emptied meanwhile, and the packet is gone.
        if let Err(error) = self.queue.decide(packet, verdict) {
            debug!("no verdict on a packet: {error}");
        }
    }

    /// Tells the kernel all that was decided.
    pub(super) fn tell_decisions(&mut self) {
        if let Err(error) = self.queue.flush() {
            debug!("no verdict on packets: {error}");
        }
    }

    /// The kernel refused something for a connection, which passes untouched; it may do so for
    /// each packet.
    pub(super) fn log_trouble(&mut self, what: &str, error: &std::io::Error) {
        if let Some(more) = self.trouble.admit(self.now) {
            warn!(
                others_since = more,
                "a connection passes untouched: {what}: {error}"
            );
        }
    }

    /// At most now and then: the reason is the same for many.
    pub(super) fn log_full(&mut self) {
        if self.now < self.next_log {
            return;
        }
        self.next_log = self.now + LOG_INTERVAL;
        warn!(
            opening = self.openings.count(),
            "connections pass untouched: too many are being opened, by all or by one client \
             (interception.opening_limit, opening_limit_per_client)"
        );
    }
}
