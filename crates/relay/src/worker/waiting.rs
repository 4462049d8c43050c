//! How long a thread may sleep.

use midspan_units::TimeSpan;
use rustix::event::Timespec;

use super::Worker;
use super::observed::Sampling;

/// Longest wait for an event: the kernel takes at most 24 days.
const LONGEST_WAIT: TimeSpan = TimeSpan::from_seconds(3600);

impl Worker {
    /// Until the next thing to do that no event announces.
    pub(super) fn timeout(&self) -> Option<Timespec> {
        if !self.turns.is_empty() || self.kicks.is_busy() {
            return Some(Timespec::default());
        }
        let resume = self.acceptors.iter();
        let resume = resume
            .flat_map(|a| [a.paused_until, a.retire_at])
            .flatten()
            .min();
        let sampling = self.sampling.as_ref().and_then(Sampling::next);
        let measuring = self.measuring.next();
        let negotiations = self.negotiations.timers.next();
        let next = [
            self.timers.next(),
            negotiations,
            resume,
            sampling,
            measuring,
        ];
        let next = next.into_iter().flatten().min()?;
        let wait = next.since(self.now).min(LONGEST_WAIT);
        let nanoseconds = wait.nanoseconds();
        Some(Timespec {
            tv_sec: i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX),
            #[allow(clippy::cast_possible_wrap)]
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        })
    }
}
