//! The rate at which ACKs arrive within one flight.
//!
//! The delivery rate of the kernel does not show what a path carries while a window is the limit: its
//! intervals include the wait for the next flight.

use midspan_units::{BitRate, Time, TimeSpan};

/// A rate is measured over at least this time and this many segments, so that ACKs that an interface
/// hands over in one piece do not count as a rate …
const TRAIN: (TimeSpan, u64) = (TimeSpan::from_milliseconds(10), 10);
/// … and a rate that is remembered for later sessions over a longer time and more segments.
const LONG_TRAIN: (TimeSpan, u64) = (TimeSpan::from_milliseconds(30), 20);
/// Number of readings that are kept for it, and the shortest time between two of them: so the slowest
/// rate that is measured is ten segments in 0.12 s.
const READINGS: usize = 16;
const SPACING: TimeSpan = TimeSpan::from_milliseconds(8);

/// Measures the rate of the ACKs of one leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AckTrain {
    /// Readings of acknowledged bytes, the newest last.
    readings: [Option<(Time, u64)>; READINGS],
    rate: Option<BitRate>,
    long: Option<BitRate>,
}

impl AckTrain {
    /// `acknowledged` bytes have been acknowledged so far, in segments of `segment` bytes.
    pub(crate) fn handle_reading(&mut self, now: Time, acknowledged: u64, segment: u64) {
        for (at, bytes) in self.readings.into_iter().flatten() {
            let (elapsed, delivered) = (now.since(at), acknowledged.saturating_sub(bytes));
            let is_train = |(time, segments): (TimeSpan, u64)| {
                elapsed >= time && delivered >= segments.saturating_mul(segment)
            };
            let rate = BitRate::from_transfer(delivered, elapsed);
            if is_train(TRAIN) {
                self.rate = self.rate.max(rate);
            }
            if is_train(LONG_TRAIN) {
                self.long = self.long.max(rate);
            }
        }
        let newest = self.readings[READINGS - 1];
        if newest.is_none_or(|(at, _)| now.since(at) >= SPACING) {
            self.readings.rotate_left(1);
            self.readings[READINGS - 1] = Some((now, acknowledged));
        }
    }

    /// A loss is being repaired: an ACK that fills a gap also acknowledges what arrived before, so the
    /// next train begins behind it.
    pub(crate) fn begin_again(&mut self, now: Time, acknowledged: u64) {
        self.readings = [None; READINGS];
        self.readings[READINGS - 1] = Some((now, acknowledged));
    }

    /// The highest rate so far.
    pub(crate) const fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// The highest rate of a longer train.
    pub(crate) const fn long_rate(&self) -> Option<BitRate> {
        self.long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates in Mbit/s after these readings: milliseconds, and thousands of acknowledged bytes.
    fn rates(readings: &[(u64, u64)]) -> [Option<u64>; 2] {
        let mut train = AckTrain::default();
        for (at, acknowledged) in readings {
            let now = Time::ZERO + TimeSpan::from_milliseconds(*at);
            train.handle_reading(now, acknowledged * 1_000, 1_000);
        }
        [train.rate(), train.long_rate()].map(|rate| Some(rate?.bits_per_second() / 1_000_000))
    }

    #[test]
    fn a_train_has_a_least_length() {
        assert_eq!(rates(&[(0, 0), (5, 100)]), [None; 2]);
        assert_eq!(rates(&[(0, 0), (10, 9)]), [None; 2]);
        assert_eq!(rates(&[(0, 0), (10, 10)]), [Some(8), None]);
        assert_eq!(rates(&[(0, 0), (15, 15), (30, 30)]), [Some(8); 2]);
    }

    #[test]
    fn a_gap_that_is_filled_is_no_train() {
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        let mut train = AckTrain::default();
        train.handle_reading(at(0), 0, 1_000);
        train.begin_again(at(600), 900_000);
        assert_eq!((train.rate(), train.long_rate()), (None, None));
        train.handle_reading(at(640), 940_000, 1_000);
        assert_eq!(train.long_rate(), BitRate::from_bits_per_second(8_000_000));
    }

    #[test]
    fn the_wait_between_two_flights_does_not_lower_the_rate() {
        let flights = [(0, 0), (10, 20), (20, 40), (30, 60), (630, 60), (640, 70)];
        assert_eq!(rates(&flights), [Some(16); 2]);
    }
}
