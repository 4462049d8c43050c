//! How much the relay takes on: sessions in all and per client, memory, descriptors.
//!
//! Shared by the threads of the relay, which accept, and the gate, which lets connections pass
//! untouched for which there is no room. Sessions that exist are kept.

mod budget;
mod places;
mod set_aside;
mod spare;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use midspan_policy::client_share::{self, is_crowded, share_of_client};
use midspan_policy::memory_share::sessions_carried;
use midspan_units::{ByteSize, TimeSpan};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

pub(super) use budget::Budget;
pub(super) use places::Client;
pub(super) use places::Places;
pub use places::Seat;
pub use set_aside::SetAside;
pub(super) use spare::Spare;

/// At most so often is one reason logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Sockets of one session.
const DESCRIPTORS_OF_SESSION: u64 = 2;
/// How long after a shortage of descriptors the gate takes no connection.
const SHORTAGE_TIME: Duration = Duration::from_millis(200);

/// How many sessions there may be; `None` for any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// In all.
    pub sessions: Option<u32>,
    /// Of one client: an IPv4 address or an IPv6 /64.
    pub sessions_per_client: Option<u32>,
}

/// What holds for all listeners together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayLimits {
    /// Sessions of all listeners.
    pub sessions: SessionLimits,
    /// Memory of sockets, pipes and sessions; `None` for any.
    pub memory: Option<ByteSize>,
    /// What queues may hold beyond the least of each session; `None` for any number.
    pub queues: Option<ByteSize>,
    /// A session that has moved nothing for so long may make way for a new one.
    pub idle: TimeSpan,
}

impl Default for RelayLimits {
    fn default() -> Self {
        Self {
            sessions: SessionLimits::default(),
            memory: None,
            queues: None,
            idle: client_share::IDLE,
        }
    }
}

/// What holds for one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerLimits {
    /// Its sessions.
    pub sessions: SessionLimits,
    /// A session that moves nothing for this long is reset; `None`: never.
    pub idle_timeout: Option<TimeSpan>,
    /// The same once one direction has ended.
    pub half_closed_timeout: Option<TimeSpan>,
}

/// Why there is no room for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// As many sessions as there may be.
    Sessions,
    /// As many sessions of this client as there may be.
    Client,
    /// The memory budget.
    Memory,
    /// The process or the machine has no more descriptors, or the kernel no memory.
    Descriptors,
}

impl Shortage {
    const COUNT: usize = 4;

    const fn text(self) -> &'static str {
        match self {
            Self::Sessions => "there are as many as `sessions` allows",
            Self::Client => {
                "a client has as many as `sessions_per_client` allows, by default a quarter of \
                 what memory and descriptors carry"
            }
            Self::Memory => "the budget `limits.memory` is used up",
            Self::Descriptors => "no descriptor is left (raise the limit of open files?)",
        }
    }
}

/// The limits, and what is used of them.
#[derive(Debug)]
pub struct Limits {
    all: Arc<Places>,
    /// Those of listeners that clients call by address: each client has its share of them.
    shared: Arc<Places>,
    /// Most descriptors for sockets of sessions; `u64::MAX` for any number.
    descriptors: u64,
    /// Descriptors besides the two of each session.
    more_descriptors: AtomicU64,
    /// Sessions make way that have been idle for so long, in nanoseconds.
    idle: AtomicU64,
    /// How often sessions of other threads were asked to make way.
    asked: AtomicU64,
    listeners: Mutex<BTreeMap<String, Arc<Places>>>,
    /// What is used of the memory.
    pub(super) budget: Budget,
    start: Instant,
    /// Milliseconds after the start.
    short_until: AtomicU64,
    said: Mutex<[Option<Instant>; Shortage::COUNT]>,
}

impl Limits {
    /// Nothing is used yet.
    ///
    /// `other_descriptors` are for something else than sockets of sessions.
    pub(super) fn new(limits: &RelayLimits, other_descriptors: u64) -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        // What is for something else is taken at need: it leaves a half.
        let descriptors = most.saturating_sub(other_descriptors).max(most / 2);
        Self::with_descriptors(limits, descriptors)
    }

    /// With so many descriptors for sockets of sessions.
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
            start: Instant::now(),
            short_until: AtomicU64::new(0),
            said: Mutex::default(),
        };
        new.change(limits);
        new
    }

    /// Others from now on; sessions that exist go on.
    pub(super) fn change(&self, limits: &RelayLimits) {
        self.all.change(limits.sessions);
        self.budget.change(limits.memory, limits.queues);
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

    /// What is crowded, as seen by a listener: its own places, or those that it shares; `None` while
    /// there is room.
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

    /// A session may make way that has been idle for so long.
    pub(super) fn idle(&self) -> TimeSpan {
        TimeSpan::from_nanoseconds(self.idle.load(Ordering::Relaxed))
    }

    /// Sessions of other threads are asked to make way.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How often they were.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Those of listeners that clients call by address.
    pub(super) const fn shared(&self) -> &Arc<Places> {
        &self.shared
    }

    fn has_few_descriptors(&self) -> bool {
        let (sessions, _) = self.all.taken();
        let more = self.more_descriptors.load(Ordering::Relaxed);
        let in_use = more.saturating_add(u64::from(sessions) * DESCRIPTORS_OF_SESSION);
        is_crowded(in_use, self.descriptors)
    }

    /// Sets those of a listener, which is new or has changed.
    /// `is_shared`: its clients call it by address, and what it cannot take is lost.
    pub(super) fn set_listener(
        &self,
        name: &str,
        limits: SessionLimits,
        is_shared: bool,
    ) -> Arc<Places> {
        let mut listeners = lock(&self.listeners);
        // Listeners that have gone, and their sessions.
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

    /// A place for a connection of this client to a listener, before it is taken.
    ///
    /// # Errors
    /// There is no room; it has been logged, but not counted.
    pub fn take(&self, listener: &str, client: IpAddr) -> Result<Option<Seat>, Shortage> {
        let places = lock(&self.listeners).get(listener).map(Arc::clone);
        if self.is_short_of_descriptors() {
            self.say(Shortage::Descriptors);
            return Err(Shortage::Descriptors);
        }
        match places {
            // The listener is just coming or going.
            None => Ok(None),
            Some(places) => self.take_of(&places, Some(client)).map(Some),
        }
    }

    /// The same, of a listener that is known, and for nobody where the client is not known yet.
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
        self.say(shortage);
        Err(shortage)
    }

    /// Descriptors or kernel memory were not to be had.
    pub(super) fn note_descriptors(&self) {
        let until = (self.start.elapsed() + SHORTAGE_TIME).as_millis();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.short_until.store(until, Ordering::Relaxed);
        self.say(Shortage::Descriptors);
    }

    fn is_short_of_descriptors(&self) -> bool {
        let until = self.short_until.load(Ordering::Relaxed);
        until != 0 && self.start.elapsed().as_millis() < u128::from(until)
    }

    /// Logs that a connection was refused for want of this.
    pub fn say(&self, shortage: Shortage) {
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

/// Nothing here panics while it holds a lock, so what it protects is whole in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
