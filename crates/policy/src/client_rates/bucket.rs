//! A token bucket, kept as the time at which it is full again.
//!
//! At this time less the time in which a whole bucket fills, the bucket is empty. So one number is enough for the
//! level and for a debt. Only time fills a bucket, and a time that is earlier than the last one adds nothing.

use midspan_units::{Time, TimeSpan};

const SECOND: u128 = 1_000_000_000;

/// How fast a bucket fills, and how many tokens it holds at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketRate {
    per_second: u64,
    burst: u64,
}

impl BucketRate {
    /// This many tokens per second, and at most `burst` in the bucket; both at least 1.
    #[must_use]
    pub const fn new(per_second: u64, burst: u64) -> Self {
        Self {
            per_second: if per_second == 0 { 1 } else { per_second },
            burst: if burst == 0 { 1 } else { burst },
        }
    }

    /// The most tokens of a bucket.
    #[must_use]
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// Tokens that come in a second.
    #[must_use]
    pub const fn per_second(self) -> u64 {
        self.per_second
    }

    /// The time in which this many tokens come, rounded down to a nanosecond, so that many small amounts never
    /// take longer than their sum; saturates.
    fn time_of(self, tokens: u64) -> TimeSpan {
        let nanoseconds = u128::from(tokens) * SECOND / u128::from(self.per_second);
        TimeSpan::from_nanoseconds(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// The time in which an empty bucket fills.
    fn fill_time(self) -> TimeSpan {
        self.time_of(self.burst)
    }
}

/// A bucket of tokens, which is full at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket {
    full_at: Time,
}

impl Bucket {
    /// The tokens in the bucket; none while it is in debt.
    #[must_use]
    pub fn level(self, rate: BucketRate, now: Time) -> u64 {
        if self.full_at <= now {
            return rate.burst;
        }
        let filled = rate.fill_time() - self.full_at.since(now);
        let tokens = u128::from(filled.nanoseconds()) * u128::from(rate.per_second) / SECOND;
        u64::try_from(tokens).map_or(rate.burst, |tokens| tokens.min(rate.burst))
    }

    /// Takes tokens if the bucket has them all; returns whether it had.
    #[must_use]
    pub fn take(&mut self, rate: BucketRate, tokens: u64, now: Time) -> bool {
        let full_at = self.full_at.max(now) + rate.time_of(tokens);
        let has_them = full_at.since(now) <= rate.fill_time();
        if has_them {
            self.full_at = full_at;
        }
        has_them
    }

    /// Takes tokens, also those that have not come yet; returns when the last of them will have come.
    pub fn reserve(&mut self, rate: BucketRate, tokens: u64, now: Time) -> Time {
        self.full_at = self.full_at.max(now) + rate.time_of(tokens);
        let debt = self.full_at.since(now) - rate.fill_time();
        now + debt
    }

    /// Puts tokens back that were taken and not used.
    pub fn give_back(&mut self, rate: BucketRate, tokens: u64) {
        let earlier = self.full_at.since(Time::ZERO) - rate.time_of(tokens);
        self.full_at = Time::ZERO + earlier;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_as_many_as_come() {
        let rate = BucketRate::new(10, 3);
        let mut bucket = Bucket::default();
        assert_eq!(bucket.level(rate, at(0)), 3);
        let taken = (0..5).filter(|_| bucket.take(rate, 1, at(1000))).count();
        assert_eq!((taken, bucket.level(rate, at(1000))), (3, 0));
        assert!(!bucket.take(rate, 1, at(1099)));
        assert!(bucket.take(rate, 1, at(1100)));
        assert!(!bucket.take(rate, 1, at(1100)));
        // More than a bucket holds never passes.
        assert!(!bucket.take(rate, 4, at(9000)));
        assert_eq!(bucket.level(rate, at(9000)), 3);
    }

    #[test]
    fn reserved_tokens_come_one_after_the_other() {
        let rate = BucketRate::new(1000, 1000);
        let mut bucket = Bucket::default();
        assert_eq!(bucket.reserve(rate, 1000, at(5)), at(5));
        assert_eq!(bucket.reserve(rate, 100, at(5)), at(105));
        assert_eq!(bucket.reserve(rate, 100, at(6)), at(205));
        assert_eq!(bucket.level(rate, at(205)), 0);
        assert!(!bucket.take(rate, 1, at(205)));
        bucket.give_back(rate, 200);
        assert_eq!(bucket.level(rate, at(205)), 200);
        // What was not taken does not make a bucket fuller than full.
        bucket.give_back(rate, u64::MAX);
        assert_eq!(bucket.level(rate, at(205)), 1000);
    }

    #[test]
    fn an_uneven_rate_still_grants_its_whole_burst() {
        let rate = BucketRate::new(3, 3);
        let mut bucket = Bucket::default();
        assert!((0..3).all(|_| bucket.take(rate, 1, at(7))));
        assert!(!bucket.take(rate, 1, at(7)));
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        for rate in [BucketRate::new(0, 0), BucketRate::new(u64::MAX, u64::MAX)] {
            let mut bucket = Bucket::default();
            let end = Time::from_nanoseconds(u64::MAX);
            bucket.reserve(rate, u64::MAX, Time::ZERO);
            bucket.reserve(rate, u64::MAX, end);
            assert!(bucket.level(rate, Time::ZERO) <= rate.burst());
            assert!(bucket.level(rate, end) <= rate.burst());
            bucket.give_back(rate, u64::MAX);
        }
    }

    proptest! {
        /// In each span of time, no more passes than the burst and what comes meanwhile.
        #[test]
        fn no_more_passes_than_the_rate_allows(
            per_second in 1_u64..5000,
            burst in 1_u64..50,
            steps in prop::collection::vec((0_u64..300_000_000, 1_u64..4), 1..80),
        ) {
            let rate = BucketRate::new(per_second, burst);
            let mut bucket = Bucket::default();
            let mut now = Time::ZERO;
            let mut passed: Vec<(Time, u64)> = Vec::new();
            for (pause, tokens) in steps {
                now += TimeSpan::from_nanoseconds(pause);
                let before = bucket.level(rate, now);
                let has_passed = bucket.take(rate, tokens, now);
                prop_assert!(bucket.level(rate, now) <= before && before <= burst);
                if has_passed {
                    passed.push((now, tokens));
                }
            }
            for (index, (begin, _)) in passed.iter().enumerate() {
                let mut sum = 0;
                for (end, tokens) in &passed[index..] {
                    sum += tokens;
                    let span = u128::from(end.since(*begin).nanoseconds());
                    let came = span * u128::from(per_second) / SECOND;
                    // Each amount is rounded by less than a nanosecond, which brings less than one token here.
                    prop_assert!(u128::from(sum) <= u128::from(burst) + came + 1);
                }
            }
        }

        /// A time before the last one does not fill the bucket.
        #[test]
        fn an_earlier_time_adds_nothing(
            per_second in 1_u64..5000,
            burst in 1_u64..50,
            steps in prop::collection::vec((0_u64..2_000_000_000, 0_u64..2_000_000_000, 1_u64..4), 1..80),
        ) {
            let rate = BucketRate::new(per_second, burst);
            let mut bucket = Bucket::default();
            let mut now = Time::ZERO;
            for (pause, back, tokens) in steps {
                now += TimeSpan::from_nanoseconds(pause);
                let earlier = now.since(Time::ZERO + TimeSpan::from_nanoseconds(back));
                let earlier = Time::ZERO + earlier;
                let before = bucket.level(rate, now);
                let _ = bucket.take(rate, tokens, earlier);
                let between = bucket.level(rate, now);
                prop_assert!(between <= before);
                bucket.reserve(rate, tokens, earlier);
                prop_assert!(bucket.level(rate, now) <= between);
            }
        }
    }
}
