//! The limits of the relay: sessions in all and per client, the rates of client prefixes, memory, descriptors.
//!
//! The relay's threads, which accept connections, and the gate share these limits. If there is no
//! room, the gate lets a connection pass untouched. Existing sessions continue.

mod budget;
mod client_rates;
mod places;
mod set_aside;
mod spare;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use midspan_policy::client_rates::ClientRateLimits;
use midspan_policy::client_share::{self, is_crowded, share_of_client};
use midspan_policy::memory_share::sessions_carried;
use midspan_units::{ByteSize, Time, TimeSpan};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

pub(super) use budget::Budget;
pub(super) use client_rates::ClientRates;
pub(super) use places::Client;
pub(super) use places::Places;
pub use places::Seat;
pub(super) use set_aside::MemoryAside;
pub use set_aside::SetAside;
pub(super) use spare::Spare;

/// Least time between two log lines about the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Sockets of one session.
const DESCRIPTORS_OF_SESSION: u64 = 2;
/// How long the gate intercepts no connection after a shortage of descriptors.
const SHORTAGE_TIME: Duration = Duration::from_millis(200);

/// Limits of sessions; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Limit in all.
    pub sessions: Option<u32>,
    /// Limit of one client: an IPv4 address or an IPv6 /64.
    pub sessions_per_client: Option<u32>,
}

/// Limits of all listeners together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayLimits {
    /// Sessions of all listeners.
    pub sessions: SessionLimits,
    /// The rates of each client prefix, with all listeners together.
    pub client_rates: ClientRateLimits,
    /// Memory of sockets, pipes and sessions; `None` for no limit.
    pub memory: Option<ByteSize>,
    /// Memory of queues beyond the least of each session; `None` for no limit.
    pub queues: Option<ByteSize>,
    /// A session that has moved nothing for this long may be evicted for a new one.
    pub idle: TimeSpan,
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self {
            sessions: SessionLimits::default(),
            client_rates: ClientRateLimits::default(),
            memory: None,
            queues: None,
            idle: client_share::IDLE,
        }
    }
}

/// Limits of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerLimits {
    /// Limits of its sessions.
    pub sessions: SessionLimits,
    /// A session that moves nothing for this long is reset; `None`: never.
    pub idle_timeout: Option<TimeSpan>,
    /// The same after one direction has ended.
    pub half_closed_timeout: Option<TimeSpan>,
}

/// Why there is no room for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The limit of sessions is reached.
    Sessions,
    /// The limit of this client's sessions is reached.
    Client,
    /// The client's prefix opens connections faster than its limit.
    ClientRate,
    /// The memory budget.
    Memory,
    /// The process or the machine has no more descriptors, or the kernel no memory.
    Descriptors,
}

impl Shortage {
    const COUNT: usize = 5;

    const fn text(self) -> &'static str {
        match self {
            Self::Sessions => "there are as many as `sessions` allows",
            Self::Client => {
                "a client has as many as `sessions_per_client` allows, by default a quarter of \
                 what memory and descriptors carry"
            }
            Self::ClientRate => {
                "a client prefix opens connections faster than `limits.connection_rate_per_client`"
            }
            Self::Memory => "the budget `limits.memory` is used up",
            Self::Descriptors => "no descriptor is left (raise the limit of open files?)",
        }
    }
}

/// The limits, and how much of them is used.
#[derive(Debug)]
pub struct Limits {
    all: Arc<Places>,
    /// Places of the listeners to whose own address clients connect. Each client has a share of
    /// them.
    shared: Arc<Places>,
    /// Most descriptors for sockets of sessions; `u64::MAX` for no limit.
    descriptors: u64,
    /// Descriptors in addition to the two of each session.
    more_descriptors: AtomicU64,
    /// Sessions that have been idle for this long may be evicted, in nanoseconds.
    idle: AtomicU64,
    /// Number of requests to other threads to evict sessions.
    asked: AtomicU64,
    listeners: Mutex<BTreeMap<String, Arc<Places>>>,
    /// How much of the memory is used.
    pub(super) budget: Budget,
    /// The rates of client prefixes.
    pub(super) client_rates: ClientRates,
    start: Instant,
    /// Milliseconds after the start.
    short_until: AtomicU64,
    said: Mutex<[Option<Instant>; Shortage::COUNT]>,
}

impl Limits {
    /// Limits of which nothing is used yet.
    ///
    /// `other_descriptors` are not for sockets of sessions.
    pub(super) fn new(limits: &RelayLimits, other_descriptors: u64) -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // Descriptors for other purposes are only used when needed; sessions always get at least
        // half.
        let descriptors = most.saturating_sub(other_descriptors).max(most / 2);
        Self::with_descriptors(limits, descriptors)
    }

    /// Limits with this many descriptors for sockets of sessions.
    pub(super) fn with_descriptors(limits: &RelayLimits, descriptors: u64) -> Self {
        let all = Arc::new(Places::new(limits.sessions, None));
        let nobody_said = SessionLimits::default();
        let new = Self {
            shared: Arc::new(Places::new(nobody_said, Some(Arc::clone(&all)))),
            descriptors,
            more_descriptors: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            all,
            listeners: Mutex::default(),
            budget: Budget::new(limits.memory, limits.queues),
            client_rates: ClientRates::new(&limits.client_rates),
            start: Instant::now(),
            short_until: AtomicU64::new(0),
            said: Mutex::default(),
        };
        new.change(limits);
        new
    }

    /// Changes the limits; existing sessions continue.
    pub(super) fn change(&self, limits: &RelayLimits) {
        self.all.change(limits.sessions);
        self.budget.change(limits.memory, limits.queues);
        self.client_rates.change(&limits.client_rates);
        self.idle
            .store(limits.idle.nanoseconds(), Ordering::Relaxed);
        let SessionLimits {
            sessions,
            sessions_per_client,
        } = limits.sessions;
        let carried = [
            self.descriptors / DESCRIPTORS_OF_SESSION,
            limits
                .memory
                .map_or(u64::MAX, |memory| sessions_carried(memory.bytes())),
            sessions.map_or(u64::MAX, u64::from),
        ];
        let carried = carried.into_iter().min().unwrap_or(u64::MAX);
        let share = u32::try_from(share_of_client(carried)).unwrap_or(u32::MAX);
        self.shared
            .set_share(sessions_per_client.is_none().then_some(share));
    }

    /// The places that are full for a listener: its own, or those that it shares; `None` while there
    /// is room.
    pub(super) fn crowded(&self, places: &Arc<Places>) -> Option<Arc<Places>> {
        let is_full = |places: &Places| {
            let (taken, most) = places.taken();
            most.is_some_and(|most| is_crowded(taken.into(), most.into()))
        };
        if is_full(places) {
            return Some(Arc::clone(places));
        }
        let is_short = self.budget.is_full() || is_full(&self.all) || self.has_few_descriptors();
        is_short.then(|| Arc::clone(&self.shared))
    }

    /// How long a session must have been idle before it may be evicted.
    pub(super) fn idle(&self) -> TimeSpan {
        TimeSpan::from_nanoseconds(self.idle.load(Ordering::Relaxed))
    }

    /// Requests other threads to evict sessions.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of such requests.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Places of the listeners to whose own address clients connect.
    pub(super) const fn shared(&self) -> &Arc<Places> {
        &self.shared
    }

    fn has_few_descriptors(&self) -> bool {
        let (sessions, _) = self.all.taken();
        let more = self.more_descriptors.load(Ordering::Relaxed);
        let in_use = more.saturating_add(u64::from(sessions) * DESCRIPTORS_OF_SESSION);
        is_crowded(in_use, self.descriptors)
    }

    /// Sets the limits of a new or changed listener. `is_shared`: clients connect to its own
    /// address, and a connection that it cannot accept is lost.
    pub(super) fn set_listener(
        &self,
        name: &str,
        limits: SessionLimits,
        is_shared: bool,
    ) -> Arc<Places> {
        let mut listeners = lock(&self.listeners);
        // Removes listeners that no longer exist and have no sessions.
        listeners.retain(|_, places| Arc::strong_count(places) > 1);
        let places = listeners.entry(name.to_owned()).or_insert_with(|| {
            let wider = match is_shared {
                true => &self.shared,
                false => &self.all,
            };
            Arc::new(Places::new(limits, Some(Arc::clone(wider))))
        });
        places.change(limits);
        Arc::clone(places)
    }

    /// Whether the prefix of this client may open another connection now; from then on it counts.
    ///
    /// # Errors
    /// It opens them too fast; this has been logged, but not counted.
    pub(super) fn admit(&self, client: IpAddr, now: Time) -> Result<(), Shortage> {
        if self.client_rates.admits(client, now) {
            return Ok(());
        }
        self.log(Shortage::ClientRate);
        Err(Shortage::ClientRate)
    }

    /// Gets a place for a connection of this client to a listener, before it is intercepted.
    ///
    /// # Errors
    /// There is no room, or the client's prefix opens connections too fast; this has been logged, but not
    /// counted.
    pub fn take(
        &self,
        listener: &str,
        client: IpAddr,
        now: Time,
    ) -> Result<Option<Seat>, Shortage> {
        self.admit(client, now)?;
        let places = lock(&self.listeners).get(listener).map(Arc::clone);
        if self.is_short_of_descriptors() {
            self.log(Shortage::Descriptors);
            return Err(Shortage::Descriptors);
        }
        match places {
            // The listener is just being added or removed.
            None => Ok(None),
            Some(places) => self.take_of(&places, Some(client)).map(Some),
        }
    }

    /// Gets a place at a known listener, without a client if the client is not yet known.
    pub(super) fn take_of(
        &self,
        places: &Arc<Places>,
        client: Option<IpAddr>,
    ) -> Result<Seat, Shortage> {
        let shortage = if self.budget.is_full() {
            Shortage::Memory
        } else {
            match Places::take(places, client.map(Client::of)) {
                Ok(seat) => return Ok(seat),
                Err(shortage) => shortage,
            }
        };
        self.log(shortage);
        Err(shortage)
    }

    /// Records that descriptors or kernel memory were short.
    pub(super) fn note_descriptors(&self) {
        let until = (self.start.elapsed() + SHORTAGE_TIME).as_millis();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.short_until.store(until, Ordering::Relaxed);
        self.log(Shortage::Descriptors);
    }

    fn is_short_of_descriptors(&self) -> bool {
        let until = self.short_until.load(Ordering::Relaxed);
        until != 0 && self.start.elapsed().as_millis() < u128::from(until)
    }

    /// Logs that a connection was refused because of this shortage.
    pub fn log(&self, shortage: Shortage) {
        let now = Instant::now();
        let is_due = {
            let said = &mut lock(&self.said)[shortage as usize];
            let is_due = said.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
            if is_due {
                *said = Some(now);
            }
            is_due
        };
        if is_due {
            let reason = shortage.text();
            tracing::warn!("new sessions are refused, or pass untouched: {reason}");
        }
    }
}

/// No code panics while it holds this lock, so the protected data is always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
