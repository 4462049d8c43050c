//! How often something has happened recently, per second.

use midspan_units::{Time, TimeSpan};

/// The time over which a rate is measured.
pub const PERIOD: TimeSpan = TimeSpan::from_seconds(10);

/// Counts of the present and of the last period. The rate is that of the last 10 s: of the last period, the part
/// counts that is not older than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecentCount {
    /// The number of the present period since the start of the run.
    period: u64,
    present: u64,
    last: u64,
}

impl RecentCount {
    /// Something has happened this often.
    pub fn add(&mut self, count: u64, now: Time) {
        *self = self.at(now);
        self.present = self.present.saturating_add(count);
    }

    /// How often it has happened in a second, rounded down.
    #[must_use]
    pub fn per_second(self, now: Time) -> u64 {
        let counts = self.at(now);
        let period = PERIOD.nanoseconds();
        let left = u128::from(period - now.nanoseconds() % period);
        let of_last = u128::from(counts.last) * left / u128::from(period);
        let sum = u128::from(counts.present) + of_last;
        u64::try_from(sum / 10).unwrap_or(u64::MAX)
    }

    /// The counts at this time. A time before the last one counts as the last one.
    fn at(self, now: Time) -> Self {
        let period = (now.nanoseconds() / PERIOD.nanoseconds()).max(self.period);
        let (present, last) = match period - self.period {
            0 => (self.present, self.last),
            1 => (0, self.present),
            _ => (0, 0),
        };
        Self {
            period,
            present,
            last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn a_rate_is_that_of_the_last_ten_seconds() {
        let mut count = RecentCount::default();
        for second in 10..20 {
            count.add(50, at(second));
        }
        assert_eq!(count.per_second(at(20)), 50);
        assert_eq!(count.per_second(at(25)), 25);
        assert_eq!(count.per_second(at(30)), 0);
        count.add(1000, at(25));
        assert_eq!(count.per_second(at(25)), 125);
        // The next period is missing.
        assert_eq!(count.per_second(at(45)), 0);
        count.add(10, at(45));
        assert_eq!(count.per_second(at(45)), 1);
    }

    #[test]
    fn an_earlier_time_loses_nothing() {
        let mut count = RecentCount::default();
        count.add(100, at(100));
        count.add(100, at(5));
        assert_eq!(count.per_second(at(105)), 20);
        count.add(u64::MAX, at(105));
        count.add(u64::MAX, at(105));
        assert_eq!(count.per_second(at(105)), u64::MAX / 10);
    }
}
