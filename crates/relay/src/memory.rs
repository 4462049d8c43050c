//! Memory of sessions: how much of the budget they use, and limits of their buffers.
//!
//! With a budget, a session is measured when both its legs are connected; in a burst of new sessions, the
//! measurement of one of them counts for the others. Later a session is measured when it has moved much data,
//! and, in turn, when it had an event since its last measurement. While the budget is short, sweeps check all
//! sessions, also those without events. Without a budget, the used memory is only measured, and buffers are
//! not bounded.

use std::sync::Arc;

use midspan_policy::Leg;
use midspan_policy::memory_share::{Bounding, OPENING};
use midspan_units::{Time, TimeSpan};

use super::acceptors::Acceptors;
use super::limits::{Limits, SetAside};
use super::register::Register;
use super::rounds::Rounds;
use super::session::Session;
use super::statistics::Counters;
use super::table::Table;

/// A session is measured when it has moved this much: normally, and while much of the budget is
/// reserved.
const MOVED: [u32; 2] = [2 << 20, 16 << 10];
/// Interval between two rounds of measurements: normally, and while the budget is short.
const INTERVAL: [TimeSpan; 2] = [
    TimeSpan::from_milliseconds(200),
    TimeSpan::from_milliseconds(20),
];
/// For how long the measurement of a new session is used for other new sessions.
const FRESH: TimeSpan = TimeSpan::from_milliseconds(100);
/// Least time from one sweep to the next.
const SWEEP_INTERVAL: TimeSpan = TimeSpan::from_seconds(1);
/// Indices of the table that are checked, and sessions that are measured, in one round: about a
/// millisecond.
const PLACES_AT_ONCE: usize = 4096;
const SESSIONS_AT_ONCE: usize = 512;

/// How much of the budget the sessions of a thread use, and when they are measured next.
#[derive(Debug)]
pub struct Measuring {
    limits: Arc<Limits>,
    /// Has the account of the thread.
    register: Arc<Register>,
    counters: Arc<Counters>,
    rounds: Rounds,
    /// When the last sweep began, and whether the present pass is one.
    swept_at: Time,
    is_sweep: bool,
    /// The limit of still buffers at the last query.
    still_limit: u64,
    /// The number of this limit, which is never 0. Each round checks sessions of an earlier limit, so all sessions
    /// are checked long before the numbers begin again.
    limit_number: u8,
}

impl Measuring {
    /// A state without sessions.
    pub fn new(register: Arc<Register>, counters: Arc<Counters>) -> Self {
        Self {
            limits: Arc::clone(register.limits()),
            register,
            counters,
            rounds: Rounds::default(),
            swept_at: Time::ZERO,
            is_sweep: false,
            still_limit: 0,
            limit_number: 1,
        }
    }

    /// When the next round is due.
    pub const fn next(&self) -> Option<Time> {
        self.rounds.next()
    }

    /// Begins to account for a new session. A large receive window of its server leg counts as it was set aside,
    /// until the session is measured.
    pub fn begin(&self, session: &mut Session, window: Option<SetAside>) {
        self.register.begin_session();
        let offered = window.as_ref().map_or(0, SetAside::window);
        note(session, &self.register, (0, OPENING + offered));
        drop(window);
    }

    /// Both legs of a session are connected, and it has read nothing. While memory is not short,
    /// the session is charged like the last measured session of its listener, unless one of its windows was
    /// opened wide. It is measured later, when it has events; many sessions end before.
    pub fn begin_bounding(&mut self, session: &mut Session, acceptors: &mut Acceptors, now: Time) {
        let budget = &self.limits.budget;
        if budget.limit().is_none() {
            return;
        }
        let listener = usize::from(session.listener);
        let fresh = acceptors.get(listener).and_then(|it| it.fresh);
        let is_usual = u64::from(session.upkeep.reserved) * 1024 <= OPENING;
        if let Some((until, reserved)) = fresh
            && now < until
            && is_usual
            && !budget.is_short()
        {
            note(session, &self.register, (0, reserved));
            session.upkeep.is_still = true;
            return;
        }
        self.measure(session, acceptors);
        if is_usual && let Some(acceptor) = acceptors.get_mut(listener) {
            acceptor.fresh = Some((now + FRESH, u64::from(session.upkeep.reserved) * 1024));
        }
    }

    /// Measures a session if it has moved much; otherwise it is measured later.
    pub fn note_moved(&mut self, session: &mut Session, acceptors: &mut Acceptors, now: Time) {
        let short = usize::from(self.limits.budget.is_short());
        let watched = usize::from(self.limits.budget.is_watched());
        let upkeep = &session.upkeep;
        // A session that was still has small buffers, and needs larger ones at once.
        let wakes_up = short == 1 && upkeep.is_still && upkeep.unmeasured > 0;
        if wakes_up || upkeep.unmeasured >= MOVED[watched] {
            self.measure(session, acceptors);
        } else if upkeep.unmeasured > 0 {
            self.rounds.wish(now + INTERVAL[short]);
        }
    }

    /// Measures a session, and sets its buffers if their sizes change.
    fn measure(&mut self, session: &mut Session, acceptors: &mut Acceptors) {
        session.upkeep.unmeasured = 0;
        let budget = &self.limits.budget;
        let mut memory = session.memory();
        let sums = |memory: &[_; 2]| {
            let [one, other]: &[midspan_policy::memory_share::DirectionMemory; 2] = memory;
            let reserved = one.reservation() + other.reservation();
            (one.held + other.held, reserved)
        };
        note(session, &self.register, sums(&memory));
        let Some(acceptor) = acceptors.get_mut(usize::from(session.listener)) else {
            return;
        };
        let buffers = acceptor.buffers;
        // Each session is measured soon after it has begun, unless it has ended before.
        if let Some(server) = session.server_to_keep_alive() {
            let errors = acceptor.keep_server_alive(server);
            self.counters.option_errors.add(errors);
        }
        for leg in [Leg::Client, Leg::Server] {
            // New sizes are counted before the next decision.
            let Some(share) = budget.share() else {
                return;
            };
            let bounding = acceptor.policy.bound(&share, &memory[leg as usize]);
            if bounding == Bounding::Keep {
                continue;
            }
            session.bound(leg, bounding, &buffers);
            self.counters
                .directions_bounded
                .add(u64::from(bounding != Bounding::Free));
            memory = session.memory();
            note(session, &self.register, sums(&memory));
        }
        session.set_pieces(&memory);
        session.upkeep.checked_with = self.limit_number;
        session.upkeep.is_still = memory.iter().all(|direction| !direction.is_active);
    }

    /// Measures some of the sessions with recent events, or of all in a sweep. Returns whether to
    /// wake other threads, which may sleep although their sessions are to be bounded.
    pub fn measure_some(
        &mut self,
        sessions: &mut Table<Session>,
        acceptors: &mut Acceptors,
        now: Time,
    ) -> bool {
        let budget = &self.limits.budget;
        let wakes_others = budget.has_become_short();
        let is_short = budget.is_short();
        let still_limit = match budget.share() {
            Some(share) if is_short => share.still_limit(),
            _ => u64::MAX,
        };
        if is_short && self.still_limit != still_limit && sessions.places() > 0 {
            // With another limit, sessions have to be checked again.
            self.limit_number = self.limit_number.checked_add(1).unwrap_or(1);
            self.rounds.wish(now);
        }
        self.still_limit = still_limit;
        if !self.rounds.is_due(now) {
            return wakes_others;
        }
        self.limits.budget.move_level();
        let places = sessions.places();
        let may_begin_pass = self.rounds.is_pass_over();
        self.rounds.begin(places);
        if may_begin_pass {
            self.is_sweep = is_short && now >= self.swept_at + SWEEP_INTERVAL;
        }
        if may_begin_pass && self.is_sweep {
            self.swept_at = now;
            self.rounds.begin_pass(places);
        }
        let mut measured = 0;
        for _ in 0..PLACES_AT_ONCE {
            if measured >= SESSIONS_AT_ONCE {
                break;
            }
            let Some(place) = self.rounds.next_place(places) else {
                break;
            };
            if let Some(session) = sessions.at_place(place) {
                measured += usize::from(self.visit(session, acceptors));
            }
        }
        self.rounds.end(now, INTERVAL[usize::from(is_short)]);
        if is_short && places > 0 {
            // The level moves and sweeps are due, also without events.
            self.rounds.wake_at(now + INTERVAL[0]);
        }
        wakes_others
    }

    /// Checks a session; returns whether it was measured.
    fn visit(&mut self, session: &mut Session, acceptors: &mut Acceptors) -> bool {
        if self.is_sweep && session.upkeep.grow_still() {
            session.upkeep.checked_with = 0;
        }
        let is_settled = session.upkeep.checked_with == self.limit_number;
        let is_unsettled = self.still_limit != u64::MAX && !is_settled;
        let is_wanted = is_unsettled || session.upkeep.unmeasured > 0;
        if is_wanted {
            self.measure(session, acceptors);
        }
        is_wanted
    }

    /// Removes a session that ends from the account.
    pub fn forget(&self, session: &mut Session) {
        note(session, &self.register, (0, 0));
        self.register.end_session();
    }

    /// All sessions end: removes them from the account.
    pub fn forget_all(&self) {
        self.register.forget_memory();
    }
}

/// Replaces a session's used and reserved bytes.
fn note(session: &mut Session, register: &Register, (used, reserved): (u64, u64)) {
    let kibibytes = |bytes: u64| u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    let upkeep = &mut session.upkeep;
    let replace = |place: &mut u32, new: u32| [std::mem::replace(place, new), new];
    let used = replace(&mut upkeep.measured, kibibytes(used));
    let reserved = replace(&mut upkeep.reserved, kibibytes(reserved));
    register.change_memory(used, reserved);
}
