//! How much the round trip of a leg usually deviates from its mean.
//!
//! On some paths the round trip changes all the time. Of many routes over such legs, the best one of a moment is mostly one that is good by
//! chance, and a minute later it is as bad as the others. Route choices therefore add [`LegNoise::margin`] to each leg of
//! a route over transit nodes. A steady leg has no margin.

use midspan_units::{Time, TimeSpan};

/// The newest quarter of an hour counts: as long as a route stays if four changes share an hour.
const WINDOW: TimeSpan = TimeSpan::from_seconds(900);
/// The first value counts for this time.
const FIRST: TimeSpan = TimeSpan::from_seconds(4);
/// A value counts for the time since the one before, and for this time at most.
const LONGEST: TimeSpan = TimeSpan::from_seconds(60);
/// The margin in mean deviations, in halves: two standard deviations if the values are normally distributed. With two or three
/// mean deviations, simulations of noisy networks gain about as much; with one, some lose.
const MARGIN_HALVES: u64 = 5;

/// Mean and mean deviation of a leg's round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LegNoise {
    mean: TimeSpan,
    deviation: TimeSpan,
    /// When the first value and the newest one were noted.
    noted: Option<(Time, Time)>,
}

impl LegNoise {
    /// The present round trip has this value.
    pub fn note(&mut self, now: Time, value: TimeSpan) {
        let Some((first, newest)) = self.noted else {
            self.mean = value;
            self.noted = Some((now, now));
            return;
        };
        let all = milliseconds((now.since(first) + FIRST).min(WINDOW)).max(1);
        let new = milliseconds(now.since(newest).min(LONGEST)).min(all);
        let mixed = |old: TimeSpan, value: TimeSpan| (old * (all - new) + value * new) / all;
        let deviation = (value - self.mean).max(self.mean - value);
        self.deviation = mixed(self.deviation, deviation);
        self.mean = mixed(self.mean, value);
        self.noted = Some((first, now));
    }

    /// What is added to the round trip of the leg where it is a part of a route over transit nodes.
    pub fn margin(&self) -> TimeSpan {
        self.deviation * MARGIN_HALVES / 2
    }
}

const fn milliseconds(span: TimeSpan) -> u64 {
    span.nanoseconds() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The margin in milliseconds after values of every fifth second.
    fn margins(values: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut noise = LegNoise::default();
        let times = (0..).map(|place| Time::ZERO + TimeSpan::from_seconds(5 * place));
        let margin = |(now, value)| {
            noise.note(now, TimeSpan::from_milliseconds(value));
            milliseconds(noise.margin())
        };
        times.zip(values).map(margin).collect()
    }

    #[test]
    fn a_steady_leg_has_no_margin_and_a_noisy_one_that_of_its_deviation() {
        assert_eq!(margins([80; 500]).into_iter().max(), Some(0));
        // 50 ms from the mean each time.
        let noisy = margins((0..500).map(|place| if place % 2 == 0 { 100 } else { 200 }));
        assert!(
            noisy
                .iter()
                .skip(20)
                .all(|margin| (110..140).contains(margin)),
            "{noisy:?}"
        );
    }

    /// One brownout of 100 ms for five minutes costs a leg less than 100 ms, and nearly nothing an hour later.
    #[test]
    fn one_brownout_is_forgotten() {
        let values = (0..1_200).map(|place| if (200..260).contains(&place) { 180 } else { 80 });
        let margins = margins(values);
        assert_eq!(margins[199], 0);
        assert!((50..100).contains(&margins[260]), "{}", margins[260]);
        assert!(margins[260 + 720] < 10, "{}", margins[260 + 720]);
    }
}
