//! Deadlines and their reasons.

use midspan_units::Time;

/// Why a sender or receiver wants to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Nothing has been acknowledged for a retransmission time-out (RFC 6298).
    Retransmission,
    /// The peer's window has been closed for as long (RFC 9293 §3.8.6.1).
    Persist,
    /// The next segment may leave at the pacing rate.
    Pacing,
    /// An acknowledgement has waited for a second segment long enough (RFC 9293 §3.8.6.3).
    DelayedAck,
}

/// A fixed table of deadlines.
#[derive(Debug, Clone)]
pub(super) struct Timers<const N: usize> {
    names: &'static [Timer; N],
    deadlines: [Time; N],
}

const NEVER: Time = Time::from_nanoseconds(u64::MAX);

impl<const N: usize> Timers<N> {
    pub(super) const fn new(names: &'static [Timer; N]) -> Self {
        Self {
            names,
            deadlines: [NEVER; N],
        }
    }

    pub(super) fn set(&mut self, timer: Timer, deadline: Time) {
        for (name, slot) in self.names.iter().zip(&mut self.deadlines) {
            if *name == timer {
                *slot = deadline;
            }
        }
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.set(timer, NEVER);
    }

    pub(super) fn is_running(&self, timer: Timer) -> bool {
        let mut slots = self.names.iter().zip(&self.deadlines);
        slots.any(|(name, deadline)| *name == timer && *deadline != NEVER)
    }

    /// The next deadline, and why.
    #[inline]
    pub(super) fn next(&self) -> Option<(Time, Timer)> {
        let mut next = (NEVER, self.names[0]);
        for (name, deadline) in self.names.iter().zip(&self.deadlines) {
            if *deadline < next.0 {
                next = (*deadline, *name);
            }
        }
        (next.0 != NEVER).then_some(next)
    }

    /// Takes a timer whose deadline has come; it stops.
    pub(super) fn expire(&mut self, now: Time) -> Option<Timer> {
        let (deadline, timer) = self.next()?;
        (deadline <= now).then(|| {
            self.stop(timer);
            timer
        })
    }
}
