//! The servers of a forward listener that has several: which of them a new session gets, which addresses are
//! checked when, and when names are looked up.
//!
//! A server is an address, or a name with all its addresses. Each address has a health of its own:
//!
//! ```text
//!       a session cannot connect                3 checks fail in a row
//!   up ────────────────────────► suspect ──────────────────────────► down
//!   ▲ │ ◄── a check succeeds, or 10 s ──┘                             ▲ │
//!   │ └─────────────────── 3 checks fail in a row ────────────────────┘ │
//!   └───────────────────── 2 checks succeed in a row ───────────────────┘
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
/// How long the answer to a check may take: a far server needs a second, also if its SYN is lost once.
pub const CHECK_LIMIT: TimeSpan = TimeSpan::from_seconds(2);
/// Checks in a row that have to succeed until an address that is down is up.
const UP_AFTER: u32 = 2;
/// Checks in a row that have to fail until an address is down.
const DOWN_AFTER: u32 = 3;
/// How long an address is suspect after a failed session, if no check succeeds.
const SUSPICION: TimeSpan = TimeSpan::from_seconds(10);

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
    /// A session could not connect a short time ago.
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

/// The number of a server, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerId(pub u64);

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

/// What is due.
#[derive(Debug, Default)]
pub struct Due {
    /// Names to look up; [`Servers::note_addresses`] takes the results.
    pub look_ups: Vec<(ServerId, String)>,
    /// Addresses to check, those included whose last check still waits for its answer; [`Servers::note_check`] takes
    /// the results.
    pub checks: Vec<ServerAddress>,
    /// When something is due next.
    pub next: Option<Time>,
}

/// The servers of a listener, and what is known of them.
#[derive(Debug, Default)]
pub struct Servers {
    health_check: Option<TimeSpan>,
    /// When the addresses are checked next.
    check_at: Time,
    members: Vec<Member>,
    /// Number of sessions that have begun: the larger the turn of a server, the later it was used.
    turn: u64,
}

#[derive(Debug)]
struct Member {
    id: ServerId,
    server: Server,
    addresses: Vec<Address>,
    /// When its name is looked up next.
    look_up_at: Time,
    sessions: u64,
    failed_checks: u64,
    turn: u64,
}

#[derive(Debug)]
struct Address {
    address: SocketAddr,
    is_down: bool,
    suspect_until: Time,
    /// How many checks in a row had another result than `is_down` expects.
    contrary_checks: u32,
    turn: u64,
}

impl Servers {
    /// Changes the settings. Servers that stay keep what is known of them; new ones get the numbers after `last_id`.
    pub fn set(&mut self, now: Time, settings: &ServerSettings, last_id: &mut u64) {
        if self.health_check != settings.health_check {
            self.health_check = settings.health_check;
            self.check_at = now;
            for address in self.members.iter_mut().flat_map(|of| &mut of.addresses) {
                *address = Address::new(address.address);
            }
        }
        let mut known = std::mem::take(&mut self.members);
        for server in settings.servers.iter().take(MOST_SERVERS) {
            let place = known.iter().position(|member| member.server == *server);
            self.members.push(match place {
                Some(place) => known.swap_remove(place),
                None => {
                    *last_id += 1;
                    self.check_at = now;
                    Member::new(ServerId(*last_id), server, now)
                }
            });
        }
    }

    /// The address for a new session; or, if it has `failed` at another one, the address for its second try, for
    /// which another server is preferred. Only addresses that it `may` use are chosen.
    pub fn choose(
        &self,
        now: Time,
        failed: Option<ServerAddress>,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Option<ServerAddress> {
        let failed_address = failed.map(|failed| failed.address);
        let is_usable = |at: ServerAddress| Some(at.address) != failed_address && may(at.address);
        let usable = self.all().filter(|(at, ..)| is_usable(*at));
        let best = usable.min_by_key(|(_, member, address)| {
            let health = address.health(now);
            let has_failed = failed.is_some_and(|failed| failed.server == member.id);
            // Those that are down take turns, whatever sessions they still have.
            let is_down = health == Health::Down;
            let load = if is_down { 0 } else { member.sessions };
            (health, has_failed, load, member.turn, address.turn)
        });
        best.map(|(at, ..)| at)
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

    /// A session could not connect to this address.
    pub fn note_failed_session(&mut self, now: Time, at: ServerAddress) {
        if let Some(address) = self.address(at) {
            address.suspect_until = now + SUSPICION;
        }
    }

    /// What is due now. Names are looked up only if they can be.
    pub fn take_due(&mut self, now: Time, can_look_up: bool) -> Due {
        let mut due = Due::default();
        for member in self.members.iter_mut().filter(|_| can_look_up) {
            if let Server::Name(name, _) = &member.server {
                if member.look_up_at <= now {
                    member.look_up_at = match member.addresses.is_empty() {
                        true => now + FIRST_LOOK_UP_INTERVAL,
                        false => now + LOOK_UP_INTERVAL,
                    };
                    due.look_ups.push((member.id, name.clone()));
                }
                due.next = due.next.into_iter().chain([member.look_up_at]).min();
            }
        }
        let Some(interval) = self.health_check else {
            return due;
        };
        if self.check_at <= now {
            self.check_at = now + interval;
            due.checks = self.all().map(|(at, ..)| at).collect();
        }
        due.next = due.next.into_iter().chain([self.check_at]).min();
        due
    }

    /// The result of a check; `None` if this machine could not carry it out. Returns the server, and whether it is
    /// up at this address, if the result has changed that.
    pub fn note_check(
        &mut self,
        now: Time,
        at: ServerAddress,
        has_succeeded: Option<bool>,
    ) -> Option<(Server, bool)> {
        self.health_check?;
        let address = self.address(at)?;
        let has_succeeded = has_succeeded?;
        let (is_contrary, needed) = match address.is_down {
            true => (has_succeeded, UP_AFTER),
            false => (!has_succeeded, DOWN_AFTER),
        };
        address.contrary_checks = (address.contrary_checks + 1) * u32::from(is_contrary);
        let has_changed = address.contrary_checks >= needed;
        if has_changed {
            address.is_down = !has_succeeded;
            address.contrary_checks = 0;
        }
        if has_succeeded {
            address.suspect_until = now;
        }
        let member = self.member(at.server)?;
        member.failed_checks += u64::from(!has_succeeded);
        has_changed.then(|| (member.server.clone(), has_succeeded))
    }

    /// The addresses of the name of a server. Without any, the server keeps those that it has.
    pub fn note_addresses(&mut self, server: ServerId, found: &[IpAddr]) {
        let named = self.member(server).filter(|_| !found.is_empty());
        let Some(Member {
            server: Server::Name(_, port),
            addresses,
            ..
        }) = named
        else {
            return;
        };
        let mut known = std::mem::take(addresses);
        for ip in found {
            let address = SocketAddr::new(ip.to_canonical(), *port);
            let is_same = |of: &Address| of.address == address;
            if addresses.len() < MOST_ADDRESSES && !addresses.iter().any(is_same) {
                let place = known.iter().position(is_same);
                let kept = place.map(|place| known.swap_remove(place));
                addresses.push(kept.unwrap_or_else(|| Address::new(address)));
            }
        }
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

    fn all(&self) -> impl Iterator<Item = (ServerAddress, &Member, &Address)> {
        self.members.iter().flat_map(|member| {
            let server = member.id;
            (member.addresses.iter()).map(move |of| {
                let address = of.address;
                (ServerAddress { server, address }, member, of)
            })
        })
    }

    fn member(&mut self, server: ServerId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == server)
    }

    fn address(&mut self, at: ServerAddress) -> Option<&mut Address> {
        let mut addresses = self.member(at.server)?.addresses.iter_mut();
        addresses.find(|of| of.address == at.address)
    }
}

impl Member {
    fn new(id: ServerId, server: &Server, now: Time) -> Self {
        Self {
            id,
            server: server.clone(),
            addresses: match server {
                Server::Address(address) => vec![Address::new(*address)],
                Server::Name(..) => Vec::new(),
            },
            look_up_at: now,
            sessions: 0,
            failed_checks: 0,
            turn: 0,
        }
    }
}

impl Address {
    const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            is_down: false,
            suspect_until: Time::ZERO,
            contrary_checks: 0,
            turn: 0,
        }
    }

    fn health(&self, now: Time) -> Health {
        match self.is_down {
            true => Health::Down,
            false if now < self.suspect_until => Health::Suspect,
            false => Health::Up,
        }
    }
}

#[cfg(test)]
mod tests;
