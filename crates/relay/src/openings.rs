//! Connections that are being opened: from the client's SYN until the relay has accepted the connection.
//!
//! The owner of the SYN queue (the proxy's gate) adds connections, on any thread; the relay's threads find
//! them here when they accept. The table is [bounded](midspan_policy::opening_bound), in all and for each
//! client: a flood of SYNs cannot make it larger, and one client cannot take all of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;
use midspan_policy::Request;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::making_room::Awaited;
use midspan_policy::opening_bound::{Full, OpeningBound, OpeningLimits};
use midspan_policy::prefix::host_prefix;
use midspan_units::Time;

use super::arrival::Arrival;
use super::leg_socket::LegSocket;
use super::sharing::Expected;
use super::system;

/// Most records of unanswered connections; the gate takes them several times a second.
const UNANSWERED_LIMIT: usize = 256;

impl Default for Openings {
    /// None may be opened until the limits are [changed](Openings::change_limits).
    fn default() -> Self {
        Self::new(OpeningLimits::default())
    }
}

/// The state in which a SYN finds its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// A new connection, which is held from now on.
    New,
    /// An earlier copy of this SYN is held.
    Held,
    /// Another SYN of these addresses and ports is held. The client has given that attempt up, and
    /// this SYN replaces it.
    HeldOther,
    /// An earlier copy of this SYN was already sent to the listener.
    Released,
    /// Too many connections are being opened, in all or by this client. The client of this held SYN
    /// is overdue, so this SYN may be released to make room.
    FullBut(Request),
    /// Too many connections are being opened, and no client is overdue.
    Full,
}

/// A connection whose SYN has been sent on to the listener.
#[derive(Debug)]
pub struct Released {
    /// The connection.
    pub arrival: Arrival,
    /// The server leg, which is connected or being connected; `None` if the relay chooses a route of the overlay, and
    /// calls it.
    pub server: Option<LegSocket>,
    /// The thread that is to accept the connection, if one was chosen. Any other thread may accept
    /// it, too.
    pub expected: Option<Expected>,
}

/// Connections that are being opened.
#[derive(Debug)]
pub struct Openings {
    table: Mutex<Table>,
    /// Connections that the relay has accepted, and whose servers never answered.
    unanswered: Mutex<Vec<Request>>,
    start: Instant,
}

#[derive(Debug)]
struct Table {
    connections: BTreeMap<Request, Opening>,
    /// Counts them. A client is an IPv4 address, or an IPv6 network of 64 bits.
    bound: OpeningBound<IpNet>,
    /// Held connections, by the time at which their clients have to repeat the SYN.
    awaited: Awaited<IpNet, Request>,
}

/// A connection, with the sequence number of its SYN, because the client may use its port again.
#[derive(Debug)]
struct Opening {
    sequence: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Held,
    Released(Box<Released>, Instant),
}

impl Openings {
    /// An empty table.
    #[must_use]
    pub fn new(limits: OpeningLimits) -> Self {
        Self {
            table: Mutex::new(Table {
                connections: BTreeMap::new(),
                bound: OpeningBound::new(limits),
                awaited: Awaited::default(),
            }),
            unanswered: Mutex::new(Vec::new()),
            start: Instant::now(),
        }
    }

    /// Changes the limits; connections that are being opened continue.
    pub fn change_limits(&self, limits: OpeningLimits) {
        self.lock().bound.change_limits(limits);
    }

    /// A SYN with this sequence number has arrived.
    pub fn arrive(&self, connection: Request, sequence: u32, now: Instant) -> Reception {
        let time = self.time(now);
        let mut table = self.lock();
        let client = host_prefix(connection.client.ip());
        if let Some(opening) = table.connections.get_mut(&connection) {
            let is_copy = std::mem::replace(&mut opening.sequence, sequence) == sequence;
            let reception = match (&opening.state, is_copy) {
                (State::Held, true) => Reception::Held,
                (State::Held, false) => Reception::HeldOther,
                (State::Released(..), true) => Reception::Released,
                (State::Released(..), false) => {
                    // The earlier attempt has failed, and its server leg too.
                    opening.state = State::Held;
                    Reception::New
                }
            };
            match reception {
                Reception::Held => table.awaited.repeat(time, connection),
                Reception::New | Reception::HeldOther => {
                    table.awaited.begin(time, client, connection);
                }
                _ => {}
            }
            return reception;
        }
        if let Err(full) = table.bound.begin(time, client) {
            let overdue = match full {
                Full::OfClient => table.awaited.overdue_of(time, client),
                Full::All => table.awaited.overdue(time),
            };
            return overdue.map_or(Reception::Full, Reception::FullBut);
        }
        let state = State::Held;
        let opening = Opening { sequence, state };
        table.connections.insert(connection, opening);
        table.awaited.begin(time, client, connection);
        Reception::New
    }

    /// A held connection whose client is overdue.
    pub fn overdue_held(&self, now: Instant) -> Option<Request> {
        self.lock().awaited.overdue(self.time(now))
    }

    /// The connections whose SYNs are held.
    pub fn held(&self) -> Vec<Request> {
        let table = self.lock();
        let is_held = |opening: &Opening| matches!(opening.state, State::Held);
        let held = table.connections.iter().filter(|(_, it)| is_held(it));
        held.map(|(connection, _)| *connection).collect()
    }

    /// The SYN is about to be sent to the listener. Returns `false` if the connection is not in the table any
    /// more; then the server leg is closed.
    pub fn release(&self, connection: Request, released: Released, now: Instant) -> bool {
        // Before other threads have to wait.
        let released = Box::new(released);
        let mut table = self.lock();
        let Some(opening) = table.connections.get_mut(&connection) else {
            return false;
        };
        opening.state = State::Released(released, now);
        table.awaited.end(connection);
        true
    }

    /// The relay has accepted the connection; `None` if it is not in the table.
    pub fn take(&self, connection: Request) -> Option<Released> {
        let now = self.time(system::now());
        let mut table = self.lock();
        match table.connections.get(&connection)?.state {
            // The table has a newer attempt than the accepted one.
            State::Held => None,
            State::Released(..) => match table.remove(connection, (now, true))?.state {
                State::Released(released, _) => Some(*released),
                State::Held => None,
            },
        }
    }

    /// The selected start of the client leg of a released connection, if there is one.
    pub fn start_of(&self, connection: Request) -> Option<LearnedStart> {
        match &self.lock().connections.get(&connection)?.state {
            State::Held => None,
            State::Released(released, _) => released.arrival.start,
        }
    }

    /// The sequence number of the newest SYN of a connection.
    pub fn sequence_of(&self, connection: Request) -> Option<u32> {
        Some(self.lock().connections.get(&connection)?.sequence)
    }

    /// Removes a connection that will not be opened; returns the sequence number of its SYN.
    pub fn forget(&self, connection: Request) -> Option<u32> {
        let now = self.time(system::now());
        Some(self.lock().remove(connection, (now, false))?.sequence)
    }

    /// Removes connections that were released before `limit` and never accepted, because their
    /// clients did not complete the handshake. Returns their number. To be called about once a second.
    pub fn expire(&self, limit: Instant) -> usize {
        let now = self.time(system::now());
        let mut table = self.lock();
        table.bound.forget_old(now);
        let old: Vec<Request> = table
            .connections
            .iter()
            .filter(|(_, opening)| matches!(opening.state, State::Released(_, at) if at < limit))
            .map(|(connection, _)| *connection)
            .collect();
        for connection in &old {
            table.remove(*connection, (now, false));
        }
        old.len()
    }

    /// The relay has given up a connection that was accepted early, because its server never
    /// answered.
    pub fn note_unanswered(&self, connection: Request) {
        let mut unanswered = lock(&self.unanswered);
        if unanswered.len() < UNANSWERED_LIMIT {
            unanswered.push(connection);
        }
    }

    /// The connections that were [recorded](Self::note_unanswered) since the last call.
    pub fn take_unanswered(&self) -> Vec<Request> {
        std::mem::take(&mut lock(&self.unanswered))
    }

    /// Number of connections.
    pub fn count(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// The time for the policy crate.
    fn time(&self, now: Instant) -> Time {
        Time::ZERO + now.saturating_duration_since(self.start).into()
    }
}

/// No code panics while it holds this lock, so the protected data is always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Removes a connection, which has become a session if `is_complete`.
    fn remove(&mut self, connection: Request, (now, is_complete): (Time, bool)) -> Option<Opening> {
        let opening = self.connections.remove(&connection)?;
        self.awaited.end(connection);
        let client = host_prefix(connection.client.ip());
        match is_complete {
            true => self.bound.complete(now, client),
            false => self.bound.give_up(now, client),
        }
        Some(opening)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::Handshake;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    fn now() -> Instant {
        Instant::now()
    }

    fn connection(client: &str) -> Request {
        Request {
            client: client.parse().unwrap(),
            server: "198.51.100.1:80".parse().unwrap(),
        }
    }

    fn openings(all: usize, per_client: usize) -> Openings {
        Openings::new(OpeningLimits {
            all,
            per_client,
            most: all,
        })
    }

    fn released(request: Request) -> Released {
        let server = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        Released {
            arrival: Arrival::new(request, Handshake::EndToEnd, Time::ZERO),
            server: Some(server.into()),
            expected: None,
        }
    }

    #[test]
    fn a_connection_is_held_released_and_taken_once() {
        let openings = openings(9, 9);
        let one = connection("192.0.2.1:1000");
        assert_eq!(openings.arrive(one, 7, now()), Reception::New);
        assert_eq!(openings.arrive(one, 7, now()), Reception::Held);
        assert_eq!(openings.sequence_of(one), Some(7));
        openings.release(one, released(one), Instant::now());
        assert_eq!(openings.arrive(one, 7, now()), Reception::Released);
        let taken = openings.take(one).unwrap();
        assert_eq!(taken.arrival.request, one);
        assert!(openings.take(one).is_none());
        assert_eq!(
            (openings.count(), openings.arrive(one, 7, now())),
            (0, Reception::New)
        );
    }

    #[test]
    fn one_client_does_not_keep_others_out() {
        let openings = openings(4, 2);
        for port in 1000..1002 {
            let one = connection(&format!("192.0.2.1:{port}"));
            assert_eq!(openings.arrive(one, 7, now()), Reception::New);
        }
        let third = connection("192.0.2.1:1002");
        assert_eq!(openings.arrive(third, 7, now()), Reception::Full);
        for host in 2..4 {
            let other = connection(&format!("192.0.2.{host}:1000"));
            assert_eq!(openings.arrive(other, 7, now()), Reception::New);
        }
        assert_eq!(
            openings.arrive(connection("192.0.2.9:1000"), 7, now()),
            Reception::Full
        );
        openings.forget(connection("192.0.2.1:1000"));
        assert_eq!(openings.arrive(third, 7, now()), Reception::New);
    }

    #[test]
    fn connections_that_are_accepted_make_room_for_more() {
        let openings = Openings::new(OpeningLimits {
            all: 16,
            per_client: 2,
            most: 32,
        });
        let [one, two, three, four] =
            ["1000", "1001", "1002", "1003"].map(|port| connection(&format!("192.0.2.1:{port}")));
        for opened in [one, two] {
            assert_eq!(openings.arrive(opened, 7, now()), Reception::New);
        }
        assert_eq!(openings.arrive(three, 7, now()), Reception::Full);
        // Whether it is given up or accepted, its place is free. If it is accepted, there is one more.
        openings.forget(one);
        assert_eq!(openings.arrive(one, 7, now()), Reception::New);
        assert_eq!(openings.arrive(three, 7, now()), Reception::Full);
        openings.release(one, released(one), now());
        assert!(openings.take(one).is_some());
        for opened in [three, four] {
            assert_eq!(openings.arrive(opened, 7, now()), Reception::New);
        }
        assert_eq!(openings.arrive(one, 7, now()), Reception::Full);
        assert_eq!(openings.count(), 3);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let openings = openings(9, 1);
        let call = |client| openings.arrive(connection(client), 7, now());
        assert_eq!(call("[2001:db8::1]:1000"), Reception::New);
        assert_eq!(call("[2001:db8::2]:1000"), Reception::Full);
        assert_eq!(call("[2001:db8:0:1::2]:1000"), Reception::New);
    }

    #[test]
    fn what_is_never_accepted_expires_and_what_is_held_does_not() {
        let openings = openings(9, 9);
        let start = Instant::now();
        let (one, two) = (connection("192.0.2.1:1000"), connection("192.0.2.1:1001"));
        openings.arrive(one, 7, now());
        openings.release(one, released(one), start);
        openings.arrive(two, 7, now());
        assert_eq!(openings.expire(start), 0);
        assert_eq!(openings.expire(start + Duration::from_secs(1)), 1);
        assert!(openings.take(one).is_none());
        assert_eq!(openings.arrive(two, 7, now()), Reception::Held);
    }

    #[test]
    fn a_port_that_is_used_again_is_a_new_connection() {
        let openings = openings(9, 9);
        let one = connection("192.0.2.1:1000");
        assert_eq!(openings.arrive(one, 1, now()), Reception::New);
        assert_eq!(openings.arrive(one, 2, now()), Reception::HeldOther);
        assert_eq!(openings.arrive(one, 2, now()), Reception::Held);
        openings.release(one, released(one), Instant::now());
        assert_eq!(openings.arrive(one, 3, now()), Reception::New);
        // The old server leg is not used.
        assert!(openings.take(one).is_none());
        assert_eq!(openings.arrive(one, 3, now()), Reception::Held);
    }

    #[test]
    fn a_connection_that_was_given_up_is_not_released() {
        let openings = openings(9, 9);
        let (one, two) = (connection("192.0.2.1:1000"), connection("192.0.2.1:1001"));
        for opened in [one, two] {
            assert_eq!(openings.arrive(opened, 7, now()), Reception::New);
        }
        assert_eq!(openings.held(), [one, two]);
        openings.forget(one);
        assert!(!openings.release(one, released(one), now()));
        assert!(openings.take(one).is_none());
        assert!(openings.release(two, released(two), now()));
        assert!(openings.held().is_empty() && openings.take(two).is_some());
    }

    #[test]
    fn who_has_not_repeated_its_syn_makes_room_and_who_has_does_not() {
        let openings = openings(3, 2);
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let (dark, honest) = (connection("192.0.2.1:1000"), connection("192.0.2.2:1000"));
        let (other, late) = (connection("192.0.2.3:1000"), connection("192.0.2.4:1000"));
        for (one, time) in [(dark, 0), (honest, 100), (other, 200)] {
            assert_eq!(openings.arrive(one, 7, at(time)), Reception::New);
        }
        assert_eq!(openings.arrive(late, 7, at(1400)), Reception::Full);
        assert_eq!(openings.arrive(honest, 7, at(1100)), Reception::Held);
        assert_eq!(openings.arrive(late, 7, at(1600)), Reception::FullBut(dark));
        assert_eq!(openings.overdue_held(at(1600)), Some(dark));
        openings.forget(dark);
        assert_eq!(openings.arrive(late, 7, at(1600)), Reception::New);
        // The next one in turn; the honest client is not overdue.
        assert_eq!(
            openings.arrive(dark, 8, at(1800)),
            Reception::FullBut(other)
        );
    }

    #[test]
    fn a_client_with_too_many_makes_room_among_its_own() {
        let openings = openings(9, 2);
        let start = Instant::now();
        let (one, two) = (connection("192.0.2.1:1000"), connection("192.0.2.1:1001"));
        openings.arrive(connection("192.0.2.2:1000"), 7, start);
        openings.arrive(one, 7, start);
        openings.arrive(two, 7, start);
        let third = connection("192.0.2.1:1002");
        let later = start + Duration::from_secs(2);
        assert_eq!(openings.arrive(third, 7, later), Reception::FullBut(one));
    }

    #[test]
    fn a_released_one_makes_no_room() {
        let openings = openings(1, 9);
        let start = Instant::now();
        let one = connection("192.0.2.1:1000");
        openings.arrive(one, 7, start);
        openings.release(one, released(one), start);
        let (two, later) = (connection("192.0.2.2:1000"), start + Duration::from_secs(9));
        assert_eq!(openings.arrive(two, 7, later), Reception::Full);
        assert_eq!(openings.overdue_held(later), None);
        // The client has to begin again, and Midspan connects to the server again.
        assert_eq!(openings.arrive(one, 8, later), Reception::New);
        let last = later + Duration::from_secs(2);
        assert_eq!(openings.arrive(two, 7, last), Reception::FullBut(one));
    }
}
