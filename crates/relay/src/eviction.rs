//! Evicts idle sessions when the relay is crowded, so that new connections find room.
//!
//! Before a thread accepts a connection, it evicts one of its idle sessions if the relay is crowded. If it
//! has none, it requests an eviction from the other threads. A thread begins to search its sessions for idle ones at
//! most every 100 ms; [`IdleSessions`] selects those to evict. If there are many sessions, a search takes several turns.
//! Connections of transparent listeners pass untouched if there is no room, so no session is evicted for them, and
//! theirs are not evicted.

use std::collections::VecDeque;
use std::sync::Arc;

use midspan_policy::client_share::{IdleSession, IdleSessions};
use midspan_units::{Time, TimeSpan};

use super::acceptors::Acceptors;
use super::control::Control;
use super::limits::{Client, Limits, Places};
use super::session::{End, Phase};
use super::sessions::Sessions;
use super::table::Key;

/// One of this many sessions is selected at a time, but at least and at most these numbers.
const CHOSEN_ONE_OF: usize = 64;
const MOST: (usize, usize) = (64, 1024);
/// Indices of the table that are looked at in one turn.
const PLACES_AT_ONCE: usize = 4096;
/// Least time between the beginnings of two searches.
const INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

/// A search for idle sessions.
struct Search {
    /// The places that the sessions have.
    places: Arc<Places>,
    /// The next index of the table.
    next: usize,
    /// Those that were found.
    idle: IdleSessions<Client, Key>,
}

/// Sessions of one thread that may be evicted, in this order.
pub struct Eviction {
    limits: Arc<Limits>,
    control: Arc<Control>,
    /// Each session with the time at which it last moved data.
    sessions: VecDeque<(Key, Time)>,
    /// The places that these sessions have.
    places: Option<Arc<Places>>,
    next_look: Time,
    search: Option<Search>,
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
            search: None,
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

    /// Begins to look for idle sessions; few are found at once.
    fn look_for_idle(&mut self, places: &Arc<Places>, sessions: &mut Sessions, now: Time) {
        if now < self.next_look || self.search.is_some() {
            return;
        }
        self.next_look = now + INTERVAL;
        let most = (sessions.table().places() / CHOSEN_ONE_OF).clamp(MOST.0, MOST.1);
        self.search = Some(Search {
            places: Arc::clone(places),
            next: 0,
            idle: IdleSessions::new(most),
        });
        self.go_on(sessions, now);
    }

    /// Whether it still looks for idle sessions.
    pub const fn is_looking(&self) -> bool {
        self.search.is_some()
    }

    /// Looks for idle sessions in the next part of the table. At its end, chooses.
    pub fn go_on(&mut self, sessions: &mut Sessions, now: Time) {
        let Some(mut search) = self.search.take() else {
            return;
        };
        let idle = self.limits.idle();
        let table = sessions.table();
        let end = table.places().min(search.next + PLACES_AT_ONCE);
        let mut found = Vec::new();
        for place in search.next..end {
            let Some(key) = table.key_at(place) else {
                continue;
            };
            let Some(session) = table.at_place(place) else {
                continue;
            };
            let since = session.upkeep.still_after(TimeSpan::ZERO);
            if session.phase == Phase::Relaying
                && since + idle < now
                && session.seat().is_of(&search.places)
                && let Some(client) = session.seat().client()
            {
                found.push(IdleSession { client, since, key });
            }
        }
        let counts = (search.places).of_these(found.iter().map(|session| session.client));
        for (count, session) in counts.into_iter().zip(found) {
            if count > 0 {
                search.idle.offer(count, session);
            }
        }
        search.next = end;
        if end < table.places() {
            self.search = Some(search);
            return;
        }
        let Search { places, idle, .. } = search;
        let others = places.most_of_one(|client| !idle.has(client));
        self.sessions = idle.choose(others).into();
        self.places = Some(places);
    }
}
