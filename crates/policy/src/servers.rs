//! The servers of a forward listener that has several: which of them a new session gets, which addresses are
//! checked when, and when names are looked up.
//!
//! A server is an address, or a name with all its addresses. Each address has a health of its own:
//!
//! ```text
//!          a session cannot connect                3 checks fail in a row
//!   up ───────────────────────────────► suspect ───────────────────────────► down
//!   ▲ └──────────────────────────── 3 checks fail in a row ──────────────────▲ │
//!   └──── 2 checks succeed in a row (suspect without checks: after 10 s) ──────┘
//! ```
//!
//! A new session gets the server with the fewest sessions; among equals, each has its turn. Addresses that are
//! not up are left out, unless no other is left: first suspect ones are used, then those that are down, in
//! turn, because a check may be wrong. Sessions that have begun are not affected.
//!
//! The caller looks names up, connects for checks, and passes in the results and the time.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// Most servers of a listener.
pub const MOST_SERVERS: usize = 16;
/// Most addresses of a server; further addresses of a name are not used.
pub const MOST_ADDRESSES: usize = 16;
/// Time between two look-ups of a name, …
pub const LOOK_UP_INTERVAL: TimeSpan = TimeSpan::from_seconds(30);
/// … and the same while the name has no address.
pub const FIRST_LOOK_UP_INTERVAL: TimeSpan = TimeSpan::from_seconds(5);
/// Checks in a row that have to succeed until an address is up.
const UP_AFTER: u32 = 2;
/// Checks in a row that have to fail until an address is down.
const DOWN_AFTER: u32 = 3;
/// How long an address is suspect if it is not checked.
const SUSPICION: TimeSpan = TimeSpan::from_seconds(10);
/// The answer to a check has to arrive within the time between two checks, within these limits: a far server
/// needs a second, and a dead one must not stay unnoticed for minutes.
const CHECK_LIMITS: [TimeSpan; 2] = [TimeSpan::from_seconds(1), TimeSpan::from_seconds(10)];

/// A server, as the operator has named it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Server {
    /// By its address and port.
    Address(SocketAddr),
    /// By a name that is looked up, and its port.
    Name(String, u16),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The servers of a listener, as the operator has configured them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// At most [`MOST_SERVERS`].
    pub servers: Vec<Server>,
    /// Time between two checks of an address; `None` for no checks.
    pub health_check: Option<TimeSpan>,
}

/// Whether new sessions get an address, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// They do.
    Up,
    /// The last session could not connect.
    Suspect,
    /// Several checks have failed.
    Down,
}

impl Health {
    /// All of them, the best first.
    pub const ALL: [Self; 3] = [Self::Up, Self::Suspect, Self::Down];

    /// Its name in metrics, answers and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Down => "down",
        }
    }
}

/// The number of a server of a [`Servers`], never used again there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(u64);

/// An address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAddress {
    /// The server.
    pub server: ServerId,
    /// The address.
    pub address: SocketAddr,
}

/// A server at one moment, for observers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReading {
    /// The server.
    pub server: Server,
    /// The best health of its addresses; `None` if it has no address.
    pub health: Option<Health>,
    /// Its sessions, those included that are being connected to it.
    pub sessions: u64,
    /// Checks of its addresses that have failed.
    pub failed_checks: u64,
}

/// The servers of a listener, and what is known of them.
#[derive(Debug, Default)]
pub struct Servers {
    health_check: Option<TimeSpan>,
    members: Vec<Member>,
    /// The last number that a server got.
    last_id: u64,
    /// Number of sessions that have begun: the larger the turn of a server, the later it was used.
    turn: u64,
}

#[derive(Debug)]
struct Member {
    id: ServerId,
    server: Server,
    addresses: Vec<Address>,
    /// When its name is looked up next.
    look_up_at: Option<Time>,
    sessions: u64,
    failed_checks: u64,
    turn: u64,
}

#[derive(Debug)]
struct Address {
    address: SocketAddr,
    health: Health,
    /// Until when it is suspect, if it is not checked.
    suspect_until: Option<Time>,
    /// When it is checked next; `None` while a check waits for its answer.
    check_at: Option<Time>,
    /// The result of the last checks, and how many in a row had it.
    last: (bool, u32),
    turn: u64,
}

impl Servers {
    /// Changes the settings. Servers that stay keep what is known of them.
    pub fn set(&mut self, now: Time, settings: &ServerSettings) {
        if self.health_check != settings.health_check {
            self.health_check = settings.health_check;
            let check_at = settings.health_check.map(|_| now);
            for address in self.members.iter_mut().flat_map(|of| &mut of.addresses) {
                *address = Address::new(address.address, check_at);
            }
        }
        let mut known = std::mem::take(&mut self.members);
        for server in settings.servers.iter().take(MOST_SERVERS) {
            let place = known.iter().position(|member| member.server == *server);
            let member = match place {
                Some(place) => known.swap_remove(place),
                None => self.new_member(now, server),
            };
            self.members.push(member);
        }
    }

    fn new_member(&mut self, now: Time, server: &Server) -> Member {
        self.last_id += 1;
        let check_at = self.health_check.map(|_| now);
        let (addresses, look_up_at) = match server {
            Server::Address(address) => (vec![Address::new(*address, check_at)], None),
            Server::Name(..) => (Vec::new(), Some(now)),
        };
        Member {
            id: ServerId(self.last_id),
            server: server.clone(),
            addresses,
            look_up_at,
            sessions: 0,
            failed_checks: 0,
            turn: 0,
        }
    }

    /// The address for a new session; or, if it has `failed` at another address, the one for its second try,
    /// for which another server is preferred. Only addresses that it `may` use are chosen.
    pub fn choose(
        &self,
        now: Time,
        failed: Option<SocketAddr>,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Option<ServerAddress> {
        let of_member = |member: &Member| {
            let usable = member
                .addresses
                .iter()
                .filter(|of| Some(of.address) != failed && may(of.address));
            let best = usable.min_by_key(|of| (of.health(now), of.turn))?;
            let health = best.health(now);
            let has_failed = (member.addresses.iter()).any(|of| Some(of.address) == failed);
            // Those that are down take turns, whatever sessions they still have.
            let load = match health {
                Health::Up | Health::Suspect => member.sessions,
                Health::Down => 0,
            };
            let chosen = ServerAddress {
                server: member.id,
                address: best.address,
            };
            Some(((health, has_failed, load, member.turn), chosen))
        };
        let all = self.members.iter().filter_map(of_member);
        let best = all.min_by_key(|(order, _)| *order);
        best.map(|(_, chosen)| chosen)
    }

    /// A session is being connected to this address.
    pub fn begin(&mut self, at: ServerAddress) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(member) = self.member(at.server) {
            member.sessions += 1;
            member.turn = turn;
        }
        if let Some(address) = self.address(at) {
            address.turn = turn;
        }
    }

    /// A session that has [begun](Self::begin) at this server has ended, or tries another one.
    pub fn end(&mut self, server: ServerId) {
        if let Some(member) = self.member(server) {
            member.sessions = member.sessions.saturating_sub(1);
        }
    }

    /// A session could not connect to this address. Returns whether the address has become suspect.
    pub fn note_failed_session(&mut self, now: Time, at: ServerAddress) -> bool {
        let is_checked = self.health_check.is_some();
        let Some(address) = self.address(at) else {
            return false;
        };
        let before = address.health(now);
        if before == Health::Down {
            return false;
        }
        address.health = Health::Suspect;
        address.suspect_until = (!is_checked).then(|| now + SUSPICION);
        if before == Health::Suspect {
            return false;
        }
        address.last = (false, 0);
        address.check_at = address.check_at.map(|at| at.min(now));
        true
    }

    /// The checks that are due, at most this many. Each of them needs a [result](Self::note_check).
    pub fn take_checks(&mut self, now: Time, most: usize) -> Vec<ServerAddress> {
        let mut due = Vec::new();
        for member in &mut self.members {
            for address in &mut member.addresses {
                if due.len() < most && address.check_at.is_some_and(|at| at <= now) {
                    address.check_at = None;
                    due.push(ServerAddress {
                        server: member.id,
                        address: address.address,
                    });
                }
            }
        }
        due
    }

    /// How long the answer to a check may take.
    #[must_use]
    pub fn check_limit(&self) -> TimeSpan {
        let [least, most] = CHECK_LIMITS;
        self.health_check.map_or(least, |it| it.clamp(least, most))
    }

    /// The result of a check; `None` if this machine could not carry it out. Returns the health of the address
    /// if the result has changed it.
    pub fn note_check(
        &mut self,
        now: Time,
        at: ServerAddress,
        has_succeeded: Option<bool>,
    ) -> Option<Health> {
        let again = now + self.health_check?;
        let address = self.address(at)?;
        address.check_at = Some(again);
        let has_succeeded = has_succeeded?;
        let in_row = match address.last {
            (last, count) if last == has_succeeded => count.saturating_add(1),
            _ => 1,
        };
        address.last = (has_succeeded, in_row);
        let before = address.health;
        if has_succeeded && in_row >= UP_AFTER {
            address.health = Health::Up;
        } else if !has_succeeded && in_row >= DOWN_AFTER {
            address.health = Health::Down;
        }
        let after = address.health;
        if !has_succeeded && let Some(member) = self.member(at.server) {
            member.failed_checks += 1;
        }
        (after != before).then_some(after)
    }

    /// The names to look up now.
    pub fn take_look_ups(&mut self, now: Time) -> Vec<(ServerId, String)> {
        let mut due = Vec::new();
        for member in &mut self.members {
            if let Server::Name(name, _) = &member.server
                && member.look_up_at.is_some_and(|at| at <= now)
            {
                let interval = match member.addresses.is_empty() {
                    true => FIRST_LOOK_UP_INTERVAL,
                    false => LOOK_UP_INTERVAL,
                };
                member.look_up_at = Some(now + interval);
                due.push((member.id, name.clone()));
            }
        }
        due
    }

    /// The addresses of the name of a server. Without any, the server keeps those that it has.
    pub fn note_addresses(&mut self, now: Time, server: ServerId, found: &[IpAddr]) {
        let check_at = self.health_check.map(|_| now);
        let Some(member) = self.member(server) else {
            return;
        };
        let Server::Name(_, port) = member.server else {
            return;
        };
        if found.is_empty() {
            return;
        }
        let mut known = std::mem::take(&mut member.addresses);
        for ip in found {
            let address = SocketAddr::new(ip.to_canonical(), port);
            let is_same = |of: &Address| of.address == address;
            if member.addresses.len() < MOST_ADDRESSES && !member.addresses.iter().any(is_same) {
                let place = known.iter().position(is_same);
                let kept = place.map(|place| known.swap_remove(place));
                let kept = kept.unwrap_or_else(|| Address::new(address, check_at));
                member.addresses.push(kept);
            }
        }
        member.look_up_at = Some(now + LOOK_UP_INTERVAL);
    }

    /// The first server that has had no address yet.
    #[must_use]
    pub fn without_address(&self) -> Option<(ServerId, &Server)> {
        let mut members = self.members.iter();
        let member = members.find(|member| member.addresses.is_empty())?;
        Some((member.id, &member.server))
    }

    /// The server with this number, if it is still there.
    #[must_use]
    pub fn get(&self, server: ServerId) -> Option<&Server> {
        let member = self.members.iter().find(|member| member.id == server);
        member.map(|member| &member.server)
    }

    /// When the next name is to be looked up.
    #[must_use]
    pub fn next_look_up(&self) -> Option<Time> {
        self.members.iter().filter_map(|of| of.look_up_at).min()
    }

    /// When the next check is due.
    #[must_use]
    pub fn next_check(&self) -> Option<Time> {
        let addresses = self.members.iter().flat_map(|of| &of.addresses);
        addresses.filter_map(|of| of.check_at).min()
    }

    /// All servers, in the order of the configuration.
    #[must_use]
    pub fn readings(&self, now: Time) -> Vec<ServerReading> {
        let reading = |member: &Member| ServerReading {
            server: member.server.clone(),
            health: member.addresses.iter().map(|of| of.health(now)).min(),
            sessions: member.sessions,
            failed_checks: member.failed_checks,
        };
        self.members.iter().map(reading).collect()
    }

    fn member(&mut self, server: ServerId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == server)
    }

    fn address(&mut self, at: ServerAddress) -> Option<&mut Address> {
        let mut addresses = self.member(at.server)?.addresses.iter_mut();
        addresses.find(|of| of.address == at.address)
    }
}

impl Address {
    const fn new(address: SocketAddr, check_at: Option<Time>) -> Self {
        Self {
            address,
            health: Health::Up,
            suspect_until: None,
            check_at,
            last: (true, 0),
            turn: 0,
        }
    }

    /// The health, unless a suspicion is over.
    fn health(&self, now: Time) -> Health {
        match self.suspect_until {
            Some(until) if until <= now => Health::Up,
            _ => self.health,
        }
    }
}

#[cfg(test)]
mod tests;
