//! The gate's thread.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use midspan_linux::packet_queue::{BUFFER, PacketQueue, Verdict};
use midspan_linux::raw_packet::RawSocket;
use midspan_policy::Handshake;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use tracing::{debug, warn};

use super::openings::{Arrival, Connection, Openings, Released};
use super::{GateListener, GateSettings, call, syn};

/// Room in the queue beyond the connections being opened: SYNs that came together.
const QUEUE_MARGIN: u32 = 1024;
/// Longest time without a sign of life.
const BEAT: Duration = Duration::from_millis(100);
/// A gate that wakes later than this was stopped: what waits in the queue is from before. Its
/// clients have tried again meanwhile, perhaps past the gate.
const STALE: Duration = Duration::from_millis(500);
/// For how long a released SYN may stay unaccepted: the client's second try comes after 1 s, its
/// third after 3 s.
const ACCEPT_LIMIT: Duration = Duration::from_secs(10);
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// At most so often is the same trouble logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
const EVENTS: usize = 256;
/// Reads of the queue in one turn, so that answers of servers have theirs.
const READS_PER_TURN: usize = 64;
/// More reads than the queue's longest content needs.
const STALE_READS: usize = 16_384;
/// Token of the queue; held connections count from 1.
const QUEUE: u64 = 0;

macro_rules! statistics {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a gate has done since its start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct GateStatistics {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        struct Counters {
            $($name: AtomicU64,)+
        }

        impl Counters {
            fn read(&self) -> GateStatistics {
                GateStatistics {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                }
            }
        }
    };
}

statistics! {
    /// Turns of the thread: at least ten each second while it is well.
    turns,
    /// New connections that were taken.
    taken,
    /// Connections that servers refused, and so the clients were.
    refused,
    /// Connections given up since no server answered in time.
    unanswered,
    /// Passed untouched: too many were being opened.
    passed_full,
    /// Passed untouched: signed with TCP-MD5 or TCP-AO.
    passed_authenticated,
    /// Passed untouched: the server cannot be reached, or cannot be called from the client's
    /// address and port.
    passed_unreachable,
    /// SYNs dropped because an earlier one of the connection is held.
    retransmissions_held,
    /// SYNs dropped because the gate had been stopped while they waited.
    dropped_stale,
    /// Released connections whose client did not go on.
    expired,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A running gate; it ends when this value goes.
#[derive(Debug)]
pub struct Gate {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Gate {
    /// Takes the queue and starts the thread. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The queue or a thread cannot be had.
    pub fn start(settings: GateSettings, limit: u32) -> std::io::Result<Self> {
        let queue = PacketQueue::bind(settings.queue, limit.saturating_add(QUEUE_MARGIN))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &queue, EventData::new_u64(QUEUE), EventFlags::IN)?;
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        let now = Instant::now();
        let worker = Worker {
            queue,
            epoll,
            raw: settings.raw.map(RawSocket::from_socket),
            mask: settings.mask,
            refused_mark: settings.refused_mark,
            listeners: settings.listeners,
            openings: settings.openings,
            held: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_token: QUEUE + 1,
            counters: Arc::clone(&counters),
            now,
            next_expiry: now + EXPIRY_INTERVAL,
            next_log: now,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("gate".to_owned())
            .spawn(move || {
                if let Err(error) = worker.run(&stopped) {
                    tracing::error!("no connections are taken any more: {error}");
                }
            })?;
        Ok(Self {
            stop,
            counters,
            thread: Some(thread),
        })
    }

    /// Whether its thread runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Its numbers.
    #[must_use]
    pub fn statistics(&self) -> GateStatistics {
        self.counters.read()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// A packet from the queue.
struct Arrived {
    packet: u32,
    mark: u32,
    bytes: Vec<u8>,
}

/// A SYN that waits in the queue while its server is being called.
struct Held {
    arrived: Arrived,
    connection: Connection,
    listener: usize,
    server: OwnedFd,
    deadline: Option<Instant>,
}

struct Worker {
    queue: PacketQueue,
    epoll: OwnedFd,
    raw: [RawSocket; 2],
    mask: u32,
    refused_mark: u32,
    listeners: Vec<GateListener>,
    openings: Arc<Openings<OwnedFd>>,
    held: BTreeMap<u64, Held>,
    deadlines: BTreeSet<(Instant, u64)>,
    next_token: u64,
    counters: Arc<Counters>,
    now: Instant,
    next_expiry: Instant,
    next_log: Instant,
}

impl Worker {
    fn run(mut self, stop: &AtomicBool) -> std::io::Result<()> {
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
                // Whether or not this turn has an event of the queue.
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
        }
        Ok(())
    }

    fn timeout(&self) -> Timespec {
        let next = self.deadlines.first().map(|(deadline, _)| *deadline);
        let wait = next.map_or(BEAT, |next| {
            next.saturating_duration_since(self.now).min(BEAT)
        });
        Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        }
    }

    fn read_queue(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut arrived = Vec::new();
        for _ in 0..READS_PER_TURN {
            let more = self.queue.receive(buffer, |packet| {
                arrived.push(Arrived {
                    packet: packet.id,
                    mark: packet.mark,
                    bytes: packet.payload.to_vec(),
                });
            })?;
            for arrived in arrived.drain(..) {
                self.handle_syn(arrived);
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Drops all that waits in the queue, which is bounded.
    fn drop_queue(&self, buffer: &mut [u8]) -> std::io::Result<()> {
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

    fn handle_syn(&mut self, arrived: Arrived) {
        let ours = arrived.mark & self.mask;
        let listener = self.listeners.iter().position(|known| known.mark == ours);
        let (Some(listener), Some(syn)) = (listener, syn::read(&arrived.bytes)) else {
            return self.pass(arrived.packet);
        };
        if syn.is_authenticated {
            count(&self.counters.passed_authenticated);
            return self.pass(arrived.packet);
        }
        match self.openings.arrive(syn.connection, syn.sequence) {
            Arrival::New => self.open(arrived, syn.connection, listener),
            Arrival::Held => {
                count(&self.counters.retransmissions_held);
                self.decide(arrived.packet, Verdict::Drop);
            }
            Arrival::HeldOther => self.replace_held(arrived, syn.connection),
            // The listener's answer was lost: it answers once more.
            Arrival::Released => {
                self.decide(arrived.packet, Verdict::Drop);
                let _ = self.send_on(&arrived.bytes, syn.connection, listener);
            }
            Arrival::Full => {
                count(&self.counters.passed_full);
                self.log_full();
                self.pass(arrived.packet);
            }
        }
    }

    fn open(&mut self, arrived: Arrived, connection: Connection, listener: usize) {
        let mark = arrived.mark & !self.mask;
        let Some(settings) = self.listeners.get(listener) else {
            return self.pass(arrived.packet);
        };
        if settings.handshake == Handshake::Early {
            return self.release(&arrived, connection, listener, None);
        }
        let timeout = settings.connect_timeout.map(Duration::from);
        match call(connection, mark, &settings.server) {
            Ok(calling) => {
                let held = Held {
                    arrived,
                    connection,
                    listener,
                    server: calling.socket,
                    deadline: timeout.and_then(|timeout| self.now.checked_add(timeout)),
                };
                self.hold(held);
            }
            Err(error) => {
                debug!("{} passes untouched: {error}", connection.server);
                count(&self.counters.passed_unreachable);
                self.openings.forget(connection);
                self.pass(arrived.packet);
            }
        }
    }

    fn hold(&mut self, held: Held) {
        let token = self.next_token;
        self.next_token += 1;
        let interest = EventFlags::OUT | EventFlags::ET;
        let data = EventData::new_u64(token);
        if let Err(error) = epoll::add(&self.epoll, &held.server, data, interest) {
            warn!("a connection passes untouched: cannot watch its server leg: {error}");
            count(&self.counters.passed_unreachable);
            self.openings.forget(held.connection);
            return self.pass(held.arrived.packet);
        }
        if let Some(deadline) = held.deadline {
            self.deadlines.insert((deadline, token));
        }
        self.held.insert(token, held);
    }

    /// The client has begun anew from the same port; the server that is being called is the same.
    fn replace_held(&mut self, arrived: Arrived, connection: Connection) {
        let held = self
            .held
            .values_mut()
            .find(|held| held.connection == connection);
        let packet = match held {
            Some(held) => std::mem::replace(&mut held.arrived, arrived).packet,
            None => arrived.packet,
        };
        self.decide(packet, Verdict::Drop);
    }

    /// The server has answered, or the network in its place.
    fn handle_answer(&mut self, token: u64) {
        let Some(held) = self.take(token) else {
            return;
        };
        match sockopt::socket_error(&held.server) {
            Ok(Ok(())) => {
                let Held {
                    arrived,
                    connection,
                    listener,
                    server,
                    ..
                } = held;
                // Watched by the relay from now on.
                let _ = epoll::delete(&self.epoll, &server);
                self.release(&arrived, connection, listener, Some(server));
            }
            Ok(Err(Errno::CONNREFUSED | Errno::CONNRESET)) => {
                count(&self.counters.refused);
                self.openings.forget(held.connection);
                let mark = Some(held.arrived.mark & !self.mask | self.refused_mark);
                self.decide(held.arrived.packet, Verdict::Accept { mark });
            }
            Ok(Err(Errno::TIMEDOUT)) => self.give_up(held),
            // The network says why, and says it to the client itself once its SYN comes.
            Ok(Err(_)) | Err(_) => {
                count(&self.counters.passed_unreachable);
                self.openings.forget(held.connection);
                let packet = held.arrived.packet;
                // Before the SYN leaves, so that its answer does not find this socket.
                drop(held);
                self.pass(packet);
            }
        }
    }

    /// Lets a connection go to the relay.
    fn release(
        &mut self,
        arrived: &Arrived,
        connection: Connection,
        listener: usize,
        server: Option<OwnedFd>,
    ) {
        let mark = arrived.mark & !self.mask;
        let released = Released { server, mark };
        self.openings.release(connection, released, self.now);
        match self.send_on(&arrived.bytes, connection, listener) {
            Ok(()) => {
                count(&self.counters.taken);
                self.decide(arrived.packet, Verdict::Drop);
            }
            Err(error) => {
                warn!("a connection passes untouched: its SYN cannot be sent on: {error}");
                self.openings.forget(connection);
                self.pass(arrived.packet);
            }
        }
    }

    fn send_on(
        &mut self,
        bytes: &[u8],
        connection: Connection,
        listener: usize,
    ) -> std::io::Result<()> {
        let mark = self.listeners.get(listener).map_or(0, |known| known.mark);
        let [four, six] = &mut self.raw;
        let raw = if connection.server.is_ipv4() {
            four
        } else {
            six
        };
        raw.send(bytes, mark)
    }

    fn give_up(&mut self, held: Held) {
        count(&self.counters.unanswered);
        self.openings.forget(held.connection);
        self.decide(held.arrived.packet, Verdict::Drop);
    }

    /// After a stop: the clients have tried again meanwhile, and their SYNs have gone past the
    /// gate.
    fn abandon_held(&mut self) {
        for (_, held) in std::mem::take(&mut self.held) {
            count(&self.counters.dropped_stale);
            self.openings.forget(held.connection);
            self.decide(held.arrived.packet, Verdict::Drop);
        }
        self.deadlines.clear();
    }

    fn handle_deadlines(&mut self) {
        while let Some((deadline, token)) = self.deadlines.first().copied() {
            if deadline > self.now {
                return;
            }
            self.deadlines.pop_first();
            if let Some(held) = self.take(token) {
                self.give_up(held);
            }
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

    fn take(&mut self, token: u64) -> Option<Held> {
        let held = self.held.remove(&token)?;
        if let Some(deadline) = held.deadline {
            self.deadlines.remove(&(deadline, token));
        }
        Some(held)
    }

    /// It goes on as if there were no gate.
    fn pass(&self, packet: u32) {
        self.decide(packet, Verdict::Accept { mark: None });
    }

    fn decide(&self, packet: u32, verdict: Verdict) {
        // An error: the queue was emptied meanwhile, and the packet is gone.
        if let Err(error) = self.queue.decide(packet, verdict) {
            debug!("no verdict on a packet: {error}");
        }
    }

    fn log_full(&mut self) {
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
