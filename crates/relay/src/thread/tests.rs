//! A thread over a scripted kernel: no socket, no epoll and no clock of Linux.

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
use crate::destination::Finder;
use crate::limits::{ListenerLimits, RelayLimits};
use crate::listener::Listener;
use crate::opening::{AcceptorParts, ListenerId};
use crate::scripted::{self, Kernel};

const CLIENT: &str = "192.0.2.1:1000";
const SERVER: &str = "198.51.100.1:80";

/// The peer of a leg.
#[derive(Default)]
struct Far {
    /// Data that the peer has sent and the relay has not read; an empty piece is its FIN.
    sent: VecDeque<Vec<u8>>,
    /// Data that the relay has sent.
    got: Vec<u8>,
    /// The relay has sent its FIN.
    is_ended: bool,
    /// Whether the relay's close is a reset, if this was set.
    is_reset_on_close: Option<bool>,
}

/// The state of the scripted kernel, which the test changes between turns.
#[derive(Default)]
struct World {
    /// Time since the start.
    time: Duration,
    /// The descriptors of the listener, and of the legs.
    listener: RawFd,
    client: RawFd,
    server: RawFd,
    tokens: BTreeMap<RawFd, u64>,
    /// Events of the next wait.
    events: Vec<(RawFd, EventFlags)>,
    /// The requested time-outs of the waits.
    waits: Vec<Option<Duration>>,
    waiting: usize,
    legs: BTreeMap<RawFd, Far>,
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
        let address: SocketAddr = CLIENT.parse().unwrap();
        Ok((client, Some(address.into())))
    }

    fn socket(&mut self, _: SocketAddr) -> Result<OwnedFd> {
        let server = descriptor();
        self.world.borrow_mut().server = server.as_raw_fd();
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

    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> Result<usize> {
        self.leg(socket, |far| far.got.extend(bytes));
        Ok(bytes.len())
    }

    fn end_writing(&mut self, socket: RawFd) -> Result<()> {
        self.leg(socket, |far| far.is_ended = true);
        Ok(())
    }

    fn socket_error(&mut self, _: RawFd) -> Result<Result<()>> {
        Ok(Ok(()))
    }

    fn peer_address(&mut self, _: RawFd) -> Result<Option<SocketAddrAny>> {
        let address: SocketAddr = CLIENT.parse().unwrap();
        Ok(Some(address.into()))
    }

    fn unacknowledged_bytes(&mut self, _: RawFd) -> std::io::Result<u64> {
        Ok(0)
    }

    fn set_reset_on_close(&mut self, socket: RawFd, is_on: bool) -> std::io::Result<()> {
        self.leg(socket, |far| far.is_reset_on_close = Some(is_on));
        Ok(())
    }
}

struct Bench {
    world: Rc<RefCell<World>>,
    thread: RelayThread,
    events: Vec<Event>,
    // The thread's owner.
    _updates: mpsc::Sender<Update>,
}

impl Bench {
    /// A thread with one listener, whose server may take a second.
    fn new() -> Self {
        let world = Rc::new(RefCell::new(World::default()));
        scripted::install(Box::new(Script {
            start: Instant::now(),
            world: Rc::clone(&world),
        }));
        let socket = descriptor();
        world.borrow_mut().listener = socket.as_raw_fd();
        let listener = Arc::new(Listener {
            session: SessionSettings {
                connect_timeout: Some(TimeSpan::from_seconds(1)),
                ..SessionSettings::default()
            },
            limits: ListenerLimits::default(),
            ..Listener::new("test", SERVER.parse::<SocketAddr>().unwrap().into())
        });
        let limits = Arc::new(Limits::new(&RelayLimits::default(), 0));
        let observation = Observation {
            registry: Arc::default(),
            mailbox: Arc::default(),
            sampling_interval: None,
        };
        let policy = midspan_policy::make(&listener.session, Handshake::Early, Offered::default());
        let acceptor = AcceptorParts {
            id: ListenerId(0),
            finder: Finder::new(&listener.to, &Arc::default()),
            policy,
            counters: observation.registry.counters("test"),
            places: limits.set_listener("test", listener.limits.sessions, true),
            verdicts: Default::default(),
            knowledge: Default::default(),
            listener,
        };
        let acceptor = Acceptor::new(Some(socket), acceptor);
        let control = Arc::new(Control::new().unwrap());
        let (updates, received) = mpsc::channel();
        let parts = ThreadParts {
            number: 0,
            names: Arc::new(Names::new(1, Arc::clone(&control))),
            control,
            updates: received,
            clock: Clock::start(),
            limits,
            tries: Arc::default(),
            pipes: Pipes::new(0, 0),
            observation,
            reset_timeout: TimeSpan::from_seconds(30),
        };
        Self {
            thread: RelayThread::new(vec![acceptor], parts).unwrap(),
            world,
            events: Vec::with_capacity(EVENTS),
            _updates: updates,
        }
    }

    /// One turn after this time, with these events.
    fn turn(&mut self, after: Duration, events: &[(RawFd, EventFlags)]) {
        let mut world = self.world.borrow_mut();
        world.time += after;
        world.events = events.to_vec();
        drop(world);
        assert!(self.thread.turn(&mut self.events).unwrap());
    }

    /// A client connects; returns the sockets of both legs.
    fn call(&mut self) -> (RawFd, RawFd) {
        self.world.borrow_mut().waiting = 1;
        let listener = self.world.borrow().listener;
        self.turn(Duration::ZERO, &[(listener, EventFlags::IN)]);
        let world = self.world.borrow();
        (world.client, world.server)
    }

    fn sends(&self, leg: RawFd, bytes: &[u8]) {
        let mut world = self.world.borrow_mut();
        let far = world.legs.entry(leg).or_default();
        far.sent.push_back(bytes.to_vec());
    }

    fn last_wait(&self) -> Option<Duration> {
        self.world.borrow().waits.last().copied().flatten()
    }
}

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn a_session_lives_and_ends_over_a_kernel_that_a_test_plays() {
    let mut bench = Bench::new();
    let (client, server) = bench.call();
    let counters = bench.thread.counters();
    assert_eq!(counters.sessions_active.get(), 1);
    bench.turn(MOMENT, &[(server, EventFlags::OUT)]);
    bench.sends(client, b"hello");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(bench.world.borrow().legs[&server].got, b"hello");
    bench.sends(server, b"good day");
    bench.turn(MOMENT, &[(server, EventFlags::IN | EventFlags::OUT)]);
    assert_eq!(bench.world.borrow().legs[&client].got, b"good day");
    // The client ends its data, and then the server.
    bench.sends(client, b"");
    bench.turn(MOMENT, &[(client, EventFlags::IN | EventFlags::RDHUP)]);
    assert!(bench.world.borrow().legs[&server].is_ended);
    assert_eq!(counters.sessions_active.get(), 1);
    bench.sends(server, b"");
    bench.turn(MOMENT, &[(server, EventFlags::IN | EventFlags::RDHUP)]);
    assert_eq!(counters.sessions_closed.get(), 1);
    let world = bench.world.borrow();
    // One FIN in each direction: the last FIN is sent by the close.
    assert!(
        [client, server]
            .iter()
            .all(|leg| world.legs[leg].is_reset_on_close == Some(false))
    );
}

#[test]
fn a_server_that_never_answers_is_given_up_by_the_clock_of_the_test() {
    let mut bench = Bench::new();
    bench.call();
    let counters = bench.thread.counters();
    let deadline = bench.thread.deadline().unwrap();
    assert_eq!(deadline.reason, Reason::Session);
    bench.turn(Duration::from_millis(999), &[]);
    assert_eq!(bench.last_wait(), Some(Duration::from_secs(1)));
    assert_eq!(counters.sessions_active.get(), 1);
    bench.turn(MOMENT, &[]);
    assert_eq!(bench.last_wait(), Some(MOMENT));
    assert_eq!(counters.sessions_active.get(), 0);
    assert_eq!(counters.sessions_unconnected.get(), 1);
    assert_eq!(bench.thread.deadline(), None);
}
