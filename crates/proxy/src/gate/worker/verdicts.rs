//! Verdicts about packets in the queue.

use midspan_linux::packet_queue::Verdict;
use midspan_policy::Request;
use midspan_wire::source;
use tracing::{debug, warn};

use super::super::held::{Call, Held, Packet};
use super::super::statistics::count;
use super::Worker;

impl Worker {
    /// Midspan's own attempt to connect ends before the client's SYN leaves: the SYN's answer must
    /// not reach Midspan's socket, and NAT must not give the client another port because Midspan's
    /// socket has this one. A call by a route has other addresses.
    pub(super) fn end_call(&self, call: Call, request: Request) {
        if let Call::Server(socket) = call {
            drop(socket);
            self.forget_tracked(request);
        }
    }

    /// Removes the entry of Midspan's own attempt, whose socket is closed, from connection tracking.
    pub(super) fn forget_tracked(&self, request: Request) {
        let Request { client, server } = request;
        // There is no entry if the host does not track Midspan's attempt.
        let _ = self.tracking.forget(client, server, self.server_zone);
    }

    /// Whether connection tracking has no room for the entries of one more session.
    pub(super) fn is_tracking_full(&self) -> bool {
        self.shared.tracked.look(self.now, &self.tracking);
        let is_full = self.shared.tracked.is_full(self.now);
        if is_full {
            count(&self.counters.passed_tracking);
        }
        is_full
    }

    /// A connection that was being opened passes untouched.
    pub(super) fn leave(&mut self, packet: u32, request: Request) {
        self.settle(request);
        self.pass(packet);
    }

    /// A connection passes untouched, and rules show whether the client answers although the
    /// server's answer does not pass this machine.
    pub(super) fn leave_watched(&mut self, packet: &Packet, request: Request) {
        self.settle(request);
        let mark = Some(packet.mark & !self.mask | self.watched_mark);
        self.decide(packet.id, Verdict::Accept { mark });
    }

    /// Rules answer the SYN with an RST.
    pub(super) fn refuse(&mut self, packet: &Packet, request: Request) {
        self.settle(request);
        let mark = Some(packet.mark & !self.mask | self.refused_mark);
        self.decide(packet.id, Verdict::Accept { mark });
    }

    /// Rules answer a packet of QUIC with the ICMP message "port unreachable", so that the client
    /// uses TCP. That of a drained client passes untouched, like its connections.
    pub(super) fn reject_quic(&mut self, packet: &Packet, listener: usize) {
        if source(&packet.bytes).is_some_and(|client| self.drains(client, listener)) {
            return self.pass(packet.id);
        }
        count(&self.counters.quic_rejected);
        let mark = Some(packet.mark & !self.mask | self.refused_mark);
        self.decide(packet.id, Verdict::Accept { mark });
    }

    /// Ends the opening of a connection, also for copies of its SYN that are in the queue. Another
    /// thread that handles a copy meanwhile finds it in one of the two places.
    fn settle(&self, request: Request) {
        let openings = &self.shared.openings;
        if let Some(sequence) = openings.sequence_of(request) {
            (self.shared.settled()).note(self.now, request, sequence);
            openings.forget(request);
        }
    }

    /// The server has not answered: the client tries again, or gives up.
    pub(super) fn give_up(&mut self, held: Held) {
        count(&self.counters.unanswered);
        self.shared.openings.forget(held.arrival.request);
        // Otherwise connections to many servers without answer would fill the table of connection
        // tracking.
        self.end_call(held.call, held.arrival.request);
        self.decide(held.packet.id, Verdict::Drop);
    }

    /// The packet passes as if there were no gate.
    pub(super) fn pass(&mut self, packet: u32) {
        self.decide(packet, Verdict::Accept { mark: None });
    }

    /// Sets a packet's verdict; the kernel gets it at the end of the turn at the latest.
    pub(super) fn decide(&mut self, packet: u32, verdict: Verdict) {
        // An error means that the queue was emptied meanwhile, and the packet is gone.
        if let Err(error) = self.queue.decide(packet, verdict) {
            debug!("no verdict on a packet: {error}");
        }
    }

    /// Sends all verdicts to the kernel.
    pub(super) fn send_decisions(&mut self) {
        if let Err(error) = self.queue.flush() {
            debug!("no verdict on packets: {error}");
        }
        if !self.is_replaced() {
            self.shared.note_sent(self.thread);
        }
    }

    /// Logs that the kernel refused something for a connection, which passes untouched. This may
    /// happen for each packet.
    pub(super) fn log_trouble(&self, what: &str, error: &std::io::Error) {
        if let Some(more) = self.shared.logs().trouble.admit(self.now) {
            warn!(
                others_since = more,
                "a connection passes untouched: {what}: {error}"
            );
        }
    }

    /// Logs this only from time to time, because the reason is the same for many connections.
    pub(super) fn log_full(&self) {
        if self.shared.logs().full.admit(self.now).is_some() {
            warn!(
                opening = self.shared.openings.count(),
                "connections pass untouched: too many are being opened, by all or by one client \
                 (interception.opening_limit, opening_limit_per_client)"
            );
        }
    }
}
