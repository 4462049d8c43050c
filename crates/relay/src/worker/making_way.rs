//! Idle sessions make way for new ones once the relay is crowded.
//!
//! Each thread looks for its own from time to time and keeps a list. Who is on it is decided by
//! [`midspan_policy::client_share`].

use std::collections::VecDeque;
use std::sync::Arc;

use midspan_policy::client_share::{IdleSession, makes_way};
use midspan_units::{Time, TimeSpan};

use super::Worker;
use crate::limits::Places;
use crate::session::{End, Phase};
use crate::table::Key;

/// Most that are found at a time, and least time from one look to the next.
const MOST: usize = 64;
const INTERVAL: TimeSpan = TimeSpan::from_milliseconds(100);

/// Sessions that may make way, in this order.
#[derive(Debug, Default)]
pub struct Way {
    /// Each with when it moved anything last.
    sessions: VecDeque<(Key, Time)>,
    /// Of these places.
    places: Option<Arc<Places>>,
    next_look: Time,
    /// How often this thread was asked by another.
    asked: u64,
}

impl Worker {
    /// Before a connection is taken: has an idle session make way if the relay is crowded. The
    /// clients of transparent listeners lose nothing if they find no room, so nobody makes way for
    /// them, nor do they.
    pub(super) fn make_way(&mut self, index: usize) {
        let Some(acceptor) = self.acceptors.get(index) else {
            return;
        };
        if acceptor.places.group().is_none() {
            return;
        }
        let Some(crowded) = self.limits.crowded(&acceptor.places) else {
            return;
        };
        if !self.end_idle(&crowded) {
            // It may be another thread that has the idle ones.
            self.limits.ask();
            self.way.asked = self.way.asked.wrapping_add(1);
            self.control.wake();
        }
    }

    /// Another thread has no idle session.
    pub(super) fn make_way_for_others(&mut self) {
        let asked = self.limits.asked();
        if asked == self.way.asked {
            return;
        }
        self.way.asked = asked;
        let shared = Arc::clone(self.limits.shared());
        if self.limits.crowded(&shared).is_some() {
            self.end_idle(&shared);
        }
    }

    /// Ends the first of those that may make way; whether there was one.
    fn end_idle(&mut self, places: &Arc<Places>) -> bool {
        let is_other = |known: &Arc<Places>| !Arc::ptr_eq(known, places);
        if self.way.places.as_ref().is_none_or(is_other) {
            self.way.sessions.clear();
        }
        if self.way.sessions.is_empty() {
            self.look_for_idle(places);
        }
        while let Some((key, since)) = self.way.sessions.pop_front() {
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            // It may have moved something since it was found.
            if session.still_after(TimeSpan::ZERO) != since {
                continue;
            }
            session.note_made_way();
            self.end(key, End::Reset);
            return true;
        }
        false
    }

    fn look_for_idle(&mut self, places: &Arc<Places>) {
        if self.now < self.way.next_look {
            return;
        }
        self.way.next_look = self.now + INTERVAL;
        let idle = self.limits.idle();
        let mut found = Vec::new();
        for place in 0..self.sessions.places() {
            let Some(key) = self.sessions.key_at(place) else {
                continue;
            };
            let Some(session) = self.sessions.at_place(place) else {
                continue;
            };
            let since = session.still_after(TimeSpan::ZERO);
            if session.phase == Phase::Relaying
                && since + idle < self.now
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
        let since: std::collections::BTreeMap<Key, Time> =
            found.iter().map(|idle| (idle.key, idle.since)).collect();
        let chosen = makes_way(&places.of_clients(), found, MOST);
        let with_time = |key: Key| Some((key, *since.get(&key)?));
        self.way.sessions = chosen.into_iter().filter_map(with_time).collect();
        self.way.places = Some(Arc::clone(places));
    }
}
