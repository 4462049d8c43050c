//! When the policy reads a session: usually each 100 ms, and more often while a session with a short leg is young.
//!
//! A short leg that loses segments shows this within a few round trips, and a download of a few megabytes is over in a
//! second. So in the first second the losses of short legs are read each 20 ms. A leg whose change of the congestion
//! control waits for the end of recovery is read as often. Everything else is decided at the usual readings only.

use midspan_units::{Time, TimeSpan};

/// How often a session with data in flight is sampled.
pub const USUAL: TimeSpan = TimeSpan::from_milliseconds(100);
/// The same while a session with a short leg is young, or a leg waits for the end of recovery.
const YOUNG: TimeSpan = TimeSpan::from_milliseconds(20);
/// How long a session is young.
const YOUNG_TIME: TimeSpan = TimeSpan::from_seconds(1);

/// When one session is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cadence {
    /// Whether the losses of short legs matter.
    watches_losses: bool,
    /// When everything is decided next.
    usual_due: Time,
    /// Until then, the session is young.
    young_until: Time,
    interval: TimeSpan,
}

impl Cadence {
    /// The time until the first reading of a session; `watches_losses` if the losses of short legs matter.
    pub const fn first(watches_losses: bool) -> TimeSpan {
        match watches_losses {
            true => YOUNG,
            false => USUAL,
        }
    }

    /// Of a session whose first reading comes now, after [`first`](Self::first).
    pub fn new(now: Time, watches_losses: bool) -> Self {
        Self {
            watches_losses,
            usual_due: now + (USUAL - Self::first(watches_losses)),
            young_until: now + YOUNG_TIME,
            interval: USUAL,
        }
    }

    /// Takes note of a reading; returns whether everything is decided by it, or losses only. `is_watched`: the session has a
    /// short leg that may still show losses.
    pub fn handle_reading(&mut self, now: Time, is_watched: bool) -> bool {
        let is_usual = !self.watches_losses || now >= self.usual_due;
        if is_usual {
            self.usual_due = now + USUAL;
        }
        let left = self.usual_due.since(now);
        let is_young = self.watches_losses && is_watched && now < self.young_until;
        self.interval = if is_young { YOUNG.min(left) } else { left };
        is_usual
    }

    /// The time until the next reading; `waits`: a leg of the session waits for the end of recovery.
    pub fn interval(&self, waits: bool) -> TimeSpan {
        match waits {
            true => self.interval.min(YOUNG),
            false => self.interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the readings in milliseconds, and whether everything is decided at each.
    fn readings(watches_losses: bool, watched_until: u64, count: usize) -> Vec<(u64, bool)> {
        let mut now = Time::ZERO + Cadence::first(watches_losses);
        let mut cadence = Cadence::new(now, watches_losses);
        let mut readings = Vec::new();
        for _ in 0..count {
            let at = now.nanoseconds() / 1_000_000;
            let is_usual = cadence.handle_reading(now, at < watched_until);
            readings.push((at, is_usual));
            now += cadence.interval(false);
        }
        readings
    }

    #[test]
    fn without_a_short_leg_each_reading_is_a_usual_one() {
        let usual = [(100, true), (200, true), (300, true)];
        assert_eq!(readings(false, u64::MAX, 3), usual);
        // The first reading shows that the legs are long. Everything is decided when it was before.
        let long = [(20, false), (100, true), (200, true)];
        assert_eq!(readings(true, 0, 3), long);
    }

    #[test]
    fn short_legs_are_read_more_often_for_a_second_and_decided_as_often() {
        let all = readings(true, u64::MAX, 60);
        let usual: Vec<u64> = all.iter().filter(|it| it.1).map(|it| it.0).collect();
        let expected: Vec<u64> = (1..=usual.len() as u64).map(|tenth| tenth * 100).collect();
        assert_eq!(usual, expected);
        assert_eq!(
            all[..6].iter().map(|it| it.0).collect::<Vec<_>>(),
            [20, 40, 60, 80, 100, 120]
        );
        let late = all.iter().filter(|(at, _)| *at > 1_020);
        assert!(late.clone().count() > 5 && late.clone().all(|(_, is_usual)| *is_usual));
    }
}
