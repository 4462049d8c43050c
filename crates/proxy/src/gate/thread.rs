//! The gate's thread.

mod comparing;
mod room;
mod starting;
mod verdicts;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::ConnectionTracking;
use midspan_linux::packet_queue::{BUFFER, PacketQueue, Verdict};
use midspan_linux::raw_packet::RawSocket;
use midspan_log::LogRate;
use midspan_policy::leave_alone::Passage;
use midspan_policy::{Admission, Handshake, KnowledgeParts, PartKey, Request};
use midspan_relay::kick::Target;
use midspan_relay::seeded_faults::{self, Fault};
use midspan_relay::{
    Arrival, Clock, Limits, Openings, Reception, Released, SharedKnowledge, Shortage,
    connect_as_client,
};
use midspan_units::{Dscp, Time};
use midspan_wire::is_udp;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use tracing::{debug, warn};

use super::control_group::ControlGroup;
use super::held::{Held, HeldSyns, Packet};
use super::settled::SettledSyns;
use super::statistics::{Counters, count};
use super::syn::{self, Segment};
use super::tracked::TrackedEntries;
use super::{GateListener, GateSettings, RawSockets, RelaySide};

/// Longest time without a sign of life.
const BEAT: Duration = Duration::from_millis(100);
/// If the gate wakes later than this, it had been stopped: the packets in the queue are old. Their
/// clients have repeated them meanwhile, perhaps past the gate.
const STALE: Duration = Duration::from_millis(500);
/// How long a released SYN may stay unaccepted: the listener repeats its SYN-ACK after 1 s and 3 s.
/// Without this limit, a client that resets a half-open connection would keep its server leg for
/// longer. If a slower client is accepted later, Midspan connects to its server again.
const ACCEPT_LIMIT: Duration = Duration::from_secs(4);
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);
/// Least time between two log lines about the same trouble.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
const EVENTS: usize = 256;
/// Reads of the queue in one turn, so that answers of servers are not delayed.
const READS_PER_TURN: usize = 64;
/// More reads than the longest possible queue needs.
const STALE_READS: usize = 16_384;
/// Token of the queue; held connections count from 1.
const QUEUE: u64 = 0;

/// A command to the thread.
pub(super) enum Update {
    /// Changes the listeners; the sender gets a confirmation.
    Listeners(Vec<GateListener>, Sender<()>),
    /// Refuses held SYNs; the sender gets their number.
    Kick(Target, Sender<u64>),
}

pub(super) struct Worker {
    updates: Receiver<Update>,
    queue: PacketQueue,
    epoll: OwnedFd,
    raw: [Option<RawSocket>; 2],
    mask: u32,
    refused_mark: u32,
    watched_mark: u32,
    tracking: ConnectionTracking,
    tracked: TrackedEntries,
    server_zone: u16,
    listeners: Vec<GateListener>,
    openings: Arc<Openings>,
    limits: Option<Arc<Limits>>,
    knowledge: SharedKnowledge,
    clock: Clock,
    held: HeldSyns,
    control_group: ControlGroup,
    settled: SettledSyns,
    next_token: u64,
    counters: Arc<Counters>,
    now: Instant,
    next_expiry: Instant,
    next_log: Instant,
    next_route_log: Instant,
    trouble: LogRate,
}

impl Worker {
    /// Opens the queue, with room for this many packets.
    pub fn new(
        settings: &GateSettings,
        listeners: Vec<GateListener>,
        relay: RelaySide,
        raw: RawSockets,
        queue_length: u32,
        counters: Arc<Counters>,
        updates: Receiver<Update>,
    ) -> std::io::Result<Self> {
        let queue = PacketQueue::bind(settings.queue, queue_length, syn::COPIED)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &queue, EventData::new_u64(QUEUE), EventFlags::IN)?;
        let now = Instant::now();
        relay
            .knowledge
            .keep_asymmetric_routes(settings.asymmetric_route_time);
        Ok(Self {
            updates,
            queue,
            epoll,
            raw: raw.map(|raw| raw.map(RawSocket::from_socket)),
            mask: settings.mask,
            refused_mark: settings.refused_mark,
            watched_mark: settings.watched_mark,
            tracking: ConnectionTracking::open()?,
            tracked: TrackedEntries::new(now),
            server_zone: settings.server_zone,
            listeners,
            openings: relay.openings,
            limits: relay.limits,
            knowledge: relay.knowledge,
            clock: relay.clock,
            held: HeldSyns::default(),
            control_group: ControlGroup::default(),
            settled: SettledSyns::default(),
            next_token: QUEUE + 1,
            counters,
            now,
            next_expiry: now + EXPIRY_INTERVAL,
            next_log: now,
            next_route_log: now,
            trouble: LogRate::new(1, LOG_INTERVAL),
        })
    }

    /// Runs until `stop` is set.
    pub fn run(mut self, stop: &AtomicBool) -> std::io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; BUFFER];
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let last = std::mem::replace(&mut self.now, Instant::now());
            let is_stale = self.now.saturating_duration_since(last) > STALE;
            count(&self.counters.turns);
            if is_stale {
                // Also if this turn has no event of the queue.
                self.drop_queue(&mut buffer)?;
                self.abandon_held();
            }
            for event in &events {
                match event.data.u64() {
                    QUEUE => self.read_queue(&mut buffer)?,
                    token => self.handle_answer(token),
                }
            }
            self.handle_deadlines();
            self.expire();
            self.compare();
            (self.tracked).look(self.now, &self.tracking, &self.counters);
            while let Ok(update) = self.updates.try_recv() {
                self.carry_out(update);
            }
            self.send_decisions();
        }
        Ok(())
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
                let held = self.held.take_meant(meant);
                let count = held.len() as u64;
                for held in held {
                    self.refuse(&held.packet, held.arrival.request);
                }
                self.send_decisions();
                let _ = reply.send(count);
            }
        }
    }

    fn change_listeners(&mut self, listeners: Vec<GateListener>) {
        let old = std::mem::replace(&mut self.listeners, listeners);
        let new = |listener: usize| {
            let gone = old.get(listener)?;
            self.listeners
                .iter()
                .position(|known| known.mark == gone.mark)
        };
        for held in self.held.reassign(new) {
            self.end_call(held.server, held.arrival.request);
            self.leave(held.packet.id, held.arrival.request);
        }
    }

    fn timeout(&self) -> Timespec {
        let next = [self.held.next_deadline(), self.control_group.next()];
        let next = next.into_iter().flatten().min();
        let wait = next.map_or(BEAT, |next| {
            next.saturating_duration_since(self.now).min(BEAT)
        });
        Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        }
    }

    fn read_queue(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut packets = Vec::new();
        for _ in 0..READS_PER_TURN {
            let more = self.queue.receive(buffer, |packet| {
                packets.push(Packet {
                    id: packet.id,
                    mark: packet.mark,
                    bytes: packet.payload.to_vec(),
                    length: packet.length,
                });
            })?;
            for packet in packets.drain(..) {
                self.handle_packet(packet);
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Drops all packets in the queue, whose number is limited.
    fn drop_queue(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut waiting = Vec::new();
        for _ in 0..STALE_READS {
            let queue = &self.queue;
            if !queue.receive(buffer, |packet| waiting.push(packet.id))? {
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
        let ours = packet.mark & self.mask;
        let mut listeners = self.listeners.iter();
        let listener = listeners.position(|known| known.mark == ours);
        match (listener, syn::read(&packet.bytes)) {
            (Some(listener), Some(Segment::Syn(syn))) => match room::shorten(&mut packet) {
                true => self.handle_syn(packet, listener, syn),
                false => self.pass(packet.id),
            },
            (Some(_), Some(Segment::Acknowledgement(request))) => {
                self.prove_asymmetric(request);
                self.pass(packet.id);
            }
            // The rules choose only QUIC that the listener rejects.
            (Some(_), None) if is_udp(&packet.bytes) => self.reject_quic(&packet),
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
        if (self.settled).is_copy(self.now, syn.request, syn.sequence) {
            count(&self.counters.retransmissions_held);
            return self.decide(packet.id, Verdict::Drop);
        }
        match self.arrive(&syn) {
            Reception::New => self.admit(packet, syn.request, listener),
            Reception::Held => self.handle_repetition(&packet, syn.request),
            Reception::HeldOther => self.replace_held(packet, syn.request),
            // The listener's SYN-ACK was lost: the listener sends it again.
            Reception::Released => {
                self.decide(packet.id, Verdict::Drop);
                let window = self.window_of(syn.request);
                let _ = self.send_on(packet.bytes, syn.request, listener, window);
            }
            Reception::Full | Reception::FullBut(_) => {
                count(&self.counters.passed_full);
                self.log_full();
                self.pass(packet.id);
            }
        }
    }

    /// Decides whether to intercept a new connection.
    fn admit(&mut self, packet: Packet, request: Request, listener: usize) {
        self.suspect_routes();
        let now = self.relay_time();
        match self.passage(request, listener, 0) {
            Passage::Intercept => {}
            Passage::Pass => {
                count(&self.counters.passed_asymmetric);
                return self.leave(packet.id, request);
            }
            Passage::PassWatched => {
                count(&self.counters.passed_asymmetric);
                return self.leave_watched(&packet, request);
            }
        }
        let Some(known) = self.listeners.get_mut(listener) else {
            return self.leave(packet.id, request);
        };
        match known.policy.admit(now, &request) {
            Admission::Intercept { .. } if self.is_of_control_group(request, listener) => {
                self.leave_to_compare(&packet, request);
            }
            Admission::Intercept {
                handshake,
                connect_timeout,
                ..
            } => {
                if self.is_tracking_full() {
                    return self.leave(packet.id, request);
                }
                let seat = match self.take_seat(request, listener) {
                    Ok(seat) => seat,
                    Err(shortage) => {
                        self.count_shortage(shortage);
                        return self.leave(packet.id, request);
                    }
                };
                let is_early =
                    handshake == Handshake::Early || seeded_faults::is(Fault::AcceptBeforeConnect);
                let handshake = match is_early {
                    true => Handshake::Early,
                    false => Handshake::EndToEnd,
                };
                let arrival = Arrival {
                    connect_timeout,
                    seat,
                    ..Arrival::new(request, handshake, self.relay_time())
                };
                match handshake {
                    Handshake::Early => self.open_early(packet, listener, arrival),
                    Handshake::EndToEnd => self.call(packet, listener, arrival),
                }
            }
            Admission::Bypass => {
                count(&self.counters.passed_by_policy);
                self.leave(packet.id, request);
            }
            Admission::Refuse => {
                count(&self.counters.refused_by_policy);
                self.refuse(&packet, request);
            }
        }
    }

    /// Releases a connection to the relay before its server has answered, and connects to the
    /// server meanwhile.
    fn open_early(&mut self, packet: Packet, listener: usize, arrival: Arrival) {
        let request = arrival.request;
        let mark = packet.mark & !self.mask;
        let Some(known) = self.listeners.get(listener) else {
            return self.leave(packet.id, request);
        };
        let class = Dscp::of_packet(&packet.bytes).unwrap_or_default();
        match connect_as_client(request, mark, &known.listener, &known.server, class) {
            Ok(connecting) => {
                let server = connecting.socket;
                self.release(packet, listener, Released { arrival, server });
            }
            Err(error) => self.leave_uncalled(packet.id, request, &error),
        }
    }

    /// The client's address and port cannot be used for the server leg.
    fn leave_uncalled(&mut self, packet: u32, request: Request, error: &Errno) {
        // The client uses its port again, and the server leg of its last connection is about to be
        // closed. If the SYN passed, the server would treat it as part of that connection. The
        // client repeats the SYN.
        if *error == Errno::ADDRNOTAVAIL {
            debug!("{} waits for its last connection to end", request.client);
            count(&self.counters.dropped_port_in_use);
            self.openings.forget(request);
            return self.decide(packet, Verdict::Drop);
        }
        debug!("{} passes untouched: {error}", request.server);
        count(&self.counters.passed_unreachable);
        self.leave(packet, request);
    }

    /// Holds the SYN and connects to its server.
    fn call(&mut self, packet: Packet, listener: usize, arrival: Arrival) {
        let request = arrival.request;
        let mark = packet.mark & !self.mask;
        let timeout = arrival.connect_timeout.map(Duration::from);
        let Ok(memory) = self.set_aside(packet.length) else {
            self.count_shortage(Shortage::Memory);
            return self.leave(packet.id, request);
        };
        let Some(known) = self.listeners.get(listener) else {
            return self.leave(packet.id, request);
        };
        let class = Dscp::of_packet(&packet.bytes).unwrap_or_default();
        match connect_as_client(request, mark, &known.listener, &known.server, class) {
            Ok(connecting) => self.hold(Held {
                packet,
                listener,
                arrival,
                server: connecting.socket,
                deadline: timeout.and_then(|timeout| self.now.checked_add(timeout)),
                memory,
                repetitions: 0,
            }),
            Err(error) => self.leave_uncalled(packet.id, request, &error),
        }
    }

    /// The client has repeated its SYN while the first one is held.
    fn handle_repetition(&mut self, packet: &Packet, request: Request) {
        let Some((token, held)) = self.held.of(request) else {
            return self.decide(packet.id, Verdict::Drop);
        };
        held.repetitions = held.repetitions.saturating_add(1);
        let (listener, repetitions) = (held.listener, held.repetitions);
        let passage = self.passage(request, listener, repetitions);
        let Some((_, held)) = self.held.of(request) else {
            return self.decide(packet.id, Verdict::Drop);
        };
        // The server may have answered since this turn began.
        let is_answered = rustix::net::getpeername(&held.server).is_ok();
        if passage == Passage::Intercept || is_answered {
            count(&self.counters.retransmissions_held);
            return self.decide(packet.id, Verdict::Drop);
        }
        if let Some(held) = self.held.take(token) {
            self.decide(held.packet.id, Verdict::Drop);
            self.end_call(held.server, request);
        }
        if passage == Passage::Pass {
            count(&self.counters.passed_asymmetric);
            return self.leave(packet.id, request);
        }
        count(&self.counters.passed_unanswered);
        self.leave_watched(packet, request);
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
        if self.now >= self.next_route_log {
            self.next_route_log = self.now + LOG_INTERVAL;
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
        let unanswered = self.openings.take_unanswered();
        if unanswered.is_empty() {
            return;
        }
        let now = self.relay_time();
        for request in unanswered {
            let routes = &mut self.knowledge.part(PartKey::routes(&request)).routes;
            routes.suspect(now, &request);
        }
    }

    fn hold(&mut self, held: Held) {
        let token = self.next_token;
        self.next_token += 1;
        let interest = EventFlags::OUT | EventFlags::ET;
        let data = EventData::new_u64(token);
        if let Err(error) = epoll::add(&self.epoll, &held.server, data, interest) {
            count(&self.counters.passed_unreachable);
            self.leave(held.packet.id, held.arrival.request);
            return self.log_trouble("its server leg cannot be watched", &error.into());
        }
        self.held.insert(token, held);
    }

    /// The client has begun a new attempt from the same port; the connection to the server stays
    /// the same.
    fn replace_held(&mut self, packet: Packet, request: Request) {
        let packet = match self.held.of(request) {
            Some((_, held)) => {
                held.repetitions = 0;
                std::mem::replace(&mut held.packet, packet).id
            }
            None => packet.id,
        };
        self.decide(packet, Verdict::Drop);
    }

    /// The server has answered, or the network has reported an error.
    fn handle_answer(&mut self, token: u64) {
        let Some(held) = self.held.take(token) else {
            return;
        };
        match sockopt::socket_error(&held.server) {
            Ok(Ok(())) => {
                // From here on the relay counts the session's memory.
                drop(held.memory);
                // From here on the relay watches the socket.
                let _ = epoll::delete(&self.epoll, &held.server);
                let (arrival, server) = (held.arrival, held.server);
                self.release(held.packet, held.listener, Released { arrival, server });
            }
            Ok(Err(Errno::CONNREFUSED | Errno::CONNRESET)) => {
                count(&self.counters.refused);
                self.refuse(&held.packet, held.arrival.request);
            }
            Ok(Err(Errno::TIMEDOUT)) => self.give_up(held),
            // The network reports the error to the client itself when the client's SYN reaches the
            // same place.
            Ok(Err(_)) | Err(_) => {
                count(&self.counters.passed_unreachable);
                self.end_call(held.server, held.arrival.request);
                self.leave(held.packet.id, held.arrival.request);
            }
        }
    }

    /// After the gate was stopped: the clients have repeated their SYNs meanwhile, which have
    /// passed the gate.
    fn abandon_held(&mut self) {
        for held in self.held.take_all() {
            count(&self.counters.dropped_stale);
            self.openings.forget(held.arrival.request);
            self.decide(held.packet.id, Verdict::Drop);
        }
    }

    fn handle_deadlines(&mut self) {
        while let Some(held) = self.held.take_due(self.now) {
            self.give_up(held);
        }
    }

    fn expire(&mut self) {
        if self.now < self.next_expiry {
            return;
        }
        self.next_expiry = self.now + EXPIRY_INTERVAL;
        if let Some(limit) = self.now.checked_sub(ACCEPT_LIMIT) {
            let expired = self.openings.expire(limit) as u64;
            self.counters.expired.fetch_add(expired, Ordering::Relaxed);
        }
    }

    /// The time of this turn on the relay's clock.
    fn relay_time(&self) -> Time {
        self.clock.at(self.now)
    }
}
