//! The rate of log lines of one kind. Events that a network peer causes must not fill a disk.

use std::time::{Duration, Instant};

/// Lines of one kind: a few at once, then one more in each `interval`.
#[derive(Debug)]
pub struct LogRate {
    most: u32,
    interval: Duration,
    /// Lines that may come now.
    left: u32,
    /// When there was one more last.
    since: Option<Instant>,
    left_out: u64,
}

impl LogRate {
    /// At most `most` lines at once.
    pub const fn new(most: u32, interval: Duration) -> Self {
        Self {
            most,
            interval,
            left: most,
            since: None,
            left_out: 0,
        }
    }

    /// Whether a line may come now; how many were left out since the last.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_nanos();
        let more = passed / self.interval.as_nanos().max(1);
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(self.most);
            // A part of an interval that has passed is not lost.
            let whole = self.interval.saturating_mul(more);
            self.since = Some(since.checked_add(whole).map_or(now, |then| then.min(now)));
        }
        if self.left == 0 {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_at_once_and_then_one_each_interval() {
        let start = Instant::now();
        let mut rate = LogRate::new(3, Duration::from_millis(100));
        let at = |time| start + Duration::from_millis(time);
        for _ in 0..3 {
            assert_eq!(rate.admit(at(0)), Some(0));
        }
        for time in 0..99 {
            assert_eq!(rate.admit(at(time)), None);
        }
        assert_eq!(rate.admit(at(150)), Some(99));
        assert_eq!(rate.admit(at(199)), None);
        assert_eq!(rate.admit(at(200)), Some(1));
        // After a long pause no more at once than at the beginning.
        let count = (0..1000).filter_map(|_| rate.admit(at(1_000_000))).count();
        assert_eq!(count, 3);
    }

    #[test]
    fn the_number_of_lines_is_bounded_whatever_comes() {
        let start = Instant::now();
        let mut rate = LogRate::new(50, Duration::from_millis(100));
        let mut logged = 0_u64;
        let mut left_out = 0;
        for step in 0..100_000 {
            if let Some(before) = rate.admit(start + Duration::from_micros(step * 100)) {
                logged += 1;
                left_out += before;
            }
        }
        assert_eq!(logged, 50 + 99);
        assert!(logged + left_out <= 100_000);
    }
}
