//! A thread that looks up the names of servers, and checks the servers of listeners that have several.
//!
//! A check is a connection that is reset as soon as the server has accepted it. It has the source address and
//! the marks of the listener's server legs, so it has the same route. The thread never waits for a single server,
//! and no session waits for this thread.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use midspan_linux::tcp;
use midspan_policy::LegStart;
use midspan_policy::servers::{Health, ServerAddress, ServerId};
use midspan_units::{Dscp, Time};
use rustix::event::epoll::Event;
use rustix::io::Errno;

use super::clockwork::{Clockwork, Deadline, Reason};
use super::control::{Clock, Command, Control};
use super::legs;
use super::limits::{Limits, Spare};
use super::listener::Listener;
use super::negotiation::{Asked, NamesOfThread};
use super::poll::{Poll, Token};
use super::server_lists::{List, SharedServers};
use super::server_pool::{ServerPool, is_of_server};
use super::system;
use super::table::Key;

/// Checks at a time; the others wait.
const MOST_CHECKS: usize = 64;
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
    /// Checks that wait for an answer, by number.
    checks: BTreeMap<u64, Check>,
    /// Names that are looked up, by the number of the request.
    look_ups: BTreeMap<u64, (Weak<ServerPool>, ServerId)>,
    last_number: u64,
}

struct Check {
    pool: Weak<ServerPool>,
    listener: Arc<Listener>,
    at: ServerAddress,
    socket: OwnedFd,
    /// When it counts as failed.
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
        checks: BTreeMap::new(),
        look_ups: BTreeMap::new(),
        last_number: 0,
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
        for event in events.iter() {
            if let Token::Source(_, number) = Token::from(event)
                && let Some(check) = self.checks.remove(&number)
            {
                let has_succeeded = result(&check.socket);
                self.finish(&check, has_succeeded);
            }
        }
        let now = self.clockwork.now();
        let is_late = |(_, check): &(&u64, &Check)| check.deadline <= now;
        let late: Vec<u64> = (self.checks.iter().filter(is_late))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(check) = self.checks.remove(&number) {
                self.finish(&check, Some(false));
            }
        }
        for (key, addresses) in self.names.take() {
            if let Some((pool, server)) = self.look_ups.remove(&key.number())
                && let Some(pool) = pool.upgrade()
            {
                let found = addresses.unwrap_or_default();
                pool.lock().note_addresses(now, server, &found);
            }
        }
        Ok(())
    }

    /// Begins the checks and look-ups that are due; returns when the next is.
    fn begin_due(&mut self) -> Option<Deadline> {
        let now = self.clockwork.now();
        let lists = self.servers.present();
        let can_ask = self.names.can_ask();
        for list in &lists {
            let look_ups = match can_ask {
                true => list.pool.lock().take_look_ups(now),
                false => Vec::new(),
            };
            for (server, name) in look_ups {
                self.look_up(list, server, &name, now);
            }
            let room = MOST_CHECKS.saturating_sub(self.checks.len());
            let checks = list.pool.lock().take_checks(now, room);
            for at in checks {
                self.check(list, at, now);
            }
        }
        let has_room = self.checks.len() < MOST_CHECKS;
        let next = lists.iter().flat_map(|list| {
            let servers = list.pool.lock();
            // Without room, the end of a check leads to the next one; a new resolver wakes this thread.
            let check = servers.next_check().filter(|_| has_room);
            [servers.next_look_up().filter(|_| can_ask), check]
        });
        let ends = self.checks.values().map(|check| Some(check.deadline));
        let at = next.chain(ends).flatten().min()?;
        Some(Deadline {
            at,
            reason: Reason::Source,
        })
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn look_up(&mut self, list: &List, server: ServerId, name: &str, now: Time) {
        let pool = Arc::downgrade(&list.pool);
        // An earlier request of this server was lost.
        (self.look_ups).retain(|_, (of, id)| *id != server || !Weak::ptr_eq(of, &pool));
        let number = self.next_number();
        let found = match self.names.ask(Key::from_number(number), NO_CLIENT, name) {
            Asked::Known(addresses) => addresses,
            Asked::Refused => Vec::new(),
            Asked::Waiting => {
                self.look_ups.insert(number, (pool, server));
                return;
            }
        };
        list.pool.lock().note_addresses(now, server, &found);
    }

    fn check(&mut self, list: &List, at: ServerAddress, now: Time) {
        if list.listener.listens_at(at.address) {
            return note(&list.pool, &list.listener.name, at, (Some(false), now));
        }
        let number = self.next_number();
        let begun = match self.limits.take_descriptor() {
            None => Err(Errno::MFILE),
            Some(descriptor) => connect(&list.listener, at).and_then(|socket| {
                self.poll.add_source_socket(&socket, 0, number)?;
                Ok((socket, descriptor))
            }),
        };
        match begun {
            Ok((socket, descriptor)) => {
                let limit = list.pool.lock().check_limit();
                let check = Check {
                    pool: Arc::downgrade(&list.pool),
                    listener: Arc::clone(&list.listener),
                    at,
                    socket,
                    deadline: now + limit,
                    _descriptor: descriptor,
                };
                self.checks.insert(number, check);
            }
            Err(error) => {
                let result = is_of_server(error).then_some(false);
                note(&list.pool, &list.listener.name, at, (result, now));
            }
        }
    }

    fn finish(&self, check: &Check, has_succeeded: Option<bool>) {
        if let Some(pool) = check.pool.upgrade() {
            let result = (has_succeeded, self.clockwork.now());
            note(&pool, &check.listener.name, check.at, result);
        }
    }
}

fn note(
    pool: &ServerPool,
    listener: &str,
    at: ServerAddress,
    (has_succeeded, now): (Option<bool>, Time),
) {
    let mut servers = pool.lock();
    let Some(health) = servers.note_check(now, at, has_succeeded) else {
        return;
    };
    let server = servers.get(at.server).map(ToString::to_string);
    drop(servers);
    let (server, address) = (server.unwrap_or_default(), at.address);
    match health {
        Health::Up => tracing::info!(listener, server, %address, "server is up"),
        _ => tracing::warn!(listener, server, %address, "server is {}", health.name()),
    }
}

/// Begins to connect to a server as the listener's sessions do.
fn connect(listener: &Listener, at: ServerAddress) -> rustix::io::Result<OwnedFd> {
    let source = listener.source.in_turn(at.address, 0).next().flatten();
    let set_up = |socket: &OwnedFd| {
        let mark = listener.marks.server;
        let marked = mark.map_or(Ok(()), |mark| tcp::set_mark(socket, mark));
        let class = listener.set_up_leg(socket, &LegStart::default(), Dscp::default());
        let common = legs::set_common_options(socket);
        [common.is_err(), marked.is_err(), class.is_err()]
            .map(u64::from)
            .iter()
            .sum::<u64>()
    };
    legs::connect_as_proxy(at.address, source, set_up).map(|connecting| connecting.socket.into())
}

/// Whether a connection has been accepted; `None` if this machine is the reason why not.
fn result(socket: &OwnedFd) -> Option<bool> {
    if matches!(system::peer_address(socket), Ok(Some(_))) {
        return Some(true);
    }
    match system::socket_error(socket) {
        Ok(Err(error)) | Err(error) => is_of_server(error).then_some(false),
        Ok(Ok(())) => Some(false),
    }
}
