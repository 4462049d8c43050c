//! Evicts idle sessions when the relay is crowded, so that new connections find room.
//!
//! Before a thread accepts a connection, it evicts one of its idle sessions if the relay is crowded. If it
//! has none, it requests an eviction from the other threads. A thread searches its sessions for idle ones at
//! most every 100 ms; [`makes_way`] selects those to evict, at most 64 at a time. Connections of transparent
//! listeners pass untouched if there is no room, so no session is evicted for them, and theirs are not
//! evicted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use midspan_policy::client_share::{IdleSession, makes_way};
use midspan_units::{Time, TimeSpan};

use super::acceptors::Acceptors;
use super::control::Control;
use super::limits::{Limits, Places};
use super::session::{End, Phase};
use super::sessions::Sessions;
use super::table::Key;

/// Most sessions that are selected at a time, and least time between two searches.
const MOST: usize = 64;
const INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

/// Sessions of one thread that may be evicted, in this order.
pub struct Eviction {
    limits: Arc<Limits>,
    control: Arc<Control>,
    /// Each session with the time at which it last moved data.
    sessions: VecDeque<(Key, Time)>,
    /// The places that these sessions have.
    places: Option<Arc<Places>>,
    next_look: Time,
    /// Number of requests of other threads that this thread has answered.
    asked: u64,
}

impl Eviction {
    /// An empty list.
    pub const fn new(limits: Arc<Limits>, control: Arc<Control>) -> Self {
        Self {
            limits,
            control,
            sessions: VecDeque::new(),
            places: None,
            next_look: Time::ZERO,
            asked: 0,
        }
    }

    /// Called before a connection is accepted: evicts an idle session if the relay is crowded.
    /// Clients of transparent listeners lose nothing if there is no room, so no session is evicted
    /// for them, and theirs are not evicted.
    pub fn make_way(
        &mut self,
        listener: usize,
        sessions: &mut Sessions,
        acceptors: &mut Acceptors,
        now: Time,
    ) {
        let Some(acceptor) = acceptors.get(listener) else {
            return;
        };
        if acceptor.places.group().is_none() {
            return;
        }
        let Some(crowded) = self.limits.crowded(&acceptor.places) else {
            return;
        };
        if !self.end_idle(&crowded, sessions, acceptors, now) {
            // Another thread may have idle sessions.
            self.limits.ask();
            self.asked = self.asked.wrapping_add(1);
            self.control.wake();
        }
    }

    /// Evicts a session because another thread has no idle session.
    pub fn make_way_for_others(
        &mut self,
        sessions: &mut Sessions,
        acceptors: &mut Acceptors,
        now: Time,
    ) {
        let asked = self.limits.asked();
        if asked == self.asked {
            return;
        }
        self.asked = asked;
        let shared = Arc::clone(self.limits.shared());
        if self.limits.crowded(&shared).is_some() {
            self.end_idle(&shared, sessions, acceptors, now);
        }
    }

    /// Evicts the first session of the list; returns whether there was one.
    fn end_idle(
        &mut self,
        places: &Arc<Places>,
        sessions: &mut Sessions,
        acceptors: &mut Acceptors,
        now: Time,
    ) -> bool {
        let is_other = |known: &Arc<Places>| !Arc::ptr_eq(known, places);
        if self.places.as_ref().is_none_or(is_other) {
            self.sessions.clear();
        }
        if self.sessions.is_empty() {
            self.look_for_idle(places, sessions, now);
        }
        while let Some((key, since)) = self.sessions.pop_front() {
            let Some(session) = sessions.table().get_mut(key) else {
                continue;
            };
            // The session may have moved data since it was found.
            if session.upkeep.still_after(TimeSpan::ZERO) != since {
                continue;
            }
            session.note_made_way();
            sessions.end(key, End::Reset, acceptors, now);
            return true;
        }
        false
    }

    fn look_for_idle(&mut self, places: &Arc<Places>, sessions: &mut Sessions, now: Time) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + INTERVAL;
        let idle = self.limits.idle();
        let table = sessions.table();
        let mut found = Vec::new();
        for place in 0..table.places() {
            let Some(key) = table.key_at(place) else {
                continue;
            };
            let Some(session) = table.at_place(place) else {
                continue;
            };
            let since = session.upkeep.still_after(TimeSpan::ZERO);
            if session.phase == Phase::Relaying
                && since + idle < now
                && let Some(seat) = session.seat()
                && seat.is_of(places)
                && let Some(client) = seat.client()
            {
                found.push(IdleSession { client, since, key });
            }
        }
        if found.is_empty() {
            return;
        }
        let since: BTreeMap<Key, Time> = found.iter().map(|idle| (idle.key, idle.since)).collect();
        let chosen = makes_way(&places.of_clients(), found, MOST);
        let with_time = |key: Key| Some((key, *since.get(&key)?));
        self.sessions = chosen.into_iter().filter_map(with_time).collect();
        self.places = Some(Arc::clone(places));
    }
}
