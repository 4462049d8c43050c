//! The time of a thread, and its next deadline with the reason for it.

use midspan_units::{Time, TimeSpan};
use rustix::event::Timespec;

use super::control::Clock;

/// Longest wait for an event: the kernel takes at most 24 days.
const LONGEST_WAIT: TimeSpan = TimeSpan::from_seconds(3600);

/// After this many turns in a row without an event and for the same reason, a line is logged.
const SPINNING: u64 = 1 << 16;

/// Why a thread wakes up without an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Sessions have more to move than fits into one turn.
    Unfinished,
    /// Events were lost in a panic, so all sources are called.
    LostEvents,
    /// An operator's command to reset sessions is not carried out completely.
    Kick,
    /// Some sessions are not yet handed over to another relay.
    Handing,
    /// Some sessions have not ended yet, although the relay ends.
    Stop,
    /// The search for idle sessions continues.
    Eviction,
    /// A session's time-out, pause or sample.
    Session,
    /// A negotiation's time-out, or the next address of a server.
    Negotiation,
    /// A listener accepts again, after a pause because descriptors or memory were short.
    Resume,
    /// A listener that is no longer wanted is closed.
    Retire,
    /// Sessions are read for the metrics.
    Sampling,
    /// A survey of the sessions continues, or its readings are forgotten.
    Survey,
    /// The memory of sessions is measured.
    Measuring,
    /// The rest of a fast transfer, below its low-water mark, may have waited for long enough.
    LowWater,
    /// Another thread may not have looked for a connection that was passed on to it.
    PassedOn,
    /// A source of events has a deadline.
    Source,
}

/// When a thread has to act without an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// The time.
    pub at: Time,
    /// The reason.
    pub reason: Reason,
}

/// A thread's time, and the reasons for its turns.
#[derive(Debug)]
pub struct Clockwork {
    clock: Clock,
    /// When this turn began.
    now: Time,
    /// Counts the turns.
    turn: u64,
    /// Why the last turn began, and how many in a row began for that reason alone.
    spinning: (Option<Reason>, u64),
}

impl Clockwork {
    /// A clockwork that reads this clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            now: clock.now(),
            turn: 0,
            spinning: (None, 0),
        }
    }

    /// When this turn began.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// How long this turn has lasted.
    pub fn elapsed(&self) -> TimeSpan {
        self.clock.now().since(self.now)
    }

    /// The number of this turn.
    pub const fn turn(&self) -> u64 {
        self.turn
    }

    /// The earliest of these deadlines.
    pub fn next(deadlines: impl IntoIterator<Item = (Reason, Option<Time>)>) -> Option<Deadline> {
        let deadlines = deadlines.into_iter();
        deadlines
            .filter_map(|(reason, at)| Some(Deadline { at: at?, reason }))
            .min()
    }

    /// How long to wait for events until this deadline.
    pub fn wait_until(&self, deadline: Option<Deadline>) -> Option<Timespec> {
        let wait = deadline?.at.since(self.now).min(LONGEST_WAIT);
        let nanoseconds = wait.nanoseconds();
        Some(Timespec {
            tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX),
            #[allow(clippy::cast_possible_wrap)]
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        })
    }

    /// Begins a turn with this number of events, after a wait until this deadline.
    pub fn begin_turn(&mut self, waited_for: Option<Deadline>, events: usize) {
        self.now = self.clock.now();
        self.turn = self.turn.wrapping_add(1);
        let reason = waited_for.filter(|_| events == 0).map(|it| it.reason);
        self.spinning = match reason {
            Some(_) if self.spinning.0 == reason => (reason, self.spinning.1.saturating_add(1)),
            _ => (reason, u64::from(reason.is_some())),
        };
        if let (Some(reason), turns) = self.spinning
            && turns >= SPINNING
            && turns.is_power_of_two()
        {
            tracing::debug!(
                ?reason,
                turns,
                "a thread has made many turns without an event"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_deadline_has_its_reason() {
        let at = Time::from_nanoseconds;
        let next = Clockwork::next([
            (Reason::Session, Some(at(30))),
            (Reason::Negotiation, None),
            (Reason::Measuring, Some(at(20))),
            (Reason::Resume, Some(at(40))),
        ]);
        let reason = Reason::Measuring;
        assert_eq!(next, Some(Deadline { at: at(20), reason }));
        assert_eq!(Clockwork::next([(Reason::Kick, None)]), None);
    }

    #[test]
    fn turns_without_an_event_are_counted_by_reason() {
        let mut clockwork = Clockwork::new(Clock::start());
        let waited = |reason| {
            let at = Time::ZERO;
            Some(Deadline { at, reason })
        };
        for _ in 0..3 {
            clockwork.begin_turn(waited(Reason::Resume), 0);
        }
        assert_eq!(clockwork.spinning, (Some(Reason::Resume), 3));
        clockwork.begin_turn(waited(Reason::Session), 0);
        assert_eq!(clockwork.spinning, (Some(Reason::Session), 1));
        clockwork.begin_turn(waited(Reason::Session), 5);
        assert_eq!((clockwork.spinning, clockwork.turn()), ((None, 0), 5));
    }

    #[test]
    fn a_deadline_that_has_passed_is_not_waited_for() {
        let clockwork = Clockwork::new(Clock::start());
        let reason = Reason::Unfinished;
        let wait = |at| clockwork.wait_until(Some(Deadline { at, reason }));
        assert_eq!(wait(Time::ZERO), Some(Timespec::default()));
        let far = clockwork.now() + TimeSpan::from_seconds(100_000);
        assert_eq!(wait(far).map(|wait| wait.tv_sec), Some(3600));
        assert_eq!(clockwork.wait_until(None), None);
    }
}
