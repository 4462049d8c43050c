//! A relay thread and the scripted kernel below it, both of which a test controls.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use midspan_policy::{Handshake, Offered, SessionSettings};
use rustix::event::Timespec;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::io::Result;
use rustix::net::SocketAddrAny;

use super::*;
use crate::access::AccessRules;
use crate::destination::Finder;
use crate::limits::{ListenerLimits, Places, RelayLimits};
use crate::listener::{Destination, Language, Listener, Negotiation};
use crate::negotiation::Names;
use crate::observation::Mailbox;
use crate::opening::{AcceptorParts, ListenerId};
use crate::passing::PassedOn;
use crate::scripted::{self, Kernel};
use crate::sharing::ListeningSocket;

pub const CLIENT: &str = "192.0.2.1:1000";
pub const SERVER: &str = "198.51.100.1:80";
/// The address of the server leg's own socket.
pub const OWN: &str = "203.0.113.7:40000";
/// How long a server may take to answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one leg remains after the failure of the other.
pub const RESET_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may take for its request.
pub const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer of a leg.
#[derive(Default)]
pub struct Far {
    /// The peer has accepted the connection, or has begun it.
    is_connected: bool,
    /// The error of the leg, which is returned once.
    pub error: Option<Errno>,
    /// How many bytes the relay may still send; `None` for any number.
    pub room: Option<usize>,
    /// Data that the peer has sent and the relay has not read; an empty piece is its FIN.
    sent: VecDeque<Vec<u8>>,
    /// Data that the relay has sent.
    pub got: Vec<u8>,
    /// The relay has sent its FIN.
    pub is_ended: bool,
    /// Whether the relay's close is a reset, if this was set.
    pub is_reset_on_close: Option<bool>,
}

/// The state of the scripted kernel, which the test changes between turns.
#[derive(Default)]
pub struct World {
    /// Time since the start.
    time: Duration,
    /// The descriptors of the listener, and of the legs.
    pub listener: RawFd,
    pub client: RawFd,
    pub server: RawFd,
    tokens: BTreeMap<RawFd, u64>,
    /// Events of the next wait.
    events: Vec<(RawFd, EventFlags)>,
    /// The requested time-outs of the waits.
    waits: Vec<Option<Duration>>,
    /// Connections that wait on the listening socket.
    pub waiting: usize,
    pub legs: BTreeMap<RawFd, Far>,
    /// The socket of each piece that the relay has sent.
    pub sends: Vec<RawFd>,
    /// How long each of these calls takes.
    pub time_of_send: Duration,
    /// The low-water marks that were set, and of which socket, in their order.
    pub marks: Vec<(RawFd, u64)>,
}

struct Script {
    start: Instant,
    world: Rc<RefCell<World>>,
}

/// A descriptor that is no socket, for which the script answers.
fn descriptor() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

impl Script {
    fn leg<T>(&self, socket: RawFd, ask: impl FnOnce(&mut Far) -> T) -> T {
        ask(self.world.borrow_mut().legs.entry(socket).or_default())
    }
}

impl Kernel for Script {
    fn now(&mut self) -> Instant {
        self.start + self.world.borrow().time
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
        let mut world = self.world.borrow_mut();
        let wait = timeout.map(|it| Duration::new(it.tv_sec as u64, it.tv_nsec as u32));
        world.waits.push(wait);
        for (descriptor, flags) in std::mem::take(&mut world.events) {
            let data = EventData::new_u64(world.tokens[&descriptor]);
            events.push(Event { flags, data });
        }
        Ok(())
    }

    fn watch(&mut self, descriptor: RawFd, token: u64, _: EventFlags) -> Result<()> {
        self.world.borrow_mut().tokens.insert(descriptor, token);
        Ok(())
    }

    fn unwatch(&mut self, descriptor: RawFd) -> Result<()> {
        self.world.borrow_mut().tokens.remove(&descriptor);
        Ok(())
    }

    fn accept(&mut self, socket: RawFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
        let mut world = self.world.borrow_mut();
        assert_eq!(socket, world.listener);
        if world.waiting == 0 {
            return Err(Errno::AGAIN);
        }
        world.waiting -= 1;
        let client = descriptor();
        world.client = client.as_raw_fd();
        let far = Far {
            is_connected: true,
            ..Far::default()
        };
        world.legs.insert(client.as_raw_fd(), far);
        let address: SocketAddr = CLIENT.parse().unwrap();
        Ok((client, Some(address.into())))
    }

    fn socket(&mut self, _: SocketAddr) -> Result<OwnedFd> {
        let server = descriptor();
        let mut world = self.world.borrow_mut();
        world.server = server.as_raw_fd();
        world.legs.insert(server.as_raw_fd(), Far::default());
        drop(world);
        Ok(server)
    }

    fn connect(&mut self, socket: RawFd, address: SocketAddr) -> Result<()> {
        assert_eq!(socket, self.world.borrow().server);
        assert_eq!(address, SERVER.parse().unwrap());
        Err(Errno::INPROGRESS)
    }

    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> Result<usize> {
        self.leg(socket, |far| {
            let piece = far.sent.pop_front().ok_or(Errno::AGAIN)?;
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        })
    }

    fn peek(&mut self, socket: RawFd) -> Result<usize> {
        self.leg(socket, |far| {
            let piece = far.sent.front().ok_or(Errno::AGAIN)?;
            Ok(piece.len().min(1))
        })
    }

    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        world.sends.push(socket);
        let time = world.time_of_send;
        world.time += time;
        drop(world);
        self.leg(socket, |far| {
            let count = far.room.map_or(bytes.len(), |room| room.min(bytes.len()));
            if count == 0 {
                return Err(Errno::AGAIN);
            }
            far.room = far.room.map(|room| room - count);
            far.got.extend(&bytes[..count]);
            Ok(count)
        })
    }

    fn end_writing(&mut self, socket: RawFd) -> Result<()> {
        self.leg(socket, |far| far.is_ended = true);
        Ok(())
    }

    fn socket_error(&mut self, socket: RawFd) -> Result<Result<()>> {
        Ok(self.leg(socket, |far| far.error.take().map_or(Ok(()), Err)))
    }

    fn peer_address(&mut self, socket: RawFd) -> Result<Option<SocketAddr>> {
        match self.leg(socket, |far| far.is_connected) {
            true => Ok(CLIENT.parse().ok()),
            false => Err(Errno::NOTCONN),
        }
    }

    fn own_address(&mut self, _: RawFd) -> Option<SocketAddr> {
        OWN.parse().ok()
    }

    fn set_low_water_mark(&mut self, socket: RawFd, bytes: u64) -> std::io::Result<()> {
        self.world.borrow_mut().marks.push((socket, bytes));
        Ok(())
    }

    fn set_reset_on_close(&mut self, socket: RawFd, is_on: bool) -> std::io::Result<()> {
        self.leg(socket, |far| far.is_reset_on_close = Some(is_on));
        Ok(())
    }
}

pub struct Bench {
    pub world: Rc<RefCell<World>>,
    pub thread: RelayThread,
    events: Vec<Event>,
    /// The number of each thread's sessions.
    pub loads: Loads,
    /// Connections that one thread has accepted, for another one.
    pub passing: Passing,
    // The thread's owner.
    _updates: mpsc::Sender<Update>,
}

impl Bench {
    /// A thread with one listener, whose server may take a second.
    pub fn new() -> Self {
        Self::with(SERVER.parse::<SocketAddr>().unwrap().into())
    }

    /// The same with a listener whose clients name the server.
    pub fn negotiating(language: Language) -> Self {
        Self::with(Destination::Negotiated(Box::new(Negotiation {
            language,
            users: None,
            access: AccessRules::default(),
            timeout: NEGOTIATION_TIMEOUT.into(),
            proxies: None,
            header: None,
            overlay: None,
            as_clients: None,
        })))
    }

    /// The same with a listener whose socket these threads share. The test sets the sessions of all
    /// threads but the first.
    pub fn sharing(sharing: std::ops::Range<usize>) -> Self {
        Self::with_sharing(SERVER.parse::<SocketAddr>().unwrap().into(), Some(sharing))
    }

    fn with(to: Destination) -> Self {
        Self::with_sharing(to, None)
    }

    fn with_sharing(to: Destination, sharing: Option<std::ops::Range<usize>>) -> Self {
        let loads = Loads::of(sharing.as_ref().map_or(1, std::ops::Range::len));
        let world = Rc::new(RefCell::new(World::default()));
        scripted::install(Box::new(Script {
            start: Instant::now(),
            world: Rc::clone(&world),
        }));
        let socket = descriptor();
        world.borrow_mut().listener = socket.as_raw_fd();
        let socket = ListeningSocket {
            socket: Arc::new(socket.into()),
            sharing,
        };
        let made = make_thread(socket, to, loads.clone(), Pipes::new(0, 0));
        Self {
            thread: made.thread,
            world,
            events: Vec::with_capacity(EVENTS),
            loads,
            passing: made.passing,
            _updates: made.updates,
        }
    }

    /// The connections that were passed on to another thread.
    pub fn passed_to(&self, thread: usize) -> Vec<PassedOn> {
        std::iter::from_fn(|| self.passing.take(thread)).collect()
    }

    /// One turn after this time, with these events.
    pub fn turn(&mut self, after: Duration, events: &[(RawFd, EventFlags)]) {
        let mut world = self.world.borrow_mut();
        world.time += after;
        world.events = events.to_vec();
        drop(world);
        assert!(self.thread.turn(&mut self.events).unwrap());
    }

    /// A client connects; returns the sockets of both legs.
    pub fn call(&mut self) -> (RawFd, RawFd) {
        self.world.borrow_mut().waiting = 1;
        let listener = self.world.borrow().listener;
        self.turn(Duration::ZERO, &[(listener, EventFlags::IN)]);
        let world = self.world.borrow();
        (world.client, world.server)
    }

    /// Changes the state of a leg's peer, or reads it.
    pub fn far<T>(&self, leg: RawFd, change: impl FnOnce(&mut Far) -> T) -> T {
        change(self.world.borrow_mut().legs.entry(leg).or_default())
    }

    pub fn sends(&self, leg: RawFd, bytes: &[u8]) {
        self.far(leg, |far| far.sent.push_back(bytes.to_vec()));
    }

    /// The server accepts the connection; returns its leg.
    pub fn server_answers(&mut self) -> RawFd {
        let server = self.world.borrow().server;
        self.far(server, |far| far.is_connected = true);
        self.turn(MOMENT, &[(server, EventFlags::OUT)]);
        server
    }

    /// The data that the relay has sent to this leg since the last query.
    pub fn got(&self, leg: RawFd) -> Vec<u8> {
        self.far(leg, |far| std::mem::take(&mut far.got))
    }

    pub fn last_wait(&self) -> Option<Duration> {
        self.world.borrow().waits.last().copied().flatten()
    }
}

/// Time between two turns.
pub const MOMENT: Duration = Duration::from_millis(1);

/// A thread, and what keeps it alive.
pub struct Made {
    pub thread: RelayThread,
    /// The places of its sessions.
    pub places: Arc<Places>,
    /// The thread's owner.
    pub updates: mpsc::Sender<Update>,
    /// For commands to all threads.
    pub control: Arc<Control>,
    /// For queries to this thread.
    pub mailbox: Arc<Mailbox>,
    /// Connections that one thread has accepted, for another one.
    pub passing: Passing,
}

/// A thread with one listener, above the kernel that is installed.
pub fn make_thread(socket: ListeningSocket, to: Destination, loads: Loads, pipes: Pipes) -> Made {
    let limits = Limits::new(&RelayLimits::default(), 0);
    make_limited_thread(
        socket,
        to,
        loads,
        pipes,
        (limits, ListenerLimits::default()),
    )
}

/// A thread with these limits.
pub fn make_limited_thread(
    socket: ListeningSocket,
    to: Destination,
    loads: Loads,
    pipes: Pipes,
    (limits, of_listener): (Limits, ListenerLimits),
) -> Made {
    let listener = Arc::new(Listener {
        session: SessionSettings {
            connect_timeout: Some(CONNECT_TIMEOUT.into()),
            ..SessionSettings::default()
        },
        limits: of_listener,
        ..Listener::new("test", to)
    });
    let limits = Arc::new(limits);
    let observation = Observation {
        registry: Arc::default(),
        mailbox: Arc::default(),
        sampling_interval: None,
    };
    let mailbox = Arc::clone(&observation.mailbox);
    let policy = midspan_policy::make(&listener.session, Handshake::Early, Offered::default());
    let places = limits.set_listener("test", listener.limits.sessions, true);
    let acceptor = AcceptorParts {
        overlay: SharedOverlay::default(),
        servers: None,
        id: ListenerId(0),
        finder: Finder::new(&listener.to, &Arc::default()),
        policy,
        counters: observation.registry.counters(0, "test"),
        places: Arc::clone(&places),
        verdicts: Default::default(),
        knowledge: Default::default(),
        suspects: Default::default(),
        listener,
    };
    let acceptor = Acceptor::new(Some(socket), acceptor);
    let control = Arc::new(Control::new().unwrap());
    let (updates, received) = mpsc::channel();
    let passing = Passing::new(loads.all().count()).unwrap();
    let own_control = Arc::clone(&control);
    let parts = ThreadParts {
        overlay: SharedOverlay::default(),
        number: 0,
        names: Arc::new(Names::new(Arc::clone(&control))).of_thread(),
        control,
        updates: received,
        clock: Clock::start(),
        register: Arc::new(Register::new(limits)),
        tries: Arc::default(),
        pipes,
        observation,
        loads,
        passing: passing.clone(),
        sampling_pace: midspan_policy::SamplingPace::new(1),
        reset_timeout: RESET_TIMEOUT.into(),
        suspects: Default::default(),
    };
    Made {
        thread: RelayThread::new(vec![acceptor], parts).unwrap(),
        places,
        updates,
        control: own_control,
        mailbox,
        passing,
    }
}
