//! The half-life of measured values: a remembered value is halved after each ten minutes, and forgotten after an
//! hour in which nothing was measured.
//!
//! A later measurement that does not replace the value does not make the value young again. So a value that no
//! measurement reaches any more is halved every ten minutes however often the peer connects.

use midspan_units::{Time, TimeSpan};

/// A value is halved after each such time …
pub(crate) const HALF_LIFE: TimeSpan = TimeSpan::from_seconds(600);
/// … and forgotten after this many of them without a measurement.
const LIVES: u64 = 6;

/// The age of one remembered value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HalfLife {
    /// All halvings until then are in the value.
    since: Time,
}

impl HalfLife {
    /// The age of a value that is measured now.
    pub(crate) const fn begin(now: Time) -> Self {
        Self { since: now }
    }

    /// How often the value has to be halved to be that of now; `None` if it is forgotten.
    pub(crate) fn halvings(&self, now: Time) -> Option<u8> {
        let lives = now.since(self.since).nanoseconds() / HALF_LIFE.nanoseconds();
        u8::try_from(lives).ok().filter(|_| lives < LIVES)
    }

    /// The value of now.
    pub(crate) fn of(&self, now: Time, value: u64) -> u64 {
        self.halvings(now).map_or(0, |halvings| value >> halvings)
    }

    /// As [`halvings`](Self::halvings), for a caller that halves the remembered value: these halvings are not
    /// returned again.
    pub(crate) fn advance(&mut self, now: Time) -> Option<u8> {
        let halvings = self.halvings(now);
        self.since = match halvings {
            Some(halvings) => self.since + HALF_LIFE * u64::from(halvings),
            None => now,
        };
        halvings
    }

    /// Brings a remembered maximum to now, and takes a new measurement: the larger of the two remains.
    pub(crate) fn raise(&mut self, now: Time, value: &mut u64, measured: u64) {
        let halvings = self.advance(now);
        *value = halvings.map_or(0, |halvings| *value >> halvings);
        if measured >= *value {
            (*value, *self) = (measured, Self::begin(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(60 * minutes)
    }

    #[test]
    fn a_value_is_halved_however_often_smaller_ones_are_measured() {
        let (mut age, mut value) = (HalfLife::begin(minutes(0)), 1000);
        for minute in 1..=29 {
            age.raise(minutes(minute), &mut value, 200);
        }
        assert_eq!((value, age.of(minutes(29), value)), (250, 250));
        // Once the measurement is the larger one, it counts, and has its own age.
        age.raise(minutes(30), &mut value, 200);
        assert_eq!((value, age.of(minutes(39), value)), (200, 200));
        assert_eq!(age.of(minutes(40), value), 100);
    }

    #[test]
    fn a_value_is_forgotten_after_an_hour_without_a_measurement() {
        let mut age = HalfLife::begin(minutes(0));
        assert_eq!(age.of(minutes(59), 1000), 31);
        assert_eq!(age.halvings(minutes(60)), None);
        assert_eq!(age.advance(minutes(35)), Some(3));
        assert_eq!(age.halvings(minutes(89)), Some(5));
        assert_eq!(age.advance(minutes(90)), None);
        assert_eq!(age.halvings(minutes(91)), Some(0));
    }
}
