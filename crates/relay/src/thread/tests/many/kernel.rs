//! A kernel that gives any number of connections: sockets are numbers, and their state is a few bits.
//!
//! Its clock is that of Linux, put forward by the model. So the thread sees how long its own work takes.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use midspan_linux::unopened;
use rustix::event::Timespec;
use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::io::{Errno, Result};
use rustix::net::SocketAddrAny;

use crate::scripted::Kernel;
use crate::thread::tests::bench::{OWN, SERVER};

/// The first client. Each has four connections.
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const CONNECTIONS_OF_CLIENT: u32 = 4;
const FIRST_PORT: u16 = 1024;

/// A socket that epoll does not watch.
const UNWATCHED: u64 = u64::MAX;

/// What a peer has sent and the relay has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    Nothing,
    Byte,
    End,
}

/// A number for each socket, in the order in which they are made: the client and the server of each session.
pub type Number = u32;

/// The state of the kernel.
pub struct World {
    /// How far the clock was put forward.
    pub ahead: Duration,
    pub listener: RawFd,
    listener_token: u64,
    /// Connections that wait to be accepted.
    pub waiting: usize,
    accepted: u32,
    next: Number,
    /// By the number of the socket: its token, and what its peer has sent.
    tokens: Vec<u64>,
    sent: Vec<Sent>,
    /// Descriptors of real files, if there are few.
    real: Option<BTreeMap<RawFd, Number>>,
    ready: VecDeque<(Number, EventFlags)>,
    /// The time-out of the last wait.
    pub timeout: Option<Duration>,
}

impl World {
    /// Room for this many sessions, one after the other. All memory is in use from the beginning.
    pub fn new(listener: RawFd, sessions: usize, is_real: bool) -> Self {
        Self {
            ahead: Duration::ZERO,
            listener,
            listener_token: UNWATCHED,
            waiting: 0,
            accepted: 0,
            next: 0,
            tokens: vec![UNWATCHED; 2 * sessions],
            sent: vec![Sent::End; 2 * sessions],
            real: is_real.then(BTreeMap::new),
            ready: VecDeque::new(),
            timeout: None,
        }
    }

    /// The number of connections accepted so far.
    pub const fn accepted(&self) -> u32 {
        self.accepted
    }

    pub fn has_events(&self) -> bool {
        self.waiting > 0 || !self.ready.is_empty()
    }

    /// The peer of a socket sends.
    pub fn send(&mut self, socket: Number, sent: Sent) {
        self.sent[socket as usize] = sent;
        let flags = match sent {
            Sent::End => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP,
            _ => EventFlags::IN | EventFlags::OUT,
        };
        self.ready.push_back((socket, flags));
    }

    fn number(&self, descriptor: RawFd) -> Option<Number> {
        match &self.real {
            Some(real) => real.get(&descriptor).copied(),
            None => u32::try_from(descriptor - unopened::FIRST).ok(),
        }
    }

    fn socket(&mut self) -> Result<OwnedFd> {
        let number = self.next;
        if number as usize >= self.sent.len() {
            return Err(Errno::MFILE);
        }
        self.next += 1;
        self.sent[number as usize] = Sent::Nothing;
        match &mut self.real {
            Some(real) => {
                let file = OwnedFd::from(File::open("/dev/null").map_err(|_| Errno::MFILE)?);
                real.insert(file.as_raw_fd(), number);
                Ok(file)
            }
            None => unopened::descriptor(number).ok_or(Errno::MFILE),
        }
    }
}

pub struct Many(pub Rc<RefCell<World>>);

impl Kernel for Many {
    fn now(&mut self) -> Instant {
        Instant::now() + self.0.borrow().ahead
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<()> {
        let world = &mut *self.0.borrow_mut();
        world.timeout = timeout.map(|it| Duration::new(it.tv_sec as u64, it.tv_nsec as u32));
        if world.waiting > 0 && world.listener_token != UNWATCHED {
            let data = EventData::new_u64(world.listener_token);
            let flags = EventFlags::IN;
            events.push(Event { flags, data });
        }
        while events.len() < events.capacity()
            && let Some((socket, flags)) = world.ready.pop_front()
        {
            let token = world.tokens[socket as usize];
            if token != UNWATCHED {
                let data = EventData::new_u64(token);
                events.push(Event { flags, data });
            }
        }
        Ok(())
    }

    fn watch(&mut self, descriptor: RawFd, token: u64, _: EventFlags) -> Result<()> {
        let mut world = self.0.borrow_mut();
        if descriptor == world.listener {
            world.listener_token = token;
        } else if let Some(number) = world.number(descriptor) {
            world.tokens[number as usize] = token;
        }
        Ok(())
    }

    fn unwatch(&mut self, descriptor: RawFd) -> Result<()> {
        let mut world = self.0.borrow_mut();
        if descriptor == world.listener {
            world.listener_token = UNWATCHED;
        } else if let Some(number) = world.number(descriptor) {
            world.tokens[number as usize] = UNWATCHED;
        }
        Ok(())
    }

    fn accept(&mut self, _: RawFd) -> Result<(OwnedFd, Option<SocketAddrAny>)> {
        let mut world = self.0.borrow_mut();
        if world.waiting == 0 {
            return Err(Errno::AGAIN);
        }
        let socket = world.socket()?;
        world.waiting -= 1;
        let client = world.accepted;
        world.accepted += 1;
        let host = Ipv4Addr::from(u32::from(FIRST_CLIENT) + client / CONNECTIONS_OF_CLIENT);
        let port = FIRST_PORT + (client % CONNECTIONS_OF_CLIENT) as u16;
        Ok((socket, Some(SocketAddr::from((host, port)).into())))
    }

    fn socket(&mut self, _: SocketAddr) -> Result<OwnedFd> {
        self.0.borrow_mut().socket()
    }

    /// The server answers before the next turn.
    fn connect(&mut self, socket: RawFd, _: SocketAddr) -> Result<()> {
        let mut world = self.0.borrow_mut();
        let number = world.number(socket).ok_or(Errno::BADF)?;
        world.ready.push_back((number, EventFlags::OUT));
        Err(Errno::INPROGRESS)
    }

    fn receive(&mut self, socket: RawFd, buffer: &mut [u8]) -> Result<usize> {
        let mut world = self.0.borrow_mut();
        let number = world.number(socket).ok_or(Errno::BADF)?;
        let sent = &mut world.sent[number as usize];
        match *sent {
            Sent::Nothing => Err(Errno::AGAIN),
            Sent::End => Ok(0),
            Sent::Byte => {
                *sent = Sent::Nothing;
                buffer[0] = 7;
                Ok(1)
            }
        }
    }

    fn peek(&mut self, socket: RawFd) -> Result<usize> {
        let world = self.0.borrow();
        let number = world.number(socket).ok_or(Errno::BADF)?;
        match world.sent[number as usize] {
            Sent::Nothing => Err(Errno::AGAIN),
            Sent::End => Ok(0),
            Sent::Byte => Ok(1),
        }
    }

    fn send(&mut self, _: RawFd, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn end_writing(&mut self, _: RawFd) -> Result<()> {
        Ok(())
    }

    fn socket_error(&mut self, _: RawFd) -> Result<Result<()>> {
        Ok(Ok(()))
    }

    fn peer_address(&mut self, _: RawFd) -> Result<Option<SocketAddr>> {
        Ok(SERVER.parse().ok())
    }

    fn own_address(&mut self, _: RawFd) -> Option<SocketAddr> {
        OWN.parse().ok()
    }

    fn set_reset_on_close(&mut self, _: RawFd, _: bool) -> std::io::Result<()> {
        Ok(())
    }
}
