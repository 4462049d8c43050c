//! A thread that looks up the names of servers, and checks the servers of listeners that have several.
//!
//! A check is a connection that is reset as soon as the server has accepted it. It has the source address and
//! the marks of the listener's server legs, so it has the same route. The thread never waits for a single server,
//! and no session waits for this thread.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use midspan_linux::tcp;
use midspan_policy::LegStart;
use midspan_policy::servers::{CHECK_LIMIT, ServerAddress, ServerId};
use midspan_units::{Dscp, Time};
use rustix::event::epoll::Event;
use rustix::io::Errno;

use super::clockwork::{Clockwork, Deadline, Reason};
use super::control::{Clock, Command, Control};
use super::legs;
use super::limits::{Limits, Spare};
use super::listener::Listener;
use super::negotiation::{Asked, NamesOfThread, is_of_server};
use super::poll::{Poll, Token};
use super::server_lists::SharedServers;
use super::server_pool::lock;
use super::system;
use super::table::Key;

/// Events read at once.
const EVENTS: usize = 64;
/// Whose look-ups these are: not those of a client.
const NO_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What the thread works with.
struct Checking {
    servers: SharedServers,
    names: NamesOfThread,
    limits: Arc<Limits>,
    poll: Poll,
    clockwork: Clockwork,
    /// Checks that wait for an answer.
    checks: Vec<Check>,
}

struct Check {
    at: ServerAddress,
    socket: OwnedFd,
    /// When its result is read: as soon as there is an answer.
    deadline: Time,
    _descriptor: Spare,
}

/// Starts the thread, which runs until the relay stops.
///
/// # Errors
/// Those of epoll and of starting a thread.
pub fn start(
    servers: SharedServers,
    names: NamesOfThread,
    limits: Arc<Limits>,
    (control, clock): (Arc<Control>, Clock),
) -> std::io::Result<JoinHandle<()>> {
    let poll = Poll::new()?;
    // Edge-triggered: each command and each answer of the resolver wakes the thread once.
    poll.add_source(control.wake_up(), 0, false)?;
    let mut checking = Checking {
        servers,
        names,
        limits,
        poll,
        clockwork: Clockwork::new(clock),
        checks: Vec::new(),
    };
    let run = move || {
        let mut events = Vec::with_capacity(EVENTS);
        while control.command() != Command::Stop {
            if let Err(error) = checking.turn(&mut events) {
                tracing::error!("servers are not checked any more: {error}");
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("servers".to_owned())
        .spawn(run)
}

impl Checking {
    /// Begins what is due, waits for events or the next deadline, and handles them.
    fn turn(&mut self, events: &mut Vec<Event>) -> rustix::io::Result<()> {
        let deadline = self.begin_due();
        let timeout = self.clockwork.wait_until(deadline);
        events.clear();
        match self.poll.wait(events, timeout.as_ref()) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        self.clockwork.begin_turn(deadline, events.len());
        let now = self.clockwork.now();
        for event in events.iter() {
            if let Token::Source(_, number) = Token::from(event)
                && let Some(check) = self
                    .checks
                    .iter_mut()
                    .find(|of| number_of(&of.socket) == number)
            {
                check.deadline = now;
            }
        }
        let ended = self.checks.extract_if(.., |check| check.deadline <= now);
        for check in ended.collect::<Vec<Check>>() {
            self.note(check.at, result(&check.socket));
        }
        let present = self.servers.present();
        for (key, addresses) in self.names.take() {
            let found = addresses.unwrap_or_default();
            // A number belongs to one server of all listeners.
            for (pool, _) in &present {
                lock(pool).note_addresses(ServerId(key.number()), &found);
            }
        }
        Ok(())
    }

    /// Begins the checks and look-ups that are due; returns when the next is, or a check ends.
    fn begin_due(&mut self) -> Option<Deadline> {
        let now = self.clockwork.now();
        let mut next = None;
        for (pool, listener) in self.servers.present() {
            let due = lock(&pool).take_due(now, self.names.can_ask());
            for (server, name) in due.look_ups {
                let key = Key::from_number(server.0);
                if let Asked::Known(found) = self.names.ask(key, NO_CLIENT, &name) {
                    lock(&pool).note_addresses(server, &found);
                }
            }
            for at in due.checks {
                if !self.checks.iter().any(|check| check.at == at) {
                    self.check(&listener, at, now);
                }
            }
            next = next.into_iter().chain(due.next).min();
        }
        let ends = self.checks.iter().map(|check| check.deadline);
        Clockwork::next([(Reason::Source, ends.chain(next).min())])
    }

    fn check(&mut self, listener: &Listener, at: ServerAddress, now: Time) {
        let begun = match self.limits.take_descriptor() {
            _ if listener.listens_at(at.address) => Err(Errno::CONNREFUSED),
            None => Err(Errno::MFILE),
            Some(descriptor) => connect(listener, at.address).and_then(|socket| {
                (self.poll).add_source_socket(&socket, 0, number_of(&socket))?;
                Ok(Check {
                    at,
                    socket,
                    deadline: now + CHECK_LIMIT,
                    _descriptor: descriptor,
                })
            }),
        };
        match begun {
            Ok(check) => self.checks.push(check),
            Err(error) => self.note(at, is_of_server(error).then_some(false)),
        }
    }

    fn note(&self, at: ServerAddress, has_succeeded: Option<bool>) {
        let (now, address) = (self.clockwork.now(), at.address);
        for (pool, listener) in self.servers.present() {
            let Some((server, is_up)) = lock(&pool).note_check(now, at, has_succeeded) else {
                continue;
            };
            let listener = &listener.name;
            match is_up {
                true => tracing::info!(listener, %server, %address, "server is up"),
                false => tracing::warn!(listener, %server, %address, "server is down"),
            }
        }
    }
}

/// A number that no other socket has at the same time; 0 is that of the wake-up.
fn number_of(socket: &OwnedFd) -> u64 {
    u64::from(socket.as_raw_fd().unsigned_abs()) + 1
}

/// Begins to connect to a server as the listener's sessions do.
fn connect(listener: &Listener, server: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let source = listener.source.in_turn(server, 0).next().flatten();
    let set_up = |socket: &OwnedFd| {
        let mark = listener.marks.server;
        let marked = mark.map_or(Ok(()), |mark| tcp::set_mark(socket, mark));
        let class = listener.set_up_leg(socket, &LegStart::default(), Dscp::default());
        let common = legs::set_common_options(socket);
        u64::from(marked.is_err() || class.is_err() || common.is_err())
    };
    legs::connect_as_proxy(server, source, set_up).map(|connecting| connecting.socket.into())
}

/// Whether a connection has been accepted; `None` if this machine is the reason why not.
fn result(socket: &OwnedFd) -> Option<bool> {
    let is_connected = matches!(system::peer_address(socket), Ok(Some(_)));
    match system::socket_error(socket) {
        Ok(Err(error)) | Err(error) => is_of_server(error).then_some(false),
        Ok(Ok(())) => Some(is_connected),
    }
}
