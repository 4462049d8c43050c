//! How much the relay takes on: sessions in all and per client, memory, descriptors.
//!
//! Shared by the threads of the relay, which accept, and the gate, which lets connections pass
//! untouched for which there is no room. Sessions that exist are kept.

mod budget;
mod places;
mod set_aside;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use midspan_units::{ByteSize, TimeSpan};
use serde::{Deserialize, Serialize};

pub(super) use budget::Budget;
use places::Client;
pub(super) use places::Places;
pub use places::Seat;
pub use set_aside::SetAside;

/// At most so often is one reason logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayLimits {
    /// Sessions of all listeners.
    pub sessions: SessionLimits,
    /// Memory of sockets, pipes and sessions; `None` for any.
    pub memory: Option<ByteSize>,
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
            Self::Client => "a client has as many as `sessions_per_client` allows",
            Self::Memory => "the budget `limits.memory` is used up",
            Self::Descriptors => "no descriptor is left (raise the limit of open files?)",
        }
    }
}

/// The limits, and what is used of them.
#[derive(Debug)]
pub struct Limits {
    all: Arc<Places>,
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
    pub(super) fn new(limits: &RelayLimits) -> Self {
        Self {
            all: Arc::new(Places::new(limits.sessions, None)),
            listeners: Mutex::default(),
            budget: Budget::new(limits.memory),
            start: Instant::now(),
            short_until: AtomicU64::new(0),
            said: Mutex::default(),
        }
    }

    /// Others from now on; sessions that exist go on.
    pub(super) fn change(&self, limits: &RelayLimits) {
        self.all.change(limits.sessions);
        self.budget.change(limits.memory);
    }

    /// Sets those of a listener, which is new or has changed.
    pub(super) fn set_listener(&self, name: &str, limits: SessionLimits) -> Arc<Places> {
        let mut listeners = lock(&self.listeners);
        // Listeners that have gone, and their sessions.
        listeners.retain(|_, places| Arc::strong_count(places) > 1);
        let places = listeners
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Places::new(limits, Some(Arc::clone(&self.all)))));
        places.change(limits);
        Arc::clone(places)
    }

    /// A place for a connection of this client to a listener, before it is taken.
    ///
    /// # Errors
    /// There is no room; it has been logged, but not counted.
    pub(crate) fn take(&self, listener: &str, client: IpAddr) -> Result<Option<Seat>, Shortage> {
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
    pub(crate) fn say(&self, shortage: Shortage) {
        let now = Instant::now();
        let said = &mut lock(&self.said)[shortage as usize];
        if said.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
            *said = Some(now);
            let reason = shortage.text();
            tracing::warn!("new sessions are refused, or pass untouched: {reason}");
        }
    }
}

/// Nothing here panics while it holds a lock, so what it protects is whole in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
