//! The relay on raw epoll: one loop per thread, edge triggered, a table of sessions.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::direction::{Direction, Shared, Waits};

/// The token of the listener's events.
const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 256;

struct Session {
    client: OwnedFd,
    server: OwnedFd,
    connected: bool,
    /// Data arrived before the connection to the server was established.
    client_readable: bool,
    queued: bool,
    /// For each leg: unread data, or an end, may wait.
    more: [bool; 2],
    upward: Direction,
    downward: Direction,
}

struct Loop {
    epoll: OwnedFd,
    listener: TcpListener,
    servers: Vec<SocketAddr>,
    next_server: usize,
    sessions: Vec<Option<Session>>,
    free: Vec<usize>,
    turns: VecDeque<usize>,
    shared: Shared,
}

/// Serves `listener` without end.
pub fn run(listener: TcpListener, servers: Vec<SocketAddr>) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut state = Loop {
        epoll,
        listener,
        servers,
        next_server: 0,
        sessions: Vec::new(),
        free: Vec::new(),
        turns: VecDeque::new(),
        shared: Shared::new(),
    };
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        let at_once = rustix::event::Timespec::default();
        let timeout = (!state.turns.is_empty()).then_some(&at_once);
        match epoll::wait(&state.epoll, spare_capacity(&mut events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => state.accept(),
                token => state.handle(token, event.flags),
            }
        }
        for _ in 0..state.turns.len() {
            if let Some(slot) = state.turns.pop_front()
                && let Some(session) = state.sessions[slot].as_mut()
            {
                session.queued = false;
                let turns = [&session.upward, &session.downward]
                    .map(|direction| direction.waits == Waits::Turn);
                state.advance(slot, turns);
            }
        }
    }
}

impl Loop {
    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(client) = rustix::net::accept_with(&self.listener, flags) {
            // A session that cannot be set up is dropped; its sockets close.
            let _ = self.open(client, flags);
        }
    }

    fn open(&mut self, client: OwnedFd, flags: SocketFlags) -> rustix::io::Result<()> {
        let to = self.servers[self.next_server];
        self.next_server = (self.next_server + 1) % self.servers.len();
        let server =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_tcp_nodelay(&client, true)?;
        rustix::net::sockopt::set_tcp_nodelay(&server, true)?;
        match rustix::net::connect(&server, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() - 1
        });
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let token = (slot as u64) << 1;
        epoll::add(
            &self.epoll,
            &server,
            EventData::new_u64(token | 1),
            interest,
        )?;
        epoll::add(&self.epoll, &client, EventData::new_u64(token), interest)?;
        self.sessions[slot] = Some(Session {
            client,
            server,
            connected: false,
            client_readable: false,
            queued: false,
            more: [false; 2],
            upward: Direction::new(),
            downward: Direction::new(),
        });
        Ok(())
    }

    fn handle(&mut self, token: u64, flags: EventFlags) {
        let (slot, leg) = ((token >> 1) as usize, (token & 1) as usize);
        let Some(session) = self.sessions.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        session.more[leg] |= flags.intersects(ended);
        if session.connected {
            let concerned = session.concerned(leg, flags);
            self.advance(slot, concerned);
        } else if leg == 1 {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                self.close(slot);
                return;
            }
            session.connected = true;
            let client_readable = session.client_readable;
            self.advance(slot, [client_readable, flags.contains(EventFlags::IN)]);
        } else {
            session.client_readable |= flags.contains(EventFlags::IN);
        }
    }

    /// Moves as much data as possible in the selected directions, upstream and downstream.
    fn advance(&mut self, slot: usize, [upward, downward]: [bool; 2]) {
        let Some(session) = self.sessions[slot].as_mut() else {
            return;
        };
        let (client, server) = (&session.client, &session.server);
        let up = match session.upward.waits {
            waits if !upward || waits == Waits::Nothing => Ok(waits),
            _ => (session.upward).advance(client, server, session.more[0], &mut self.shared),
        };
        let down = match session.downward.waits {
            waits if !downward || waits == Waits::Nothing => Ok(waits),
            _ => (session.downward).advance(server, client, session.more[1], &mut self.shared),
        };
        match (up, down) {
            (Err(_), _) | (_, Err(_)) | (Ok(Waits::Nothing), Ok(Waits::Nothing)) => {
                self.close(slot);
            }
            (Ok(up), Ok(down)) => {
                if (up == Waits::Turn || down == Waits::Turn) && !session.queued {
                    session.queued = true;
                    self.turns.push_back(slot);
                }
            }
        }
    }

    fn close(&mut self, slot: usize) {
        if self.sessions[slot].take().is_some() {
            self.free.push(slot);
        }
    }
}

impl Session {
    /// For each direction, upstream and downstream, whether it waits for this event on a leg.
    fn concerned(&self, leg: usize, flags: EventFlags) -> [bool; 2] {
        let gone = EventFlags::HUP | EventFlags::ERR;
        let readable = flags.intersects(EventFlags::IN | EventFlags::RDHUP | gone);
        let writable = flags.intersects(EventFlags::OUT | gone);
        let waits = |direction: &Direction, inbound: bool| match direction.waits {
            Waits::Read => inbound && readable,
            Waits::Write => !inbound && writable,
            Waits::Turn | Waits::Nothing => false,
        };
        [
            waits(&self.upward, leg == 0),
            waits(&self.downward, leg == 1),
        ]
    }
}
