//! What sessions take of the memory budget, and what their buffers may hold.
//!
//! A session is measured when it begins (in a burst, one of them), when it has moved much, and some
//! of those of which anything was heard are measured in turn. While the budget is short, sweeps go
//! over all of them.
//! Without a budget, only what is in use is known, and nothing is set.

use midspan_policy::Leg;
use midspan_policy::memory_share::{Bounding, OPENING};
use midspan_units::{Time, TimeSpan};

use super::limits::Budget;
use super::session::Session;
use super::table::Key;
use super::worker::Worker;

/// A session that has moved this much is measured, and one that has moved this much while much
/// of the budget is reserved.
const MOVED: [u32; 2] = [256 << 10, 16 << 10];
/// Between two rounds of measuring others; and while the budget is short.
const INTERVAL: [TimeSpan; 2] = [
    TimeSpan::from_milliseconds(200),
    TimeSpan::from_milliseconds(20),
];
/// For how long a session that has just begun stands for others.
const FRESH: TimeSpan = TimeSpan::from_milliseconds(100);
/// Least time from one sweep to the next.
const SWEEP_INTERVAL: TimeSpan = TimeSpan::from_seconds(1);
/// Places of the table looked at in a round, and sessions measured: about a millisecond.
const PLACES_AT_ONCE: usize = 4096;
const SESSIONS_AT_ONCE: usize = 512;

/// The next round of measuring.
#[derive(Debug, Default)]
pub struct Measuring {
    next: Option<Time>,
    place: usize,
    /// KiB of all sessions of the thread, used and reserved.
    measured: u64,
    reserved: u64,
    /// When this turn through the table began, and whether it is a sweep.
    turn_began: Time,
    is_sweep: bool,
    /// Limit of still buffers when it was asked for last.
    still_limit: u64,
}

impl Measuring {
    /// When the next round is due.
    pub const fn next(&self) -> Option<Time> {
        self.next
    }
}

impl Worker {
    /// A session that has just been put in the table.
    pub(super) fn begin_memory(&mut self, key: Key) {
        let budget = &self.limits.budget;
        budget.begin_session();
        if let Some(session) = self.sessions.get_mut(key) {
            note(session, &mut self.measuring, budget, (0, OPENING));
        }
    }

    /// Both legs of a session are there, and it has read nothing. While memory is not short it is
    /// taken to be like another that has just begun on its listener, until it is measured with
    /// those of which anything was heard: many sessions end before.
    pub(super) fn begin_bounding(&mut self, key: Key) {
        let budget = &self.limits.budget;
        if budget.limit().is_none() {
            return;
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let listener = usize::from(session.listener);
        let fresh = self.acceptors.get(listener).and_then(|it| it.fresh);
        if let Some((until, reserved)) = fresh
            && self.now < until
            && !budget.is_short()
        {
            note(session, &mut self.measuring, budget, (0, reserved));
            session.upkeep.is_still = true;
            return;
        }
        self.measure(key);
        let reserved = self.sessions.get_mut(key).map(|it| it.upkeep.reserved);
        if let (Some(reserved), Some(acceptor)) = (reserved, self.acceptors.get_mut(listener)) {
            acceptor.fresh = Some((self.now + FRESH, u64::from(reserved) * 1024));
        }
    }

    /// Measures a session if it has moved much; has the rest of them measured in a while.
    pub(super) fn note_memory(&mut self, key: Key) {
        let short = usize::from(self.limits.budget.is_short());
        let watched = usize::from(self.limits.budget.is_watched());
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let upkeep = &session.upkeep;
        // What was still has small buffers, and wants more at once.
        let wakes_up = short == 1 && upkeep.is_still && upkeep.unmeasured > 0;
        if wakes_up || upkeep.unmeasured >= MOVED[watched] {
            self.measure(key);
        } else if upkeep.unmeasured > 0 && self.measuring.next.is_none() {
            self.measuring.next = Some(self.now + INTERVAL[short]);
        }
    }

    /// Measures a session, and sets its buffers if they are to change.
    fn measure(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.upkeep.unmeasured = 0;
        let budget = &self.limits.budget;
        let mut memory = session.memory();
        let sums = |memory: &[_; 2]| {
            let [one, other]: &[midspan_policy::memory_share::DirectionMemory; 2] = memory;
            let reserved = one.reservation() + other.reservation();
            (one.held + other.held, reserved)
        };
        note(session, &mut self.measuring, budget, sums(&memory));
        let Some(acceptor) = self.acceptors.get_mut(usize::from(session.listener)) else {
            return;
        };
        let buffers = acceptor.buffers;
        // Each session is measured soon after it has begun, unless it has ended before.
        if let Some(server) = session.server_to_keep_alive() {
            let errors = acceptor.keep_server_alive(server);
            self.counters.option_errors.add(errors);
        }
        for leg in [Leg::Client, Leg::Server] {
            // What is set is counted before anything else is decided.
            let Some(share) = budget.share() else {
                return;
            };
            let bounding = share.bound(&memory[leg as usize]);
            if bounding == Bounding::Keep {
                continue;
            }
            session.bound(leg, bounding, &buffers);
            self.counters
                .directions_bounded
                .add(u64::from(bounding != Bounding::Free));
            memory = session.memory();
            note(session, &mut self.measuring, budget, sums(&memory));
        }
        session.upkeep.is_settled = true;
        session.upkeep.is_still = memory.iter().all(|direction| !direction.is_active);
    }

    /// Measures some of the sessions of which something was heard, or of all in a sweep.
    pub(super) fn measure_some(&mut self) {
        let budget = &self.limits.budget;
        if budget.has_become_short() {
            // Other threads may sleep, with sessions that are to be bounded.
            self.control.wake();
        }
        let is_short = budget.is_short();
        let still_limit = match budget.share() {
            Some(share) if is_short => share.still_limit(),
            _ => u64::MAX,
        };
        if is_short && self.measuring.still_limit != still_limit && self.sessions.places() > 0 {
            self.measuring.next = Some(self.now);
            // What is settled is so at another limit.
            self.unsettle();
        }
        self.measuring.still_limit = still_limit;
        let is_due = |next: Time| next <= self.now;
        if !self.measuring.next.is_some_and(is_due) {
            return;
        }
        self.measuring.next = None;
        self.limits.budget.move_level();
        let places = self.sessions.places();
        let most = places.min(PLACES_AT_ONCE);
        let (mut looked, mut measured) = (0, 0);
        while looked < most && measured < SESSIONS_AT_ONCE {
            if self.measuring.place >= places {
                self.begin_turn(is_short);
            }
            measured += usize::from(self.visit(self.measuring.place));
            self.measuring.place += 1;
            looked += 1;
        }
        if self.measuring.place >= places {
            self.begin_turn(is_short);
        }
        // After a whole turn nothing is left, until something is heard again.
        if (is_short && places > 0) || looked < places {
            self.measuring.next = Some(self.now + INTERVAL[usize::from(is_short)]);
        }
    }

    fn begin_turn(&mut self, is_short: bool) {
        let measuring = &mut self.measuring;
        measuring.place = 0;
        let is_due = self.now >= measuring.turn_began + SWEEP_INTERVAL;
        measuring.is_sweep = is_short && is_due;
        if measuring.is_sweep {
            measuring.turn_began = self.now;
        }
    }

    /// Looks at one place of the table; whether its session was measured.
    fn visit(&mut self, place: usize) -> bool {
        let is_sweep = self.measuring.is_sweep;
        let Some(key) = self.sessions.key_at(place) else {
            return false;
        };
        let Some(session) = self.sessions.at_place(place) else {
            return false;
        };
        if is_sweep && session.grow_still() {
            session.upkeep.is_settled = false;
        }
        let is_unsettled = self.measuring.still_limit != u64::MAX && !session.upkeep.is_settled;
        let is_wanted = is_unsettled || session.upkeep.unmeasured > 0;
        if is_wanted {
            self.measure(key);
        }
        is_wanted
    }

    fn unsettle(&mut self) {
        for place in 0..self.sessions.places() {
            if let Some(session) = self.sessions.at_place(place) {
                session.upkeep.is_settled = false;
            }
        }
    }

    /// A session goes.
    pub(super) fn forget_memory(&mut self, session: &mut Session) {
        let budget = &self.limits.budget;
        note(session, &mut self.measuring, budget, (0, 0));
        budget.end_session();
    }

    /// The thread ends, and with it all that its sessions have.
    pub(super) fn forget_all_memory(&mut self) {
        let budget = &self.limits.budget;
        budget.change_use(self.measuring.measured * 1024, 0);
        budget.change_reserved(self.measuring.reserved * 1024, 0);
        for _ in 0..self.sessions.iter().count() {
            budget.end_session();
        }
    }
}

/// Counts what a session uses and has reserved, in bytes, instead of what it had.
fn note(session: &mut Session, all: &mut Measuring, budget: &Budget, (used, reserved): (u64, u64)) {
    let kibibytes = |bytes: u64| u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    let upkeep = &mut session.upkeep;
    let used = replace(&mut upkeep.measured, kibibytes(used), &mut all.measured);
    budget.change_use(used.0 * 1024, used.1 * 1024);
    let reserved = replace(&mut upkeep.reserved, kibibytes(reserved), &mut all.reserved);
    budget.change_reserved(reserved.0 * 1024, reserved.1 * 1024);
}

/// Puts a new number in place of an old one, also in a sum; both.
fn replace(place: &mut u32, new: u32, sum: &mut u64) -> (u64, u64) {
    let old = u64::from(std::mem::replace(place, new));
    let new = u64::from(new);
    *sum = *sum + new - old;
    (old, new)
}
