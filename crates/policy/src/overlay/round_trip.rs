//! The round trip of a leg between two nodes.

use midspan_units::{Time, TimeSpan};

use super::leg_noise::LegNoise;

/// The *present* round trip is the smallest of the newest 4 to 8 s: long enough that one sample behind
/// a burst does not count, short enough that a leg that has become slow is seen to be slow after
/// 2 × 4 s.
const PRESENT: TimeSpan = TimeSpan::from_seconds(4);
/// The *base* round trip is the smallest of the newest 5 to 10 minutes: what the path has without
/// queues.
const BASE: TimeSpan = TimeSpan::from_seconds(300);
/// A leg without a sample for this long is no longer measured.
const KEPT: TimeSpan = TimeSpan::from_seconds(600);

/// The round trip of a leg, from samples that connect or exchange something small: the handshake of a
/// hop, a request to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundTripEstimate {
    present: RecentMinimum,
    base: RecentMinimum,
    noise: LegNoise,
    smoothed: Option<TimeSpan>,
    noted: Option<Time>,
}

/// The smallest of the samples of at least the newest span, and at most two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct RecentMinimum {
    begin: Time,
    present: Option<TimeSpan>,
    before: Option<TimeSpan>,
}

impl RecentMinimum {
    /// Whether the next sample begins a new span.
    fn is_over(&self, now: Time, span: TimeSpan) -> bool {
        self.present.is_none() || now.since(self.begin) >= span
    }

    fn note(&mut self, now: Time, sample: TimeSpan, span: TimeSpan) {
        if self.is_over(now, span) {
            let is_newest = now.since(self.begin) < span * 2;
            self.before = self.present.filter(|_| is_newest);
            self.present = None;
            self.begin = now;
        }
        self.present = Some(self.present.map_or(sample, |least| least.min(sample)));
    }

    fn get(&self) -> Option<TimeSpan> {
        match (self.present, self.before) {
            (Some(present), Some(before)) => Some(present.min(before)),
            (present, before) => present.or(before),
        }
    }
}

impl RoundTripEstimate {
    /// Takes one sample. A round trip of zero is none: a clock has not moved.
    pub fn note(&mut self, now: Time, sample: TimeSpan) {
        if sample == TimeSpan::ZERO {
            return;
        }
        if self.get(now).is_none() {
            *self = Self::default();
        }
        // Once in each span: values between would only repeat it.
        if self.present.is_over(now, PRESENT)
            && let Some(value) = self.present.get()
        {
            self.noise.note(now, value);
        }
        self.present.note(now, sample, PRESENT);
        self.base.note(now, sample, BASE);
        // The weights of RFC 6298.
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => (smoothed * 7 + sample) / 8,
            None => sample,
        });
        self.noted = Some(now);
    }

    /// The present round trip; `None` if there is no sample of the last ten minutes.
    #[must_use]
    pub fn get(&self, now: Time) -> Option<TimeSpan> {
        let noted = self.noted.filter(|noted| now.since(*noted) < KEPT);
        noted.and(self.present.get())
    }

    /// The present round trip for a route over transit nodes, which is taken only if it is better by more than the
    /// noise of its legs.
    #[must_use]
    pub fn careful(&self, now: Time) -> Option<TimeSpan> {
        Some(self.get(now)? + self.noise.margin())
    }

    /// The base round trip.
    #[must_use]
    pub fn base(&self, now: Time) -> Option<TimeSpan> {
        self.get(now).and(self.base.get())
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn smoothed(&self, now: Time) -> Option<TimeSpan> {
        self.get(now).and(self.smoothed)
    }

    /// When the newest sample was taken.
    #[must_use]
    pub const fn noted(&self) -> Option<Time> {
        self.noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn unknown_is_not_zero() {
        let mut estimate = RoundTripEstimate::default();
        assert_eq!(estimate.get(at(0)), None);
        estimate.note(at(0), TimeSpan::ZERO);
        assert_eq!(estimate.get(at(0)), None);
        estimate.note(at(0), ms(30));
        assert_eq!(estimate.get(at(599_999)), Some(ms(30)));
        assert_eq!(estimate.get(at(600_000)), None);
        // What is too old does not come back with a new sample.
        estimate.note(at(700_000), ms(90));
        assert_eq!(estimate.get(at(700_000)), Some(ms(90)));
        assert_eq!(estimate.base(at(700_000)), Some(ms(90)));
    }

    #[test]
    fn a_leg_that_becomes_slow_is_slow_within_nine_seconds() {
        // Five sessions a second; the brownout begins anywhere between two of them.
        for begin in (20_000..28_000).step_by(170) {
            let mut estimate = RoundTripEstimate::default();
            let mut seen = None;
            for time in (0..60_000).step_by(200) {
                let sample = if time < begin { 30 } else { 230 };
                estimate.note(at(time), ms(sample + time % 7));
                if estimate.get(at(time)) >= Some(ms(230)) {
                    seen.get_or_insert(time);
                }
            }
            let seen = seen.unwrap();
            assert!(seen >= begin && seen - begin <= 9_000, "{begin} {seen}");
            // The base is that of the path without the brownout.
            assert!(estimate.base(at(60_000)).unwrap() < ms(40));
        }
    }

    #[test]
    fn one_slow_sample_changes_little() {
        let mut estimate = RoundTripEstimate::default();
        for time in (0..10_000).step_by(1000) {
            estimate.note(at(time), ms(30));
        }
        estimate.note(at(10_000), ms(3_000));
        assert_eq!(estimate.get(at(10_000)), Some(ms(30)));
        assert!(estimate.smoothed(at(10_000)).unwrap() < ms(410));
    }

    proptest! {
        #[test]
        fn the_present_value_is_a_recent_sample(
            steps in proptest::collection::vec((1_u64..3_000, 1_u64..1_000), 1..200),
        ) {
            let mut estimate = RoundTripEstimate::default();
            let (mut now, mut samples) = (0, Vec::new());
            for (later, sample) in steps {
                now += later;
                estimate.note(at(now), ms(sample));
                samples.push((now, sample));
                let least = |span: u64| {
                    let newest = samples.iter().filter(|(time, _)| now - time < span);
                    newest.map(|(_, sample)| *sample).min()
                };
                let found = estimate.get(at(now)).unwrap();
                // Each span begins with a sample, so gaps of up to 3 s come on top.
                prop_assert!(found >= ms(least(14_000).unwrap()));
                prop_assert!(found <= ms(sample));
                prop_assert!(estimate.base(at(now)).unwrap() <= found);
            }
        }
    }
}
