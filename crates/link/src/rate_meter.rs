//! The rate of packets at a place, interval by interval.

use midspan_units::{Time, TimeSpan};

/// The packets that passed in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// The end of the interval.
    pub end: Time,
    /// Bytes at the network layer.
    pub bytes: u64,
    /// Their rate in bit/s, rounded down.
    pub bits_per_second: u64,
}

/// Counts packets and returns a sample for each interval.
///
/// Of a longer time without packets, only the first and the last interval have samples, so the number
/// of samples depends on the packets and not on the time.
#[derive(Debug, Clone)]
pub struct RateMeter {
    interval: TimeSpan,
    /// The number of the interval that is being counted.
    current: u64,
    bytes: u64,
    /// The number of the last interval that has a sample.
    last: Option<u64>,
}

impl RateMeter {
    /// Counts in intervals of this length, at least a nanosecond; the first one begins at
    /// [`Time::ZERO`].
    #[must_use]
    pub fn new(interval: TimeSpan) -> Self {
        Self {
            interval: interval.max(TimeSpan::from_nanoseconds(1)),
            current: 0,
            bytes: 0,
            last: None,
        }
    }

    /// A packet of `size` bytes passes. `take` gets the samples of the intervals that ended before. A
    /// time before that of an earlier packet counts for the present interval.
    pub fn add(&mut self, at: Time, size: u32, take: impl FnMut(RateSample)) {
        self.advance(at, take);
        self.bytes += u64::from(size);
    }

    /// `take` gets the samples of the intervals that have ended at `now`.
    pub fn advance(&mut self, now: Time, mut take: impl FnMut(RateSample)) {
        let next = now.nanoseconds() / self.interval.nanoseconds();
        if next > self.current {
            self.end_interval(&mut take);
            self.current = next;
        }
    }

    /// `take` gets the sample of the interval that is being counted.
    pub fn finish(mut self, mut take: impl FnMut(RateSample)) {
        self.end_interval(&mut take);
    }

    fn end_interval(&mut self, take: &mut impl FnMut(RateSample)) {
        let (number, bytes) = (self.current, self.bytes);
        self.bytes = 0;
        if bytes == 0 {
            return;
        }
        // The rate was zero since the last sample.
        for empty in [self.last.map(|last| last + 1), number.checked_sub(1)] {
            if let Some(empty) = empty.filter(|empty| *empty < number)
                && self.last.is_none_or(|last| empty > last)
            {
                take(self.sample(empty, 0));
                self.last = Some(empty);
            }
        }
        take(self.sample(number, bytes));
        self.last = Some(number);
    }

    fn sample(&self, number: u64, bytes: u64) -> RateSample {
        let interval = self.interval.nanoseconds();
        let rate = u128::from(bytes) * 8_000_000_000 / u128::from(interval);
        RateSample {
            end: Time::from_nanoseconds((number + 1).saturating_mul(interval)),
            bytes,
            bits_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(packets: &[(u64, u32)]) -> Vec<(u64, u64, u64)> {
        let mut meter = RateMeter::new(TimeSpan::from_milliseconds(100));
        let mut found = Vec::new();
        let mut take = |sample: RateSample| {
            let end = sample.end.nanoseconds() / 1_000_000;
            found.push((end, sample.bytes, sample.bits_per_second));
        };
        for (milliseconds, size) in packets {
            let at = Time::from_nanoseconds(milliseconds * 1_000_000);
            meter.add(at, *size, &mut take);
        }
        meter.finish(&mut take);
        found
    }

    #[test]
    fn each_interval_with_packets_has_its_rate() {
        assert_eq!(
            samples(&[(0, 1000), (99, 500), (100, 250), (250, 1)]),
            [(100, 1500, 120_000), (200, 250, 20_000), (300, 1, 80)]
        );
        assert_eq!(samples(&[]), []);
    }

    #[test]
    fn a_pause_has_two_samples_however_long_it_is() {
        assert_eq!(
            samples(&[(0, 1), (86_400_000, 1)]),
            [
                (100, 1, 80),
                (200, 0, 0),
                (86_400_000, 0, 0),
                (86_400_100, 1, 80)
            ]
        );
        // A pause of one interval, and one before the first packet.
        assert_eq!(
            samples(&[(150, 1), (350, 1)]),
            [(100, 0, 0), (200, 1, 80), (300, 0, 0), (400, 1, 80)]
        );
    }

    #[test]
    fn a_time_that_goes_back_counts_for_the_present_interval() {
        assert_eq!(samples(&[(150, 1), (50, 1)]), [(100, 0, 0), (200, 2, 160)]);
    }
}
