//! The gate's part on one thread of the relay.

mod admitting;
mod comparing;
mod holding;
mod recovery;
mod room;
mod routing;
mod starting;
mod verdicts;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::ConnectionTracking;
use midspan_linux::packet_queue::{Batch, PacketQueue, Verdict};
use midspan_linux::raw_packet::RawSocket;
use midspan_policy::leave_alone::Passage;
use midspan_policy::{KnowledgeParts, PartKey, Request};
use midspan_relay::kick::Target;
use midspan_relay::{EventSource, Reception, SharedKnowledge, SourceHost, SourceSockets};
use midspan_units::Time;
use midspan_wire::is_udp;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::control_group::ControlGroup;
use super::held::Packet;
use super::shared::Shared;
use super::statistics::{Counters, count};
use super::syn::{self, Segment};
use super::{GateListener, GateSettings};

/// Longest time between two turns.
const BEAT: Duration = Duration::from_millis(100);
/// The same while no packets arrive: then nothing waits for a time, and turns of many idle threads would take
/// processor time.
const IDLE_BEAT: Duration = Duration::from_secs(5);
/// How long a released SYN may stay unaccepted: the listener repeats its SYN-ACK after 1 s and 3 s.
/// Without this limit, a client that resets a half-open connection would keep its server leg for
/// longer. If a slower client is accepted later, Midspan connects to its server again.
const ACCEPT_LIMIT: Duration = Duration::from_secs(4);
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);
/// Packets that are read in one turn. They are few, so that other threads that are free read the
/// rest, and the sessions of this thread do not wait long.
const PACKETS_PER_TURN: usize = 8;
/// More reads than the longest possible queue needs.
const STALE_READS: usize = 16_384;

/// A command to the gate's part on a thread.
pub(super) enum Update {
    /// Changes the listeners; the sender gets a confirmation.
    Listeners(Vec<GateListener>, Sender<()>),
    /// Refuses held SYNs; the sender gets their number.
    Kick(Target, Sender<u64>),
    /// Ends; the sender gets a confirmation.
    Stop(Sender<()>),
}

/// What one part has for itself.
pub(super) struct WorkerParts {
    /// The number of its thread, and of all threads.
    pub thread: (usize, usize),
    /// Commands.
    pub updates: Receiver<Update>,
    /// The queue, which all parts share.
    pub queue: PacketQueue,
    /// For packets of IPv4 and IPv6, which all parts share; `None` for a family that the kernel
    /// lacks.
    pub raw: [Option<Arc<RawSocket>>; 2],
    /// The listeners, with policies of its own.
    pub listeners: Vec<GateListener>,
    /// Its counters.
    pub counters: Arc<Counters>,
    /// What sessions have taught of paths.
    pub knowledge: SharedKnowledge,
}

/// What decides about SYNs on one thread of the relay. All such parts of a gate read the same queue.
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: usize,
    /// How often the thread had been replaced before this part began.
    term: u64,
    updates: Receiver<Update>,
    /// The number of updates at the last turn.
    seen_updates: u64,
    queue: PacketQueue,
    batch: Batch,
    /// Packets that have just been read.
    arrived: Vec<Packet>,
    /// Watches the calls of held SYNs; `None` before the thread begins.
    sockets: Option<SourceSockets>,
    raw: [Option<Arc<RawSocket>>; 2],
    mask: u32,
    refused_mark: u32,
    watched_mark: u32,
    tracking: ConnectionTracking,
    server_zone: u16,
    listeners: Vec<GateListener>,
    knowledge: SharedKnowledge,
    control_group: ControlGroup,
    counters: Arc<Counters>,
    now: Instant,
    /// When the thread has to call it again.
    next_turn: Time,
    next_expiry: Instant,
    is_over: bool,
}

impl EventSource for Worker {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// The thread that is free reads the next packets.
    fn is_shared(&self) -> bool {
        true
    }

    fn begin(&mut self, sockets: SourceSockets) {
        self.sockets = Some(sockets);
        self.recover_lost();
    }

    fn handle(&mut self, _: &mut SourceHost<'_>) {
        if self.is_replaced() {
            self.is_over = true;
            return;
        }
        if let Err(error) = self.turn() {
            self.fail(&error);
        }
    }

    /// A server or a node has answered, or the network has reported an error.
    fn handle_socket(&mut self, number: u64, _: &mut SourceHost<'_>) {
        if self.is_replaced() {
            self.is_over = true;
            return;
        }
        if let Err(error) = self.begin_turn() {
            return self.fail(&error);
        }
        self.handle_answer(number);
        self.send_decisions();
    }

    fn in_hand(&self) -> Option<Request> {
        self.shared.in_hand(self.thread)
    }

    fn recover(&mut self) {
        self.recover_lost();
    }

    fn deadline(&self) -> Option<Time> {
        match self.shared.updates() == self.seen_updates {
            true => Some(self.next_turn),
            false => Some(Time::ZERO),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Worker {
    /// A part that reads the queue once a thread of the relay has it.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn new(
        settings: &GateSettings,
        shared: Arc<Shared>,
        parts: WorkerParts,
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let WorkerParts {
            thread: (thread, threads),
            updates,
            queue,
            raw,
            listeners,
            counters,
            knowledge,
        } = parts;
        Ok(Self {
            term: shared.term(thread),
            shared,
            thread,
            updates,
            seen_updates: 0,
            queue,
            batch: Batch::with_room(PACKETS_PER_TURN),
            arrived: Vec::new(),
            sockets: None,
            raw,
            mask: settings.mask,
            refused_mark: settings.refused_mark,
            watched_mark: settings.watched_mark,
            tracking: ConnectionTracking::open()?,
            server_zone: settings.server_zone,
            listeners,
            knowledge,
            control_group: ControlGroup::of_one_part(threads),
            counters,
            now,
            next_turn: Time::ZERO,
            next_expiry: now + EXPIRY_INTERVAL,
            is_over: false,
        })
    }

    /// Reads some packets, and does what is due.
    fn turn(&mut self) -> std::io::Result<()> {
        self.begin_turn()?;
        let has_more = self.read_queue()?;
        if self.is_replaced() {
            self.is_over = true;
            self.send_decisions();
            return Ok(());
        }
        self.handle_deadlines();
        self.expire();
        self.compare();
        self.shared.tracked.look_idly(self.now, &self.tracking);
        self.seen_updates = self.shared.updates();
        while let Ok(update) = self.updates.try_recv() {
            self.carry_out(update);
        }
        self.send_decisions();
        self.next_turn = match has_more {
            true => Time::ZERO,
            false => self.next_deadline(),
        };
        Ok(())
    }

    /// If no thread has made a turn for long, the process had been stopped, and the packets in the
    /// queue are old. This function drops them, also if this turn has no event of the queue.
    fn begin_turn(&mut self) -> std::io::Result<()> {
        self.now = Instant::now();
        count(&self.counters.turns);
        if self.shared.is_stale(self.now) {
            let shared = Arc::clone(&self.shared);
            let waking = shared.waking();
            // Another thread may have dropped the packets meanwhile.
            if shared.is_stale(self.now) {
                self.drop_queue()?;
                self.abandon_held();
                self.send_decisions();
            }
            shared.note_turn(self.thread, self.now);
            drop(waking);
        }
        self.shared.note_turn(self.thread, self.now);
        Ok(())
    }

    /// Whether another part has this thread's number: then this one decides nothing any more.
    fn is_replaced(&self) -> bool {
        self.shared.term(self.thread) != self.term
    }

    /// No more packets can be handled.
    fn fail(&mut self, error: &std::io::Error) {
        tracing::error!("no connections are intercepted any more: {error}");
        self.is_over = true;
        self.shared.note_failure();
    }

    fn carry_out(&mut self, update: Update) {
        // The caller may no longer wait.
        match update {
            Update::Listeners(listeners, done) => {
                self.change_listeners(listeners);
                self.send_decisions();
                let _ = done.send(());
            }
            Update::Kick(target, reply) => {
                let meant = |request| target.has_end_of(&request);
                let held = self.take_held(|all| all.take_meant(meant));
                let count = held.len() as u64;
                for held in held {
                    self.refuse(&held.packet, held.arrival.request);
                }
                self.send_decisions();
                let _ = reply.send(count);
            }
            Update::Stop(done) => {
                self.is_over = true;
                let _ = done.send(());
            }
        }
    }

    fn change_listeners(&mut self, listeners: Vec<GateListener>) {
        self.listeners = listeners;
        let known = |mark| self.listeners.iter().any(|known| known.mark == mark);
        let gone = self.take_held(|all| all.take_others(known));
        for held in gone {
            self.end_call(held.call, held.arrival.request);
            self.leave(held.packet.id, held.arrival.request);
        }
    }

    /// The index of the listener with this mark.
    fn listener_of(&self, mark: u32) -> Option<usize> {
        self.listeners.iter().position(|known| known.mark == mark)
    }

    fn next_deadline(&self) -> Time {
        let next = [
            self.shared.held().next_deadline(),
            self.control_group.next(),
        ];
        let is_idle = self.shared.is_idle(self.now) && !self.shared.tracked.was_full();
        let beat = self.now + if is_idle { IDLE_BEAT } else { BEAT };
        let next = next.into_iter().flatten().min();
        (self.shared.clock).at(next.map_or(beat, |next| next.min(beat)))
    }

    /// Returns whether there may be more packets.
    fn read_queue(&mut self) -> std::io::Result<bool> {
        let mut packets = std::mem::take(&mut self.arrived);
        let has_more = self.queue.receive_batch(&mut self.batch, |packet| {
            packets.push(Packet {
                id: packet.id,
                mark: packet.mark,
                bytes: packet.payload.to_vec(),
                length: packet.length,
            });
        });
        if !packets.is_empty() {
            self.shared.note_packets(self.now);
        }
        let numbers = packets.iter().map(|packet| packet.id);
        self.shared.take_up(self.thread, numbers);
        for packet in packets.drain(..) {
            match self.is_replaced() {
                false => self.handle_packet(packet),
                // The client has repeated the SYN meanwhile.
                true => self.decide(packet.id, Verdict::Drop),
            }
        }
        self.arrived = packets;
        has_more
    }

    /// Drops all packets in the queue, whose number is limited.
    fn drop_queue(&mut self) -> std::io::Result<()> {
        let mut waiting = Vec::new();
        for _ in 0..STALE_READS {
            let (queue, batch) = (&self.queue, &mut self.batch);
            if !queue.receive_batch(batch, |packet| waiting.push(packet.id))? {
                break;
            }
        }
        for packet in waiting {
            count(&self.counters.dropped_stale);
            self.decide(packet, Verdict::Drop);
        }
        Ok(())
    }

    fn handle_packet(&mut self, mut packet: Packet) {
        let listener = self.listener_of(packet.mark & self.mask);
        match (listener, syn::read(&packet.bytes)) {
            (Some(listener), Some(Segment::Syn(syn))) => match room::shorten(&mut packet) {
                true => {
                    self.shared.put_in_hand(self.thread, Some(syn.request));
                    self.handle_syn(packet, listener, syn);
                    self.shared.put_in_hand(self.thread, None);
                }
                false => self.pass(packet.id),
            },
            (Some(_), Some(Segment::Acknowledgement(request))) => {
                self.prove_asymmetric(request);
                self.pass(packet.id);
            }
            // The rules choose only QUIC that the listener rejects.
            (Some(listener), None) if is_udp(&packet.bytes) => self.reject_quic(&packet, listener),
            _ => self.pass(packet.id),
        }
    }

    fn handle_syn(&mut self, packet: Packet, listener: usize, syn: syn::Syn) {
        if syn.is_authenticated {
            count(&self.counters.passed_authenticated);
            return self.pass(packet.id);
        }
        if syn.joins_multipath {
            count(&self.counters.passed_multipath);
            return self.pass(packet.id);
        }
        if self.is_settled(&syn) {
            count(&self.counters.retransmissions_held);
            return self.decide(packet.id, Verdict::Drop);
        }
        match self.arrive(&syn) {
            // Another thread has settled an earlier copy between the two looks.
            Reception::New if self.is_settled(&syn) => {
                count(&self.counters.retransmissions_held);
                self.shared.openings.forget(syn.request);
                self.decide(packet.id, Verdict::Drop);
            }
            Reception::New => self.admit(packet, syn.request, listener),
            Reception::Held if self.holds_attempt(syn.request, syn.sequence) => {
                self.handle_repetition(&packet, syn.request);
            }
            Reception::Held | Reception::HeldOther => self.replace_held(packet, syn.request),
            // The listener's SYN-ACK was lost: the listener sends it again.
            Reception::Released => {
                self.decide(packet.id, Verdict::Drop);
                let window = self.window_of(syn.request);
                let _ = self.send_on(packet.bytes, syn.request, listener, (window, self.thread));
            }
            Reception::Full | Reception::FullBut(_) => {
                count(&self.counters.passed_full);
                self.log_full();
                self.pass(packet.id);
            }
        }
    }

    /// Whether a SYN is a copy of one that passed untouched, or was refused, a moment ago.
    fn is_settled(&self, syn: &syn::Syn) -> bool {
        (self.shared.settled()).is_copy(self.now, syn.request, syn.sequence)
    }

    /// The client's address and port cannot be used for the server leg.
    fn leave_uncalled(&mut self, packet: u32, request: Request, error: &Errno) {
        // The client uses its port again, and the server leg of its last connection is about to be
        // closed. If the SYN passed, the server would treat it as part of that connection. The
        // client repeats the SYN.
        if *error == Errno::ADDRNOTAVAIL {
            debug!("{} waits for its last connection to end", request.client);
            count(&self.counters.dropped_port_in_use);
            self.shared.openings.forget(request);
            return self.decide(packet, Verdict::Drop);
        }
        debug!("{} passes untouched: {error}", request.server);
        count(&self.counters.passed_unreachable);
        self.leave(packet, request);
    }

    /// Whether a connection passes untouched because of its route; its SYN has come again so often.
    fn passage(&mut self, request: Request, listener: usize, repetitions: u32) -> Passage {
        let now = self.relay_time();
        let known = &mut self.knowledge;
        match self.listeners.get_mut(listener) {
            Some(of) => of.policy.passage(now, &request, repetitions, known),
            None => Passage::Intercept,
        }
    }

    /// A client acknowledges what its server has answered by another way.
    fn prove_asymmetric(&mut self, request: Request) {
        let now = self.relay_time();
        let routes = &mut self.knowledge.part(PartKey::routes(&request)).routes;
        routes.prove(now, &request);
        count(&self.counters.asymmetric_routes_found);
        if self.shared.logs().routes.admit(self.now).is_some() {
            warn!(
                server = %request.server,
                client = %request.client,
                "answers of a server do not come back this way: its network is left alone for \
                 this client for a while; where that is so for all clients, put it into `except`"
            );
        }
    }

    /// Handles sessions that were accepted early and whose servers never answered.
    fn suspect_routes(&mut self) {
        let unanswered = self.shared.openings.take_unanswered();
        if unanswered.is_empty() {
            return;
        }
        let now = self.relay_time();
        for request in unanswered {
            let routes = &mut self.knowledge.part(PartKey::routes(&request)).routes;
            routes.suspect(now, &request);
        }
    }

    fn expire(&mut self) {
        if self.now < self.next_expiry {
            return;
        }
        self.next_expiry = self.now + EXPIRY_INTERVAL;
        if self.shared.is_expiry_due(self.now, EXPIRY_INTERVAL)
            && let Some(limit) = self.now.checked_sub(ACCEPT_LIMIT)
        {
            let expired = self.shared.openings.expire(limit) as u64;
            self.counters.expired.fetch_add(expired, Ordering::Relaxed);
        }
    }

    /// The time of this turn on the relay's clock.
    fn relay_time(&self) -> Time {
        self.shared.clock.at(self.now)
    }
}

impl Drop for Worker {
    /// A part that ends without a command, because its thread could not watch the queue, is missed.
    fn drop(&mut self) {
        if !self.is_over && !self.is_replaced() {
            self.shared.note_failure();
        }
    }
}
