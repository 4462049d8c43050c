//! Connections that are being opened: from the client's SYN until the relay has accepted it.
//!
//! Shared by the gate, which takes SYNs, and the relay's threads, which accept. Bounded, per
//! client and in all, so that a flood of SYNs neither fills it nor keeps others out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use midspan_policy::Handshake;
use midspan_policy::learned_start::LearnedStart;
use midspan_units::TimeSpan;

use crate::relay::Seat;

/// Most that are noted until they are taken; the gate takes them several times a second.
const UNANSWERED_LIMIT: usize = 256;

/// Both ends of a connection, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// Who calls.
    pub client: SocketAddr,
    /// Who is called.
    pub server: SocketAddr,
}

/// How many may be opened at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningLimits {
    /// By all clients together.
    pub all: usize,
    /// By one client: an IPv4 address, or an IPv6 network of 64 bits.
    pub per_client: usize,
}

/// What a SYN finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A new connection; it is held from now on.
    New,
    /// An earlier copy of this SYN is held.
    Held,
    /// Another SYN is held, of an attempt that the client has given up; this one is to take its
    /// place.
    HeldOther,
    /// An earlier copy of this SYN is on its way to the relay.
    Released,
    /// Too many connections are being opened.
    Full,
}

/// What the relay gets for a connection that it has accepted.
#[derive(Debug)]
pub struct Released<S> {
    /// The server leg, if it is connected.
    pub server: Option<S>,
    /// How the client's SYN was answered.
    pub handshake: Handshake,
    /// The mark that the client's SYN had, without our bits.
    pub mark: u32,
    /// When the client's first SYN came.
    pub since: Instant,
    /// Give up connecting to the server after this time.
    pub connect_timeout: Option<TimeSpan>,
    /// Its place among the sessions.
    pub seat: Option<Seat>,
    /// How the client's leg begins, where that was chosen.
    pub start: Option<LearnedStart>,
}

/// Connections that are being opened; `S` is a connected server leg.
#[derive(Debug)]
pub struct Openings<S> {
    table: Mutex<Table<S>>,
    /// Accepted by the relay, and never answered by their servers.
    unanswered: Mutex<Vec<Connection>>,
    limits: OpeningLimits,
}

#[derive(Debug)]
struct Table<S> {
    connections: BTreeMap<Connection, Opening<S>>,
    clients: BTreeMap<IpAddr, usize>,
}

/// A connection, with the sequence number of its SYN: the client may use its port again.
#[derive(Debug)]
struct Opening<S> {
    sequence: u32,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    Held,
    Released(Released<S>, Instant),
}

impl<S> Openings<S> {
    /// Nothing is being opened yet.
    #[must_use]
    pub const fn new(limits: OpeningLimits) -> Self {
        Self {
            table: Mutex::new(Table {
                connections: BTreeMap::new(),
                clients: BTreeMap::new(),
            }),
            unanswered: Mutex::new(Vec::new()),
            limits,
        }
    }

    /// A SYN with this sequence number has come.
    pub fn arrive(&self, connection: Connection, sequence: u32) -> Arrival {
        let mut table = self.lock();
        if let Some(opening) = table.connections.get_mut(&connection) {
            let is_copy = std::mem::replace(&mut opening.sequence, sequence) == sequence;
            return match (&opening.state, is_copy) {
                (State::Held, true) => Arrival::Held,
                (State::Held, false) => Arrival::HeldOther,
                (State::Released(..), true) => Arrival::Released,
                (State::Released(..), false) => {
                    // That attempt came to nothing, and so did its server leg.
                    opening.state = State::Held;
                    Arrival::New
                }
            };
        }
        let client = client_of(connection);
        let of_client = table.clients.get(&client).copied().unwrap_or(0);
        if table.connections.len() >= self.limits.all || of_client >= self.limits.per_client {
            return Arrival::Full;
        }
        let state = State::Held;
        let opening = Opening { sequence, state };
        table.connections.insert(connection, opening);
        *table.clients.entry(client).or_insert(0) += 1;
        Arrival::New
    }

    /// The SYN is about to go to the relay.
    pub fn release(&self, connection: Connection, released: Released<S>, now: Instant) {
        if let Some(opening) = self.lock().connections.get_mut(&connection) {
            opening.state = State::Released(released, now);
        }
    }

    /// The relay has accepted it; `None` where it is not known (any more).
    pub fn take(&self, connection: Connection) -> Option<Released<S>> {
        let mut table = self.lock();
        match table.connections.get(&connection)?.state {
            // A newer attempt than the one that was accepted.
            State::Held => None,
            State::Released(..) => match table.remove(connection)?.state {
                State::Released(released, _) => Some(released),
                State::Held => None,
            },
        }
    }

    /// How the client's leg begins, where that was chosen, of one that was released.
    pub fn start_of(&self, connection: Connection) -> Option<LearnedStart> {
        match &self.lock().connections.get(&connection)?.state {
            State::Held => None,
            State::Released(released, _) => released.start,
        }
    }

    /// Nothing comes of it; the sequence number of its SYN.
    pub fn forget(&self, connection: Connection) -> Option<u32> {
        Some(self.lock().remove(connection)?.sequence)
    }

    /// Forgets those that were released before `limit` and never accepted: their clients did not
    /// go on. Returns how many.
    pub fn expire(&self, limit: Instant) -> usize {
        let mut table = self.lock();
        let old: Vec<Connection> = table
            .connections
            .iter()
            .filter(|(_, opening)| matches!(opening.state, State::Released(_, at) if at < limit))
            .map(|(connection, _)| *connection)
            .collect();
        for connection in &old {
            table.remove(*connection);
        }
        old.len()
    }

    /// The relay has given up a connection that was accepted early, since its server never
    /// answered.
    pub fn note_unanswered(&self, connection: Connection) {
        let mut unanswered = lock(&self.unanswered);
        if unanswered.len() < UNANSWERED_LIMIT {
            unanswered.push(connection);
        }
    }

    /// What was [noted](Self::note_unanswered) since the last time.
    pub fn take_unanswered(&self) -> Vec<Connection> {
        std::mem::take(&mut lock(&self.unanswered))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> MutexGuard<'_, Table<S>> {
        lock(&self.table)
    }
}

/// Nothing here panics while it holds a lock, so what it protects is whole in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Table<S> {
    fn remove(&mut self, connection: Connection) -> Option<Opening<S>> {
        let opening = self.connections.remove(&connection)?;
        let client = client_of(connection);
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
        Some(opening)
    }
}

/// One host may use all addresses of its IPv6 network.
fn client_of(connection: Connection) -> IpAddr {
    match connection.client.ip() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn connection(client: &str) -> Connection {
        Connection {
            client: client.parse().unwrap(),
            server: "198.51.100.1:80".parse().unwrap(),
        }
    }

    fn openings(all: usize, per_client: usize) -> Openings<&'static str> {
        Openings::new(OpeningLimits { all, per_client })
    }

    fn released(server: &'static str) -> Released<&'static str> {
        Released {
            server: Some(server),
            handshake: Handshake::EndToEnd,
            mark: 5,
            since: Instant::now(),
            connect_timeout: None,
            seat: None,
            start: None,
        }
    }

    #[test]
    fn a_connection_is_held_released_and_taken_once() {
        let openings = openings(9, 9);
        let one = connection("192.0.2.1:1000");
        assert_eq!(openings.arrive(one, 7), Arrival::New);
        assert_eq!(openings.arrive(one, 7), Arrival::Held);
        openings.release(one, released("leg"), Instant::now());
        assert_eq!(openings.arrive(one, 7), Arrival::Released);
        let taken = openings.take(one).unwrap();
        assert_eq!((taken.server, taken.mark), (Some("leg"), 5));
        assert!(openings.take(one).is_none());
        assert_eq!(
            (openings.count(), openings.arrive(one, 7)),
            (0, Arrival::New)
        );
    }

    #[test]
    fn one_client_does_not_keep_others_out() {
        let openings = openings(4, 2);
        for port in 1000..1002 {
            let one = connection(&format!("192.0.2.1:{port}"));
            assert_eq!(openings.arrive(one, 7), Arrival::New);
        }
        let third = connection("192.0.2.1:1002");
        assert_eq!(openings.arrive(third, 7), Arrival::Full);
        for host in 2..4 {
            let other = connection(&format!("192.0.2.{host}:1000"));
            assert_eq!(openings.arrive(other, 7), Arrival::New);
        }
        assert_eq!(
            openings.arrive(connection("192.0.2.9:1000"), 7),
            Arrival::Full
        );
        openings.forget(connection("192.0.2.1:1000"));
        assert_eq!(openings.arrive(third, 7), Arrival::New);
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let openings = openings(9, 1);
        let call = |client| openings.arrive(connection(client), 7);
        assert_eq!(call("[2001:db8::1]:1000"), Arrival::New);
        assert_eq!(call("[2001:db8::2]:1000"), Arrival::Full);
        assert_eq!(call("[2001:db8:0:1::2]:1000"), Arrival::New);
    }

    #[test]
    fn what_is_never_accepted_expires_and_what_is_held_does_not() {
        let openings = openings(9, 9);
        let start = Instant::now();
        let (one, two) = (connection("192.0.2.1:1000"), connection("192.0.2.1:1001"));
        openings.arrive(one, 7);
        openings.release(one, released("leg"), start);
        openings.arrive(two, 7);
        assert_eq!(openings.expire(start), 0);
        assert_eq!(openings.expire(start + Duration::from_secs(1)), 1);
        assert!(openings.take(one).is_none());
        assert_eq!(openings.arrive(two, 7), Arrival::Held);
    }

    #[test]
    fn a_port_that_is_used_again_is_a_new_connection() {
        let openings = openings(9, 9);
        let one = connection("192.0.2.1:1000");
        assert_eq!(openings.arrive(one, 1), Arrival::New);
        assert_eq!(openings.arrive(one, 2), Arrival::HeldOther);
        assert_eq!(openings.arrive(one, 2), Arrival::Held);
        openings.release(one, released("old leg"), Instant::now());
        assert_eq!(openings.arrive(one, 3), Arrival::New);
        // The old leg is not handed on.
        assert!(openings.take(one).is_none());
        assert_eq!(openings.arrive(one, 3), Arrival::Held);
    }
}
