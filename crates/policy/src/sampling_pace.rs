//! When the sessions of a thread are sampled, so that samples take a bounded part of its time.
//!
//! A sample costs about 3 µs: `TCP_INFO` of both legs, and the policy's decision. Ten samples a second of each
//! of a few thousand sessions are cheap. With 100,000 sessions, these samples would take three cores. So two
//! samples of a thread have a least distance in time: if there are too many sessions, each session waits
//! longer for its next sample.

use midspan_units::{Time, TimeSpan};

/// Most samples a second of all threads together: about half a core.
const MOST: u64 = 200_000;
/// Most samples a second of one thread: about a seventh of its core.
const MOST_OF_THREAD: u64 = 50_000;

/// Spreads the samples of one thread's sessions over time.
#[derive(Debug, Clone)]
pub struct SamplingPace {
    /// Time between two samples.
    distance: TimeSpan,
    /// When the interval of the next session's call begins, if not at once.
    next: Time,
}

impl SamplingPace {
    /// The pace of one of this many threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let threads = u64::try_from(threads.max(1)).unwrap_or(u64::MAX);
        Self::with_most((MOST / threads).clamp(1, MOST_OF_THREAD))
    }

    /// At most this many samples a second.
    fn with_most(most: u64) -> Self {
        Self {
            distance: TimeSpan::from_seconds(1) / most,
            next: Time::ZERO,
        }
    }

    /// Returns when a session is sampled next whose policy requests this interval. Each call counts
    /// as one sample.
    #[must_use]
    pub fn next_sample(&mut self, now: Time, interval: TimeSpan) -> Time {
        let begin = now.max(self.next);
        self.next = begin + self.distance;
        begin + interval
    }

    /// The present interval of sessions whose policy requests `interval`.
    #[must_use]
    pub fn interval(&self, now: Time, interval: TimeSpan) -> TimeSpan {
        interval + self.next.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const WANTED: TimeSpan = TimeSpan::from_milliseconds(100);

    /// Samples this many sessions, which begin at once, for 6 s from `start` on. Returns the samples
    /// in the fifth second, the most samples in a tenth of it, and the interval at the end.
    fn run(pace: &mut SamplingPace, start: Time, sessions: u64) -> (u64, u64, TimeSpan) {
        let mut due: BTreeSet<(Time, u64)> = (0..sessions)
            .map(|session| (pace.next_sample(start, WANTED), session))
            .collect();
        let mut tenths = [0_u64; 60];
        let mut now = start;
        while let Some((at, session)) = due.pop_first() {
            now = at;
            let tenth = now.since(start).nanoseconds() / WANTED.nanoseconds();
            let Some(count) = usize::try_from(tenth)
                .ok()
                .and_then(|it| tenths.get_mut(it))
            else {
                break;
            };
            *count += 1;
            due.insert((pace.next_sample(now, WANTED), session));
        }
        let fifth = &tenths[40..50];
        let most = fifth.iter().max().copied().unwrap_or_default();
        (fifth.iter().sum(), most, pace.interval(now, WANTED))
    }

    #[test]
    fn few_sessions_have_the_interval_of_their_policy() {
        let mut pace = SamplingPace::new(2);
        assert_eq!(pace.next_sample(Time::ZERO, WANTED), Time::ZERO + WANTED);
        let (samples, _, interval) = run(&mut pace, Time::ZERO, 4_000);
        assert!((39_000..=40_000).contains(&samples), "{samples}");
        assert!(interval < TimeSpan::from_milliseconds(101), "{interval}");
    }

    #[test]
    fn many_sessions_are_sampled_less_often_and_few_again_often() {
        let mut pace = SamplingPace::new(2);
        let (samples, most, interval) = run(&mut pace, Time::ZERO, 50_000);
        assert!((49_999..=50_001).contains(&samples), "{samples}");
        // They come one by one, not all at once.
        assert!((4_999..=5_001).contains(&most), "{most}");
        let seconds = interval.as_seconds();
        assert!((0.99..=1.01).contains(&seconds), "{seconds} s");
        // Most of them end.
        let later = Time::ZERO + TimeSpan::from_seconds(20);
        let (samples, _, interval) = run(&mut pace, later, 100);
        assert!((995..=1_000).contains(&samples), "{samples}");
        assert!(interval < TimeSpan::from_milliseconds(101), "{interval}");
    }

    #[test]
    fn all_threads_together_take_a_part_of_one_core() {
        let of = |threads: u64| {
            let pace = SamplingPace::new(usize::try_from(threads).unwrap());
            1_000_000_000 / pace.distance.nanoseconds() * threads
        };
        let most = [1, 2, 4, 16, 64].map(of);
        assert_eq!(most, [50_000, 100_000, 200_000, 200_000, 200_000]);
        let seconds = |threads| SamplingPace::new(threads).distance.as_seconds();
        assert_eq!([seconds(0), seconds(usize::MAX)], [0.000_02, 1.0]);
    }

    proptest! {
        #[test]
        fn however_many_sessions_there_are_the_samples_are_bounded(sessions in 1_u64..600) {
            let (samples, most, _) = run(&mut SamplingPace::with_most(500), Time::ZERO, sessions);
            prop_assert!(samples <= 500 && most <= 51, "{samples} samples, {most} in 0.1 s");
            prop_assert!(samples >= (sessions * 9).min(499), "{samples} samples");
        }
    }
}
