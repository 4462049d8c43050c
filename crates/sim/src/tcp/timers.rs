//! Deadlines and their reasons.

use midspan_units::Time;

/// The timers of a sender or receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Nothing has been acknowledged for a retransmission time-out (RFC 6298).
    Retransmission,
    /// The peer's window has been zero for such a time (RFC 9293 §3.8.6.1).
    Persist,
    /// The next segment may leave at the pacing rate.
    Pacing,
    /// An acknowledgement has waited for a second segment long enough (RFC 9293 §3.8.6.3).
    DelayedAck,
}

const TIMERS: [Timer; 4] = [
    Timer::Retransmission,
    Timer::Persist,
    Timer::Pacing,
    Timer::DelayedAck,
];

/// A fixed table of the deadlines of `N` timers: those that follow each other in [`Timer`] from
/// `FIRST` on.
#[derive(Debug, Clone)]
pub(super) struct Timers<const FIRST: usize, const N: usize> {
    deadlines: [Time; N],
}

const NEVER: Time = Time::from_nanoseconds(u64::MAX);

impl<const FIRST: usize, const N: usize> Timers<FIRST, N> {
    pub(super) const fn new() -> Self {
        Self {
            deadlines: [NEVER; N],
        }
    }

    #[inline]
    pub(super) const fn set(&mut self, timer: Timer, deadline: Time) {
        self.deadlines[timer as usize - FIRST] = deadline;
    }

    #[inline]
    pub(super) const fn stop(&mut self, timer: Timer) {
        self.set(timer, NEVER);
    }

    #[inline]
    pub(super) fn is_running(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize - FIRST] != NEVER
    }

    /// The next deadline, and its timer.
    #[inline]
    pub(super) fn next(&self) -> Option<(Time, Timer)> {
        let mut next = (NEVER, TIMERS[FIRST]);
        for (timer, deadline) in TIMERS[FIRST..].iter().zip(&self.deadlines) {
            if *deadline < next.0 {
                next = (*deadline, *timer);
            }
        }
        (next.0 != NEVER).then_some(next)
    }

    /// Stops and returns a timer whose deadline has come.
    pub(super) fn expire(&mut self, now: Time) -> Option<Timer> {
        let (deadline, timer) = self.next()?;
        (deadline <= now).then(|| {
            self.stop(timer);
            timer
        })
    }
}
