//! Round-trip times of every ACK, and the retransmission time-out, as in Linux
//! (`tcp_rtt_estimator`).
//!
//! The deviation that counts grows at once to the largest of the present round. At the end of a round, it
//! shrinks by a quarter of its distance to the largest deviation of this round, which is at least the least
//! time-out. So the time-out is above the smoothed round trip by at least the least time-out.

use midspan_units::TimeSpan;

/// The estimator.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timing {
    /// In eighths of a nanosecond; `None` before the first measurement.
    smoothed: Option<u64>,
    /// Mean deviation, in quarters of a nanosecond.
    deviation: u64,
    /// The largest deviation of this round, and the deviation that counts; in nanoseconds, times
    /// four.
    largest: u64,
    variation: u64,
    /// The round ends when more than this is acknowledged.
    round_end: u64,
    shortest: Option<TimeSpan>,
}

impl Timing {
    /// An estimator with what another one has measured.
    pub(super) fn starting_with(
        smoothed: Option<TimeSpan>,
        shortest: Option<TimeSpan>,
        least_timeout: TimeSpan,
    ) -> Self {
        let mut timing = Self::default();
        if let Some(smoothed) = smoothed {
            timing.measure(smoothed, least_timeout, (0, 0));
        }
        timing.shortest = shortest;
        timing
    }

    /// A measurement of the shortest round trip.
    pub(super) fn note_shortest(&mut self, measured: TimeSpan) {
        let is_shorter = self.shortest.is_none_or(|least| measured < least);
        if is_shorter {
            self.shortest = Some(measured);
        }
    }

    /// A measurement; everything before `acknowledged` is acknowledged, and everything before `next`
    /// was sent.
    pub(super) fn measure(
        &mut self,
        measured: TimeSpan,
        least_timeout: TimeSpan,
        (acknowledged, next): (u64, u64),
    ) {
        let (measured, floor) = (measured.nanoseconds(), least_timeout.nanoseconds());
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(8 * measured);
            self.deviation = 2 * measured;
            self.variation = self.deviation.max(floor);
            self.largest = self.variation;
            self.round_end = next;
            return;
        };
        let before = smoothed / 8;
        self.smoothed = Some(smoothed - before + measured);
        let error = measured.abs_diff(before);
        let share = self.deviation / 4;
        // A falling round trip counts less as a deviation.
        self.deviation = if error <= share {
            self.deviation - (share - error)
        } else if measured < before {
            self.deviation + (error - share) / 8
        } else {
            self.deviation + (error - share)
        };
        self.largest = self.largest.max(self.deviation);
        self.variation = self.variation.max(self.largest);
        if acknowledged > self.round_end {
            self.variation -= (self.variation - self.largest) / 4;
            self.round_end = next;
            self.largest = floor;
        }
    }

    pub(super) fn smoothed(&self) -> Option<TimeSpan> {
        self.smoothed
            .map(|eighths| TimeSpan::from_nanoseconds(eighths / 8))
    }

    pub(super) const fn shortest(&self) -> Option<TimeSpan> {
        self.shortest
    }

    /// The retransmission time-out; `None` before the first measurement.
    pub(super) fn timeout(&self) -> Option<TimeSpan> {
        let smoothed = self.smoothed()?;
        Some(smoothed + TimeSpan::from_nanoseconds(self.variation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: TimeSpan = TimeSpan::from_milliseconds(200);

    fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn the_timeout_is_the_round_trip_and_at_least_200_ms() {
        let mut timing = Timing::default();
        // SRTT 50 ms, and twice 50 ms is below 200 ms.
        timing.measure(ms(50), LEAST, (0, 10));
        assert_eq!(timing.timeout(), Some(ms(250)));
        // SRTT 600 ms and a deviation of 2 · 600 ms.
        let mut timing = Timing::default();
        timing.measure(ms(600), LEAST, (0, 10));
        assert_eq!(timing.timeout(), Some(ms(1800)));
        // Without deviations, the time-out falls in each round, towards SRTT + 200 ms.
        for round in 1..60 {
            timing.measure(ms(600), LEAST, (10 * round + 1, 10 * round + 10));
        }
        let timeout = timing.timeout().unwrap();
        assert!(timeout >= ms(800) && timeout < ms(801), "{timeout}");
    }

    #[test]
    fn a_rise_counts_at_once() {
        let mut timing = Timing::starting_with(Some(ms(100)), Some(ms(90)), LEAST);
        assert_eq!(timing.shortest(), Some(ms(90)));
        timing.measure(ms(500), LEAST, (1, 10));
        // SRTT = 100 + 400/8; the deviation grows by 400 − 200/4 to 550 ms, in quarters.
        assert_eq!(timing.smoothed(), Some(ms(150)));
        assert_eq!(timing.timeout(), Some(ms(150 + 550)));
    }
}
