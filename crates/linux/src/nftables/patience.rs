//! How long the program `nft` may take. Without I/O.

use std::time::{Duration, Instant};

/// Time limit of a call. Usually a call needs some hundredths of a second.
const SHORT: Duration = Duration::from_secs(5);
/// The longest time limit.
pub(super) const LONG: Duration = Duration::from_secs(30);
/// A call may take this many times as long as the last one.
const MARGIN: u32 = 4;
/// After a program exceeded its limit, no other is started for this time, because the caller has
/// other work than to wait for such programs.
const PAUSE: Duration = Duration::from_secs(10);

/// The time limit of the next call. On a slow or busy machine, calls that end raise it, and so do calls that were killed:
/// otherwise a machine on which each call takes a little longer than the limit could never change its rules.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// Until when no program is started.
    pauses_until: Option<Instant>,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self {
            limit: SHORT,
            pauses_until: None,
        }
    }

    /// The time limit.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a program may be started.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.pauses_until.is_none_or(|until| now >= until)
    }

    /// A call has ended by itself after this time.
    pub(super) fn handle_end(&mut self, took: Duration) {
        self.limit = took.saturating_mul(MARGIN).clamp(SHORT, LONG);
    }

    /// A call was killed.
    pub(super) fn handle_kill(&mut self, now: Instant) {
        self.limit = self.limit.saturating_mul(2).min(LONG);
        self.pauses_until = now.checked_add(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_gets_more_time_and_a_fast_one_the_usual() {
        let seconds = |patience: &Patience| patience.limit().as_secs_f64();
        let (mut patience, now) = (Patience::new(), Instant::now());
        assert!(patience.may_start(now));
        let mut limits = Vec::new();
        for _ in 0..4 {
            limits.push(seconds(&patience));
            patience.handle_kill(now);
        }
        assert_eq!(limits, [5.0, 10.0, 20.0, 30.0]);
        assert!(!patience.may_start(now) && patience.may_start(now + PAUSE));
        patience.handle_end(Duration::from_secs(6));
        assert_eq!(seconds(&patience), 24.0);
        patience.handle_end(Duration::from_secs(20));
        assert_eq!(seconds(&patience), 30.0);
        patience.handle_end(Duration::from_millis(30));
        assert_eq!(seconds(&patience), 5.0);
    }
}
