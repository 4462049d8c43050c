//! Bandwidths in segments per time, and their windowed maximum.

use midspan_units::TimeSpan;

/// Bits of the fraction.
const SCALE: u32 = 24;
const NANOSECONDS_PER_MICROSECOND: u128 = 1000;
const MICROSECONDS_PER_SECOND: u128 = 1_000_000;

/// Segments per microsecond, with 24 bits of fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Bandwidth(u64);

impl Bandwidth {
    pub(super) const ZERO: Self = Self(0);

    /// This many segments in this time, which is above zero.
    pub(super) fn of(segments: u64, span: TimeSpan) -> Self {
        let scaled = (u128::from(segments) << SCALE) * NANOSECONDS_PER_MICROSECOND;
        let rate = scaled / u128::from(span.nanoseconds().max(1));
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Times a gain in 256ths.
    pub(super) fn times(self, gain: u32) -> Self {
        let scaled = u128::from(self.0) * u128::from(gain) / 256;
        Self(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Segments in this time, rounded down.
    pub(super) fn segments_in(self, span: TimeSpan) -> u64 {
        let segments = self.product(span) >> SCALE;
        u64::try_from(segments).unwrap_or(u64::MAX)
    }

    /// Segments in this time times a gain in 256ths, rounded up.
    pub(super) fn segments_in_up(self, span: TimeSpan, gain: u32) -> u64 {
        let segments = (self.product(span) * u128::from(gain) / 256).div_ceil(1 << SCALE);
        u64::try_from(segments).unwrap_or(u64::MAX)
    }

    fn product(self, span: TimeSpan) -> u128 {
        u128::from(self.0) * u128::from(span.nanoseconds()) / NANOSECONDS_PER_MICROSECOND
    }

    /// Bytes per second, with segments of this many bytes.
    pub(super) fn bytes_per_second(self, segment: u64) -> u64 {
        let rate = (u128::from(self.0) * u128::from(segment) * MICROSECONDS_PER_SECOND) >> SCALE;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    pub(super) const fn difference(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    pub(super) const fn mean(self, other: Self) -> Self {
        Self(self.0.midpoint(other.0))
    }
}

/// The largest bandwidth of the last rounds: Nichols' filter, which keeps the best three samples of
/// successive parts of the window (Linux: `lib/win_minmax.c`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowedMaximum([Sample; 3]);

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    round: u64,
    bandwidth: Bandwidth,
}

impl WindowedMaximum {
    pub(super) const fn get(&self) -> Bandwidth {
        let [best, ..] = &self.0;
        best.bandwidth
    }

    /// Adds the sample of a round; samples that are more than `window` rounds older expire.
    pub(super) fn add(&mut self, window: u64, round: u64, bandwidth: Bandwidth) {
        let new = Sample { round, bandwidth };
        let [first, second, third] = &mut self.0;
        if bandwidth >= first.bandwidth || round - third.round > window {
            self.0 = [new; 3];
            return;
        }
        if bandwidth >= second.bandwidth {
            (*second, *third) = (new, new);
        } else if bandwidth >= third.bandwidth {
            *third = new;
        }
        let age = round - first.round;
        if age > window {
            // The best has expired: the next best take its place.
            (*first, *second, *third) = (*second, *third, new);
            if round - first.round > window {
                (*first, *second, *third) = (*second, *third, new);
            }
        } else if second.round == first.round && age > window / 4 {
            // A quarter of the window has no second best yet.
            (*second, *third) = (new, new);
        } else if third.round == second.round && age > window / 2 {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_keeps_its_amounts() {
        let bandwidth = Bandwidth::of(1000, TimeSpan::from_milliseconds(600));
        assert_eq!(bandwidth.segments_in(TimeSpan::from_seconds(6)), 9_999);
        assert_eq!(
            bandwidth.segments_in_up(TimeSpan::from_milliseconds(600), 512),
            2_000
        );
        assert!((2_413_000..=2_413_400).contains(&bandwidth.bytes_per_second(1448)));
        assert_eq!(
            bandwidth.times(512).segments_in(TimeSpan::from_seconds(3)),
            9_999
        );
    }

    #[test]
    fn the_maximum_is_that_of_the_window() {
        let bandwidth = |segments| Bandwidth::of(segments, TimeSpan::from_seconds(1));
        let mut maximum = WindowedMaximum::default();
        maximum.add(10, 1, bandwidth(500));
        for round in 2..=11 {
            maximum.add(10, round, bandwidth(400 - round));
            assert_eq!(maximum.get(), bandwidth(500), "round {round}");
        }
        // The best is 11 rounds old; of the rest, one of the younger parts of the window is best.
        maximum.add(10, 12, bandwidth(300));
        assert!(maximum.get() < bandwidth(400) && maximum.get() > bandwidth(380));
        maximum.add(10, 13, bandwidth(450));
        assert_eq!(maximum.get(), bandwidth(450));
    }
}
