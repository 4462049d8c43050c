//! The rate that a leg between two nodes carries, in the direction of its sender.

use midspan_units::{BitRate, Time, TimeSpan};

/// The largest rate of the newest 5 to 10 minutes counts: each of several concurrent sessions delivers
/// only a part.
const SPAN: TimeSpan = TimeSpan::from_seconds(300);
/// Without new samples, a rate is halved after each such time, and forgotten after this many.
const HALF_LIFE: TimeSpan = TimeSpan::from_seconds(600);
const LIVES: u64 = 6;

/// The largest rate at which a leg has delivered recently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateEstimate {
    begin: Time,
    present: u64,
    before: u64,
    noted: Time,
}

impl RateEstimate {
    /// Takes one delivery rate. If the sender had not enough data (`is_application_limited`), the leg
    /// carries at least this rate: such a sample may raise the estimate, but never lowers or renews it.
    pub fn note(&mut self, now: Time, rate: BitRate, is_application_limited: bool) {
        let rate = rate.bits_per_second();
        let known = self.bits(now);
        if is_application_limited && rate <= known {
            return;
        }
        let lives = self.lives(now).min(LIVES);
        (self.present, self.before) = (self.present >> lives, self.before >> lives);
        if known == 0 {
            *self = Self {
                begin: now,
                ..Self::default()
            };
        }
        let elapsed = now.since(self.begin);
        if elapsed >= SPAN {
            self.before = match elapsed < SPAN * 2 {
                true => self.present,
                false => 0,
            };
            (self.present, self.begin) = (0, now);
        }
        self.present = self.present.max(rate);
        self.noted = now;
    }

    /// The rate; `None` if it is unknown.
    #[must_use]
    pub fn get(&self, now: Time) -> Option<BitRate> {
        BitRate::from_bits_per_second(self.bits(now))
    }

    fn lives(&self, now: Time) -> u64 {
        now.since(self.noted).nanoseconds() / HALF_LIFE.nanoseconds()
    }

    fn bits(&self, now: Time) -> u64 {
        let lives = self.lives(now);
        match lives < LIVES {
            true => self.present.max(self.before) >> lives,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn kilobits(kilobits: u64) -> BitRate {
        BitRate::from_bits_per_second(kilobits * 1000).unwrap()
    }

    #[test]
    fn a_sender_without_data_shows_a_lower_bound() {
        let mut rate = RateEstimate::default();
        assert_eq!(rate.get(at(0)), None);
        rate.note(at(0), kilobits(20_000), false);
        for second in 0..400 {
            rate.note(at(second), kilobits(100), true);
        }
        assert_eq!(rate.get(at(400)), Some(kilobits(20_000)));
        rate.note(at(400), kilobits(30_000), true);
        assert_eq!(rate.get(at(400)), Some(kilobits(30_000)));
    }

    #[test]
    fn a_leg_that_became_slower_is_slower_after_ten_minutes() {
        let mut rate = RateEstimate::default();
        rate.note(at(0), kilobits(20_000), false);
        for second in 1..=601 {
            rate.note(at(second), kilobits(2_000), false);
        }
        assert_eq!(rate.get(at(601)), Some(kilobits(2_000)));
    }

    #[test]
    fn an_old_rate_is_worth_less_and_is_forgotten() {
        let mut rate = RateEstimate::default();
        rate.note(at(0), kilobits(8_000), false);
        assert_eq!(rate.get(at(1_200)), Some(kilobits(2_000)));
        assert_eq!(rate.get(at(3_600)), None);
        rate.note(at(9_000), kilobits(1), true);
        assert_eq!(rate.get(at(9_000)), Some(kilobits(1)));
    }

    proptest! {
        #[test]
        fn limited_samples_never_lower_it(
            steps in proptest::collection::vec((0_u64..200, 1_u64..100_000, any::<bool>()), 1..60),
            limited in 1_u64..100_000,
        ) {
            let (mut now, mut rate) = (0, RateEstimate::default());
            for (later, sample, is_limited) in steps {
                now += later;
                rate.note(at(now), kilobits(sample), is_limited);
                prop_assert!(rate.get(at(now)) >= Some(kilobits(sample)));
            }
            let before = rate.get(at(now));
            let mut after = rate;
            after.note(at(now), kilobits(limited), true);
            prop_assert_eq!(after.get(at(now)), before.max(Some(kilobits(limited))));
        }
    }
}
