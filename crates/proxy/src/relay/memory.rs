//! What sessions take of the memory budget, and who stops reading.
//!
//! A session is measured when it has moved much, and some of those of which anything was heard
//! are measured in turn: what happens without the relay being told only makes less of it.

use midspan_policy::Leg;
use midspan_units::{Time, TimeSpan};

use super::table::Key;
use super::worker::Worker;

/// A session that has moved this much is measured, and one that has moved this much while much
/// of the budget is used.
const MOVED: [u32; 2] = [256 << 10, 16 << 10];
/// Between two rounds of measuring others; and while much of the budget is used.
const INTERVAL: [TimeSpan; 2] = [
    TimeSpan::from_milliseconds(200),
    TimeSpan::from_milliseconds(20),
];
/// Places of the table looked at in a round, and sessions measured: about a millisecond.
const PLACES_AT_ONCE: usize = 4096;
const SESSIONS_AT_ONCE: usize = 512;

/// The next round of measuring.
#[derive(Debug, Default)]
pub struct Measuring {
    next: Option<Time>,
    place: usize,
    /// KiB of all sessions of the thread.
    measured: u64,
    /// Bytes in pipes that count as used.
    in_pipes: u64,
}

impl Measuring {
    /// When the next round is due.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }
}

impl Worker {
    /// Measures a session if it has moved much; has the rest of them measured in a while.
    pub(super) fn note_memory(&mut self, key: Key) {
        let watched = usize::from(self.limits.budget.is_watched());
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.upkeep.unmeasured >= MOVED[watched] {
            self.measure(key);
        } else if session.upkeep.unmeasured > 0 && self.measuring.next.is_none() {
            self.measuring.next = Some(self.now + INTERVAL[watched]);
        }
    }

    /// Measures a session, and decides which of its directions read.
    fn measure(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let memory = session.memory();
        let sum = memory
            .iter()
            .map(|leg| leg.receive.bytes() + leg.send.bytes());
        let kibibytes = u32::try_from(sum.sum::<u64>().div_ceil(1024)).unwrap_or(u32::MAX);
        let old = std::mem::replace(&mut session.upkeep.measured, kibibytes);
        session.upkeep.unmeasured = 0;
        let (old, new) = (u64::from(old), u64::from(kibibytes));
        self.measuring.measured = self.measuring.measured + new - old;
        let budget = &self.limits.budget;
        budget.change_use(old * 1024, new * 1024);
        let share = budget.share();
        let clamp = budget.window_clamp();
        if clamp.is_some() != session.upkeep.is_clamped {
            session.clamp_windows(clamp);
        }
        let mut goes_on = false;
        for (leg, memory) in [Leg::Client, Leg::Server].into_iter().zip(memory) {
            let holds = share.is_some_and(|share| memory.send.bytes() > share);
            if session.hold_back(leg, holds) {
                goes_on |= !holds;
                self.counters.held_back.add(u64::from(holds));
            }
        }
        if session.is_held_back() {
            // What it waits for may come without an event.
            session.upkeep.unmeasured = 1;
            let next = self.now + INTERVAL[1];
            let earlier = self.measuring.next.is_none_or(|at| at > next);
            self.measuring.next = if earlier {
                Some(next)
            } else {
                self.measuring.next
            };
        }
        if goes_on && !session.queued {
            session.queued = true;
            self.turns.push_back(key);
        }
    }

    /// Measures some of the sessions of which something was heard.
    pub(super) fn measure_some(&mut self) {
        if self.measuring.next.is_none_or(|next| next > self.now) {
            return;
        }
        self.measuring.next = None;
        let places = self.sessions.places();
        let most = places.min(PLACES_AT_ONCE);
        let (mut looked, mut measured) = (0, 0);
        while looked < most && measured < SESSIONS_AT_ONCE {
            if self.measuring.place >= places {
                self.measuring.place = 0;
            }
            let place = self.measuring.place;
            if let Some(key) = self.sessions.key_at(place)
                && let Some(session) = self.sessions.at_place(place)
                && session.upkeep.unmeasured > 0
            {
                self.measure(key);
                measured += 1;
            }
            self.measuring.place += 1;
            looked += 1;
        }
        // After a whole turn nothing is left, until something is heard again.
        if looked < places && self.measuring.next.is_none() {
            let watched = usize::from(self.limits.budget.is_watched());
            self.measuring.next = Some(self.now + INTERVAL[watched]);
        }
    }

    /// A session goes.
    pub(super) fn forget_memory(&mut self, measured: u32) {
        let measured = u64::from(measured);
        self.measuring.measured -= measured.min(self.measuring.measured);
        self.limits.budget.change_use(measured * 1024, 0);
        self.limits.budget.end_session();
    }

    /// Counts what is in pipes.
    pub(super) fn note_pipes(&mut self, in_use: usize) {
        let bytes = (in_use * self.shared.pipes.size()) as u64;
        let old = std::mem::replace(&mut self.measuring.in_pipes, bytes);
        if old != bytes {
            self.limits.budget.change_use(old, bytes);
        }
    }

    /// The thread ends, and with it all that its sessions have.
    pub(super) fn forget_all_memory(&mut self) {
        self.limits
            .budget
            .change_use(self.measuring.measured * 1024 + self.measuring.in_pipes, 0);
        for _ in 0..self.sessions.iter().count() {
            self.limits.budget.end_session();
        }
    }
}
