//! The rate that a leg between two nodes carries, in the direction of its sender.

use midspan_units::{BitRate, Time, TimeSpan};

use crate::half_life::HalfLife;

/// The largest rate of the newest one to two minutes counts: a session that ended early shows less than the leg carries. A
/// longer span does not show that more and more sessions share a leg. With 300 s, busy pairs of a simulated network stayed on
/// overloaded legs, and took longer than by straight routes.
const SPAN: TimeSpan = TimeSpan::from_seconds(60);

/// The largest rate at which a leg has delivered recently. It is halved after each ten minutes, and forgotten after
/// an hour. Smaller rates that are measured meanwhile do not make it young again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateEstimate {
    begin: Time,
    present: Highest,
    before: Highest,
}

/// The largest rate of a span in bit/s, and its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Highest {
    rate: u64,
    age: HalfLife,
}

impl Default for Highest {
    fn default() -> Self {
        Self {
            rate: 0,
            age: HalfLife::begin(Time::ZERO),
        }
    }
}

impl Highest {
    /// The rate that it is worth now.
    fn at(&self, now: Time) -> u64 {
        self.age.of(now, self.rate)
    }
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
                false => Highest::default(),
            };
            (self.present, self.begin) = (Highest::default(), now);
        }
        let Highest { rate: highest, age } = &mut self.present;
        age.raise(now, highest, rate);
    }

    /// The rate; `None` if it is unknown.
    #[must_use]
    pub fn get(&self, now: Time) -> Option<BitRate> {
        BitRate::from_bits_per_second(self.bits(now))
    }

    fn bits(&self, now: Time) -> u64 {
        self.present.at(now).max(self.before.at(now))
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
    fn a_leg_that_became_slower_is_slower_after_two_minutes() {
        let mut rate = RateEstimate::default();
        rate.note(at(0), kilobits(20_000), false);
        for second in 1..=59 {
            rate.note(at(second), kilobits(2_000), false);
        }
        assert_eq!(rate.get(at(59)), Some(kilobits(20_000)));
        for second in 60..=121 {
            rate.note(at(second), kilobits(2_000), false);
        }
        assert_eq!(rate.get(at(121)), Some(kilobits(2_000)));
    }

    #[test]
    fn smaller_samples_do_not_keep_an_old_rate_young() {
        let mut rate = RateEstimate::default();
        rate.note(at(0), kilobits(20_000), false);
        rate.note(at(59), kilobits(2_000), false);
        rate.note(at(110), kilobits(2_000), false);
        assert_eq!(rate.get(at(599)), Some(kilobits(20_000)));
        assert_eq!(rate.get(at(600)), Some(kilobits(10_000)));
        // Now the second one is the largest of the newest two spans.
        rate.note(at(172), kilobits(1_000), false);
        assert_eq!(rate.get(at(172)), Some(kilobits(2_000)));
        // It has its own age.
        assert_eq!(rate.get(at(709)), Some(kilobits(2_000)));
        assert_eq!(rate.get(at(710)), Some(kilobits(1_000)));
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
