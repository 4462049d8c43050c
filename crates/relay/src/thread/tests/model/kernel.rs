//! The simulated kernel: sockets, pipes, epoll and time.
//!
//! It checks each call and each close of the relay by these rules:
//!
//! - A leg gets the bytes of the other leg, each once and in their order.
//! - A leg gets a FIN only behind all data of the other leg, and only if the other leg has ended by a FIN.
//! - A leg is reset only if a peer has reset, a server has refused or has not answered in time, or a call has
//!   failed for good.
//! - If the peer of one leg resets, the other leg first gets the data that had arrived before.

mod closing;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use std::cell::RefCell;
use std::net::SocketAddr;

use rustix::event::Timespec;
use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::io::{Errno, Result};
use rustix::net::SocketAddrAny;
use rustix::pipe::{PipeFlags, pipe_with};

use super::random::Random;
use super::socket::{Socket, SocketId, State};
use crate::scripted::Kernel;
use crate::thread::tests::bench::{CLIENT, OWN, SERVER};

/// The data of each connection repeats after this many bytes. A prime number, so that it has no common
/// divisor with the size of a buffer.
const PERIOD: u64 = 251;
/// More than the relay reads at once.
const LONGEST: u64 = 64 << 10;
/// Bytes in a pipe.
pub const PIPE_SIZE: usize = 64 << 10;
/// One of this many calls that may fail does.
const FAILURES: u64 = 200;

/// The descriptor's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Socket(SocketId),
    /// An end of the pipe with this number.
    Pipe(u64),
}

/// Bytes of one peer, in a pipe.
#[derive(Debug, Clone, Copy)]
struct Bytes {
    from: SocketId,
    start: u64,
    count: u64,
}

#[derive(Debug)]
struct Watch {
    token: u64,
    /// An event has occurred since the last report.
    has_event: bool,
}

/// The state of the simulated kernel.
#[derive(Debug)]
pub struct World {
    seed: u64,
    pub step: u64,
    pub random: Random,
    pub time: Duration,
    pub listener: RawFd,
    /// Connections that wait to be accepted.
    pub waiting: usize,
    objects: BTreeMap<RawFd, Object>,
    descriptors: BTreeMap<SocketId, RawFd>,
    pub sockets: BTreeMap<SocketId, Socket>,
    pipes: BTreeMap<u64, Option<Bytes>>,
    watched: BTreeMap<RawFd, Watch>,
    next_number: u64,
    last_accepted: Option<SocketId>,
    /// Whether calls may fail.
    pub has_failures: bool,
    /// The step of the last failure that can cost a connection.
    failed_at: Option<u64>,
    /// Calls that moved data or ends, accepted or closed.
    pub progress: u64,
    /// The time-out of the last wait.
    pub timeout: Option<Duration>,
    pattern: Vec<u8>,
}

impl World {
    pub fn new(seed: u64, listener: RawFd) -> Self {
        Self {
            seed,
            step: 0,
            random: Random(seed),
            time: Duration::ZERO,
            listener,
            waiting: 0,
            objects: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            sockets: BTreeMap::new(),
            pipes: BTreeMap::new(),
            watched: BTreeMap::new(),
            next_number: 0,
            last_accepted: None,
            has_failures: true,
            failed_at: None,
            progress: 0,
            timeout: None,
            pattern: (0..LONGEST + PERIOD)
                .map(|at| (at % PERIOD) as u8)
                .collect(),
        }
    }

    /// Ends the test, and names what reproduces the fault.
    pub fn fail(&self, what: &str) -> ! {
        panic!(
            "seed {}, step {}, {:.6?} after the start: {what}",
            self.seed, self.step, self.time
        )
    }

    /// Notes an event of a socket, if there was one.
    pub fn note_event(&mut self, socket: SocketId, is_event: bool) {
        if let Some(watch) = (self.descriptors.get(&socket))
            .filter(|_| is_event)
            .and_then(|descriptor| self.watched.get_mut(descriptor))
        {
            watch.has_event = true;
        }
    }

    /// A connection waits at the listening socket, which is level-triggered.
    pub fn note_listener(&mut self) {
        let listener = self.listener;
        if let Some(watch) = self.watched.get_mut(&listener) {
            watch.has_event = true;
        }
    }

    /// Both legs of this socket's session.
    fn legs(&mut self, socket: SocketId) -> impl Iterator<Item = &mut Socket> {
        let partner = self.sockets.get(&socket).and_then(|it| it.partner);
        (self.sockets.iter_mut())
            .filter(move |(id, _)| **id == socket || Some(**id) == partner)
            .map(|(_, socket)| socket)
    }

    /// From now on, both legs of this socket's session may be reset.
    pub fn permit_reset(&mut self, socket: SocketId) {
        self.legs(socket).for_each(|leg| leg.may_be_reset = true);
    }

    /// A call for this session has failed for good.
    fn note_broken(&mut self, socket: SocketId) {
        self.failed_at = Some(self.step);
        for leg in self.legs(socket) {
            leg.may_be_reset = true;
            leg.is_broken = true;
        }
    }

    /// A new descriptor for this object. An old object with the same number has been closed.
    fn add(&mut self, descriptor: RawFd, object: Object) {
        self.watched.remove(&descriptor);
        match self.objects.insert(descriptor, object) {
            Some(Object::Socket(closed)) => self.close(closed),
            Some(Object::Pipe(closed)) if object != Object::Pipe(closed) => {
                self.pipes.remove(&closed);
            }
            _ => {}
        }
    }

    fn add_socket(&mut self, state: State) -> Result<(OwnedFd, SocketId)> {
        let (descriptor, keeper) = pipe_with(PipeFlags::CLOEXEC)?;
        let id = SocketId(self.next_number);
        self.next_number += 1;
        self.add(descriptor.as_raw_fd(), Object::Socket(id));
        let capacity = (4 << 10) << self.random.below(6);
        let socket = Socket::new(keeper, state, capacity, self.time);
        self.sockets.insert(id, socket);
        self.descriptors.insert(id, descriptor.as_raw_fd());
        Ok((descriptor, id))
    }

    /// The socket of a descriptor.
    fn socket(&mut self, descriptor: RawFd) -> (SocketId, &mut Socket) {
        match self.objects.get(&descriptor) {
            Some(&Object::Socket(id)) => match self.sockets.get_mut(&id) {
                Some(socket) => (id, socket),
                None => panic!("socket {id:?} is closed"),
            },
            other => self.fail(&format!("descriptor {descriptor} is {other:?}")),
        }
    }

    /// Whether this call fails.
    fn is_to_fail(&mut self) -> bool {
        self.has_failures && self.random.is_one_in(FAILURES)
    }

    /// A failure after which the relay tries again, or fewer bytes than requested.
    fn may_fail(&mut self, most: usize) -> Result<u64> {
        let most = (most as u64).min(LONGEST);
        if !self.is_to_fail() {
            return Ok(most);
        }
        match self.random.below(4) {
            0 => Err(Errno::INTR),
            1 => Err(Errno::NOMEM),
            2 => Err(Errno::NOBUFS),
            _ => Ok(most.clamp(1, 1 + self.random.below(100))),
        }
    }

    /// The bytes of a peer from this position on.
    fn bytes_of(&self, from: SocketId, start: u64, count: u64) -> &[u8] {
        let start = ((start + from.0 * 17) % PERIOD) as usize;
        &self.pattern[start..][..count as usize]
    }

    fn fill(&mut self, from: RawFd, pipe: u64, count: usize) -> Result<usize> {
        let most = self.may_fail(count.min(PIPE_SIZE))?;
        let (id, socket) = self.socket(from);
        let start = socket.read;
        let count = socket.receive(most, true)?;
        if count > 0 {
            self.progress += 1;
            let bytes = Bytes {
                from: id,
                start,
                count,
            };
            if let Some(Some(old)) = self.pipes.insert(pipe, Some(bytes)) {
                self.fail(&format!("a pipe with {old:?} is filled"));
            }
        }
        Ok(count as usize)
    }

    fn empty(&mut self, pipe: u64, to: RawFd, count: usize) -> Result<usize> {
        let most = self.may_fail(count)?;
        let Some(bytes) = self.pipes.get(&pipe).copied().flatten() else {
            return Err(Errno::AGAIN);
        };
        let now = self.time;
        let (id, socket) = self.socket(to);
        let written = socket.send(most.min(bytes.count))?;
        if socket.is_reset_in_splice {
            socket.reset_in_splice(now);
            self.permit_reset(id);
            self.note_event(id, true);
        }
        self.progress += 1;
        let before = self.sockets[&id].written - written;
        if self.sockets[&id].partner != Some(bytes.from) || before != bytes.start {
            self.fail(&format!(
                "{id:?} has got {before} bytes, and gets {bytes:?}"
            ));
        }
        let rest = Bytes {
            from: bytes.from,
            start: bytes.start + written,
            count: bytes.count - written,
        };
        self.pipes
            .insert(pipe, Some(rest).filter(|rest| rest.count > 0));
        Ok(written as usize)
    }

    /// Descriptors of sockets that the relay has not closed.
    pub fn open_sockets(&self) -> usize {
        self.descriptors.len()
    }
}

/// The kernel of a thread.
pub struct Simulated {
    pub start: Instant,
    pub world: Rc<RefCell<World>>,
}

impl Kernel for Simulated {
    fn now(&mut self) -> Instant {
        self.start + self.world.borrow().time
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        world.timeout = timeout.map(|it| Duration::new(it.tv_sec as u64, it.tv_nsec as u32));
        // Numbers of descriptors depend on other tests of this process, and tokens do not.
        let mut ready: Vec<(u64, RawFd)> = (world.watched.iter())
            .filter(|(_, watch)| watch.has_event)
            .map(|(descriptor, watch)| (watch.token, *descriptor))
            .collect();
        ready.sort_unstable();
        // The order of the events is that of their occurrence, so any order is possible.
        for last in (1..ready.len()).rev() {
            ready.swap(last, world.random.below(last as u64 + 1) as usize);
        }
        for (_, descriptor) in ready {
            if events.len() == events.capacity() {
                break;
            }
            let flags = match descriptor == world.listener {
                true if world.waiting > 0 => EventFlags::IN,
                true => EventFlags::empty(),
                false => world.socket(descriptor).1.events(),
            };
            let Some(watch) = world.watched.get_mut(&descriptor) else {
                continue;
            };
            // The listening socket is level-triggered.
            watch.has_event = descriptor == world.listener;
            if !flags.is_empty() {
                let data = EventData::new_u64(watch.token);
                events.push(Event { flags, data });
            }
        }
        Ok(())
    }

    fn watch(&mut self, descriptor: RawFd, token: u64, interest: EventFlags) -> Result<()> {
        let mut world = self.world.borrow_mut();
        let object = world.objects.get(&descriptor).copied();
        if let Some(Object::Socket(socket)) = object
            && interest.contains(EventFlags::PRI)
            && world.is_to_fail()
        {
            world.note_broken(socket);
            return Err(Errno::NOMEM);
        }
        if object.is_some() || descriptor == world.listener {
            let watch = Watch {
                token,
                has_event: true,
            };
            world.watched.insert(descriptor, watch);
        }
        Ok(())
    }

    fn unwatch(&mut self, descriptor: RawFd) -> Result<()> {
        self.world.borrow_mut().watched.remove(&descriptor);
        Ok(())
    }

    fn accept(&mut self, _: RawFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
        let mut world = self.world.borrow_mut();
        if world.waiting == 0 {
            return Err(Errno::AGAIN);
        }
        if world.is_to_fail() {
            world.failed_at = Some(world.step);
            let errors = [Errno::MFILE, Errno::NOBUFS, Errno::INTR, Errno::CONNABORTED];
            let error = errors[world.random.below(4) as usize];
            if error == Errno::CONNABORTED {
                world.waiting -= 1;
            }
            return Err(error);
        }
        world.waiting -= 1;
        world.progress += 1;
        let (client, id) = world.add_socket(State::Connected)?;
        world.last_accepted = Some(id);
        // The client may have sent data and its end before the connection was accepted.
        let early = world.random.below(3) * world.random.below(2000);
        let (has_ended, has_reset) = (world.random.is_one_in(20), world.random.is_one_in(50));
        // The relay may have no descriptor for the connection.
        let may_be_shed = world.failed_at == Some(world.step);
        let now = world.time;
        if let Some(socket) = world.sockets.get_mut(&id) {
            socket.handle_data(early);
            socket.is_ended = has_ended;
            socket.may_be_reset = may_be_shed || has_reset;
            if has_reset {
                socket.reset(now);
            }
        }
        let address: SocketAddr = CLIENT.parse().unwrap();
        Ok((client, Some(address.into())))
    }

    fn socket(&mut self, _: SocketAddr) -> Result<OwnedFd> {
        let mut world = self.world.borrow_mut();
        let Some(client) = world.last_accepted else {
            world.fail("a server leg without a client");
        };
        if world.is_to_fail() {
            world.note_broken(client);
            return Err(Errno::MFILE);
        }
        let (server, id) = world.add_socket(State::Connecting)?;
        let may_be_reset = world.sockets.get(&client).is_some_and(|it| it.may_be_reset);
        for (socket, partner) in [(id, client), (client, id)] {
            if let Some(socket) = world.sockets.get_mut(&socket) {
                socket.partner = Some(partner);
                socket.may_be_reset = may_be_reset;
            }
        }
        Ok(server)
    }

    fn connect(&mut self, socket: RawFd, address: SocketAddr) -> Result<()> {
        assert_eq!(address, SERVER.parse().unwrap());
        let mut world = self.world.borrow_mut();
        let id = world.socket(socket).0;
        if world.is_to_fail() {
            world.note_broken(id);
            let errors = [Errno::NETUNREACH, Errno::ADDRNOTAVAIL, Errno::NOBUFS];
            return Err(errors[world.random.below(3) as usize]);
        }
        Err(Errno::INPROGRESS)
    }

    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        let most = world.may_fail(buffer.len())?;
        let (id, socket) = world.socket(socket);
        let start = socket.read;
        let count = socket.receive(most, true)?;
        buffer[..count as usize].copy_from_slice(world.bytes_of(id, start, count));
        world.progress += 1;
        Ok(count as usize)
    }

    fn peek(&mut self, socket: RawFd) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        let (_, socket) = world.socket(socket);
        socket.receive(1, false).map(|count| count as usize)
    }

    fn waiting_bytes(&mut self, socket: RawFd) -> Result<u64> {
        Ok(self.world.borrow_mut().socket(socket).1.waiting())
    }

    fn send(&mut self, socket: RawFd, bytes: &[u8]) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        let most = world.may_fail(bytes.len())?;
        let (id, socket) = world.socket(socket);
        let (start, partner) = (socket.written, socket.partner);
        let count = socket.send(most)?;
        world.progress += 1;
        let Some(from) = partner else {
            world.fail("data for a leg without another leg");
        };
        if *world.bytes_of(from, start, count) != bytes[..count as usize] {
            world.fail(&format!("{id:?} gets wrong bytes from {start} on"));
        }
        if start + count > world.sockets[&from].read {
            world.fail(&format!("{id:?} gets more bytes than were read"));
        }
        Ok(count as usize)
    }

    fn splice(&mut self, from: RawFd, to: RawFd, count: usize) -> Result<usize> {
        let mut world = self.world.borrow_mut();
        let objects = [from, to].map(|descriptor| world.objects.get(&descriptor).copied());
        match objects {
            [Some(Object::Socket(_)), Some(Object::Pipe(pipe))] => world.fill(from, pipe, count),
            [Some(Object::Pipe(pipe)), Some(Object::Socket(_))] => world.empty(pipe, to, count),
            objects => world.fail(&format!("splice between {objects:?}")),
        }
    }

    fn pipe(&mut self) -> Result<(OwnedFd, OwnedFd)> {
        let mut world = self.world.borrow_mut();
        if world.is_to_fail() {
            return Err(Errno::MFILE);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let number = world.next_number;
        world.next_number += 1;
        world.pipes.insert(number, None);
        world.add(reader.as_raw_fd(), Object::Pipe(number));
        world.add(writer.as_raw_fd(), Object::Pipe(number));
        Ok((reader, writer))
    }

    fn end_writing(&mut self, socket: RawFd) -> Result<()> {
        let mut world = self.world.borrow_mut();
        let (id, leg) = world.socket(socket);
        if leg.state == State::Connected && !leg.has_sent_end {
            world.check_end(id);
        }
        world.progress += 1;
        world.socket(socket).1.end_writing()
    }

    fn socket_error(&mut self, socket: RawFd) -> Result<Result<()>> {
        let mut world = self.world.borrow_mut();
        Ok(world.socket(socket).1.take_error().map_or(Ok(()), Err))
    }

    fn peer_address(&mut self, socket: RawFd) -> Result<Option<SocketAddr>> {
        match self.world.borrow_mut().socket(socket).1.has_peer() {
            true => Ok(CLIENT.parse().ok()),
            false => Err(Errno::NOTCONN),
        }
    }

    fn own_address(&mut self, _: RawFd) -> Option<SocketAddr> {
        OWN.parse().ok()
    }

    fn unacknowledged_bytes(&mut self, socket: RawFd) -> std::io::Result<u64> {
        Ok(self.world.borrow_mut().socket(socket).1.unacknowledged())
    }

    fn set_reset_on_close(&mut self, socket: RawFd, is_on: bool) -> std::io::Result<()> {
        let mut world = self.world.borrow_mut();
        world.socket(socket).1.is_reset_on_close = is_on;
        Ok(())
    }
}
