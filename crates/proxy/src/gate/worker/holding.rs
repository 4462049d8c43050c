//! SYNs that are held while Midspan connects to their servers.

use std::sync::Arc;
use std::time::Duration;

use midspan_linux::packet_queue::Verdict;
use midspan_policy::Request;
use midspan_policy::leave_alone::Passage;
use midspan_relay::{Arrival, Shortage, connect_as_client};
use midspan_units::Dscp;
use rustix::io::Errno;
use rustix::net::sockopt;

use super::super::held::{Call, Held, HeldSyns, Packet};
use super::super::statistics::count;
use super::super::syn::{self, Segment};
use super::Worker;

impl Worker {
    /// Holds the SYN and connects to its server.
    pub(super) fn call(&mut self, packet: Packet, listener: usize, mut arrival: Arrival) {
        let request = arrival.request;
        let mark = packet.mark & !self.mask;
        let timeout = arrival.connect_timeout.map(Duration::from);
        let Ok(memory) = self.set_aside(packet.length) else {
            self.count_shortage(Shortage::Memory);
            return self.leave(packet.id, request);
        };
        let Some((start, window)) = self.server_start(request, listener) else {
            return self.leave(packet.id, request);
        };
        arrival.server_flight = start.first_flight;
        arrival.window = window;
        let Some(known) = self.listeners.get(listener) else {
            return self.leave(packet.id, request);
        };
        let class = Dscp::of_packet(&packet.bytes).unwrap_or_default();
        match connect_as_client(request, mark, &known.listener, &start, class) {
            Ok(connecting) => {
                let listener = known.mark;
                self.hold(Held {
                    packet,
                    listener,
                    arrival,
                    call: Call::Server(connecting.socket),
                    thread: self.thread,
                    sockets: None,
                    deadline: timeout.and_then(|timeout| self.now.checked_add(timeout)),
                    memory,
                    repetitions: 0,
                });
            }
            Err(error) => self.leave_uncalled(packet.id, request, &error),
        }
    }

    /// The client has repeated its SYN while the first one is held.
    pub(super) fn handle_repetition(&mut self, packet: &Packet, request: Request) {
        // Another thread may be slow to notice the answer of the server.
        if let Some(held) =
            self.take_held(|all| all.take_if(request, |held| held.call.is_answered()))
        {
            count(&self.counters.retransmissions_held);
            self.decide(packet.id, Verdict::Drop);
            return self.answer(held);
        }
        let noted = (self.shared.held().of(request)).map(|(_, held)| {
            held.repetitions = held.repetitions.saturating_add(1);
            (held.listener, held.repetitions, held.call.is_by_route())
        });
        // Another thread has the first SYN in hand.
        let Some((mark, repetitions, is_by_route)) = noted else {
            count(&self.counters.retransmissions_held);
            return self.decide(packet.id, Verdict::Drop);
        };
        // A route of the overlay does not depend on how the server's answers come back.
        let listener = self.listener_of(mark).filter(|_| !is_by_route);
        let passage = listener.map_or(Passage::Intercept, |listener| {
            self.passage(request, listener, repetitions)
        });
        let taken = match passage {
            Passage::Intercept => None,
            // The server may have answered meanwhile.
            Passage::Pass | Passage::PassWatched => {
                self.take_held(|all| all.take_if(request, |held| !held.call.is_answered()))
            }
        };
        let Some(held) = taken else {
            count(&self.counters.retransmissions_held);
            return self.decide(packet.id, Verdict::Drop);
        };
        self.decide(held.packet.id, Verdict::Drop);
        self.end_call(held.call, request);
        if passage == Passage::Pass {
            count(&self.counters.passed_asymmetric);
            return self.leave(packet.id, request);
        }
        count(&self.counters.passed_unanswered);
        self.leave_watched(packet, request);
    }

    /// Holds a SYN from now on, and watches its call.
    pub(super) fn hold(&mut self, mut held: Held) {
        let token = self.shared.next_token();
        let (packet, request) = (held.packet.id, held.arrival.request);
        let watched = match &self.sockets {
            // The thread looks for events of the socket only after this function, so the SYN is
            // among those held before the server's answer is handled.
            Some(sockets) => sockets.watch(held.call.socket(), token),
            None => Err(std::io::ErrorKind::NotConnected.into()),
        };
        if let Err(error) = watched {
            count(&self.counters.passed_unreachable);
            self.leave(packet, request);
            return self.log_trouble("its server leg cannot be watched", &error);
        }
        held.sockets.clone_from(&self.sockets);
        self.keep(token, held);
    }

    /// Puts a SYN among those that are held, with a token that no other one has.
    pub(super) fn keep(&mut self, token: u64, held: Held) {
        let packet = held.packet.id;
        let shared = Arc::clone(&self.shared);
        let mut all = shared.held();
        // The part that replaces this one takes over what is held, and then no more.
        match self.is_replaced() {
            false => all.insert(token, held),
            true => return self.decide(packet, Verdict::Drop),
        }
        drop(all);
        shared.put_down(self.thread, packet);
    }

    /// Takes SYNs from those that are held: from now on, this part has to decide about them.
    pub(super) fn take_held<T>(&self, take: impl FnOnce(&mut HeldSyns) -> T) -> T
    where
        for<'a> &'a T: IntoIterator<Item = &'a Held>,
    {
        let taken = take(&mut self.shared.held());
        let packets = IntoIterator::into_iter(&taken).map(|held| held.packet.id);
        self.shared.take_up(self.thread, packets);
        taken
    }

    /// Whether the held SYN of this connection has this sequence number. It has another one if the client has
    /// begun a new attempt while a thread had the SYN of the former one in hand.
    pub(super) fn holds_attempt(&self, request: Request, sequence: u32) -> bool {
        let is_of_attempt = |held: &Held| match syn::read(&held.packet.bytes) {
            Some(Segment::Syn(syn)) => syn.sequence == sequence,
            _ => false,
        };
        let mut all = self.shared.held();
        let held = all.of(request);
        held.is_none_or(|(_, held)| is_of_attempt(held))
    }

    /// The client has begun a new attempt from the same port; the connection to the server stays
    /// the same.
    pub(super) fn replace_held(&mut self, packet: Packet, request: Request) {
        let (kept, replaced) = match self.shared.held().of(request) {
            Some((_, held)) => {
                held.repetitions = 0;
                let kept = packet.id;
                (Some(kept), std::mem::replace(&mut held.packet, packet).id)
            }
            // Another thread has the first SYN in hand. The client repeats this one.
            None => (None, packet.id),
        };
        if let Some(kept) = kept {
            self.shared.put_down(self.thread, kept);
        }
        self.decide(replaced, Verdict::Drop);
    }

    /// The server or a node has answered, or the network has reported an error.
    pub(super) fn handle_answer(&mut self, token: u64) {
        if let Some(held) = self.take_held(|all| all.take(token)) {
            let request = held.arrival.request;
            self.shared.put_in_hand(self.thread, Some(request));
            match held.call {
                Call::Server(_) => self.answer(held),
                Call::Route(_) => self.answer_by_route(token, held),
            }
            self.shared.put_in_hand(self.thread, None);
        }
    }

    /// Decides about a SYN that is no longer held, by the state of its server leg.
    pub(super) fn answer(&mut self, mut held: Held) {
        match sockopt::socket_error(held.call.socket()) {
            Ok(Ok(())) => self.release_answered(held),
            // The kernel reports a refused SYN as ECONNREFUSED. These errors follow the server's answer, perhaps
            // behind data, which the relay still reads.
            Ok(Err(error @ (Errno::CONNRESET | Errno::PIPE))) => {
                held.arrival.server_reset = Some(error);
                self.release_answered(held);
            }
            Ok(Err(Errno::CONNREFUSED)) => {
                count(&self.counters.refused);
                self.refuse(&held.packet, held.arrival.request);
            }
            Ok(Err(Errno::TIMEDOUT)) => self.give_up(held),
            // The network reports the error to the client itself when the client's SYN reaches the
            // same place.
            Ok(Err(_)) | Err(_) => {
                count(&self.counters.passed_unreachable);
                self.end_call(held.call, held.arrival.request);
                self.leave(held.packet.id, held.arrival.request);
            }
        }
    }

    /// The server has answered: the relay gets the connection.
    fn release_answered(&mut self, held: Held) {
        // From here on the relay counts the session's memory, and watches the socket.
        drop(held.memory);
        if let Some(sockets) = &held.sockets {
            let _ = sockets.forget(held.call.socket());
        }
        let request = held.arrival.request;
        match (self.listener_of(held.listener), held.call) {
            (Some(listener), Call::Server(server)) => {
                self.note_opened_here(&held.arrival);
                let syn = (held.packet, request);
                self.release(syn, listener, held.arrival, Some(server));
            }
            (_, call) => {
                self.end_call(call, request);
                self.leave(held.packet.id, request);
            }
        }
    }

    /// After the gate was stopped: the clients have repeated their SYNs meanwhile, which have
    /// passed the gate.
    pub(super) fn abandon_held(&mut self) {
        for held in self.take_held(HeldSyns::take_all) {
            let request = held.arrival.request;
            count(&self.counters.dropped_stale);
            self.shared.openings.forget(request);
            self.end_call(held.call, request);
            self.decide(held.packet.id, Verdict::Drop);
        }
    }

    /// Takes a SYN whose time has passed, with its token.
    fn take_due(&self) -> Option<(u64, Held)> {
        let (token, held) = self.shared.held().take_due(self.now)?;
        let packet = std::iter::once(held.packet.id);
        self.shared.take_up(self.thread, packet);
        Some((token, held))
    }

    pub(super) fn handle_deadlines(&mut self) {
        while let Some((token, held)) = self.take_due() {
            self.time_out(token, held);
        }
    }
}
