//! Round-trip time and retransmission time-out (RFC 6298).

use midspan_units::{BitRate, Time, TimeSpan};

use crate::tcp::SenderConfiguration;

/// The estimator. One segment is timed at a time; a segment that was sent twice is never timed
/// (Karn's algorithm).
#[derive(Debug, Clone)]
pub(super) struct RoundTrip {
    granularity: TimeSpan,
    minimum_timeout: TimeSpan,
    maximum_timeout: TimeSpan,
    /// SRTT and RTTVAR, after the first measurement.
    smoothed: Option<(TimeSpan, TimeSpan)>,
    least: Option<TimeSpan>,
    timeout: TimeSpan,
    /// How often the time-out was doubled since the last measurement.
    doubled: u32,
    /// The number that ends the measurement, and when it began.
    timed: Option<(u64, Time)>,
    /// The first unacknowledged byte when the measurement began.
    acknowledged: u64,
    /// The bytes that were acknowledged during the last measurement, and its duration.
    delivered: Option<(u64, TimeSpan)>,
}

impl RoundTrip {
    pub(super) const fn new(configuration: &SenderConfiguration) -> Self {
        Self {
            granularity: configuration.clock_granularity,
            minimum_timeout: configuration.minimum_timeout,
            maximum_timeout: configuration.maximum_timeout,
            smoothed: None,
            least: None,
            timeout: configuration.initial_timeout,
            doubled: 0,
            timed: None,
            acknowledged: 0,
            delivered: None,
        }
    }

    /// The rate at which data was acknowledged during the last measurement.
    pub(super) fn delivery_rate(&self) -> Option<BitRate> {
        let (bytes, span) = self.delivered?;
        BitRate::from_transfer(bytes, span)
    }

    /// The present retransmission time-out, with its doublings.
    pub(super) fn timeout(&self) -> TimeSpan {
        let factor = 1_u64.checked_shl(self.doubled).unwrap_or(u64::MAX);
        (self.timeout * factor).min(self.maximum_timeout)
    }

    /// SRTT.
    pub(super) fn smoothed(&self) -> Option<TimeSpan> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    pub(super) const fn least(&self) -> Option<TimeSpan> {
        self.least
    }

    /// A new segment that ends at `end` was sent; everything before `acknowledged` was acknowledged
    /// by then. The segment is timed unless another one is.
    #[inline]
    pub(super) fn start(&mut self, now: Time, acknowledged: u64, end: u64) {
        if self.timed.is_none() {
            self.timed = Some((end, now));
            self.acknowledged = acknowledged;
        }
    }

    /// The segment that is being timed can no longer show the round-trip time.
    pub(super) const fn cancel(&mut self) {
        self.timed = None;
    }

    /// Everything before `number` is acknowledged.
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Time, number: u64) {
        if let Some((_, start)) = self.timed.take_if(|(end, _)| *end <= number) {
            self.delivered = Some((number - self.acknowledged, now.since(start)));
            self.measure(now.since(start));
        }
    }

    /// Another estimator has a measurement: its smoothed and shortest round trip, and its time-out.
    pub(super) fn replace(
        &mut self,
        smoothed: TimeSpan,
        timeout: TimeSpan,
        least: Option<TimeSpan>,
    ) {
        self.smoothed = Some((smoothed, timeout - smoothed));
        self.timeout = timeout.max(self.minimum_timeout).min(self.maximum_timeout);
        self.least = least;
        self.doubled = 0;
    }

    /// RFC 6298 §5.5.
    pub(super) fn back_off(&mut self) {
        if self.timeout() < self.maximum_timeout {
            self.doubled += 1;
        }
    }

    /// RFC 6298 §2.2 and §2.3.
    pub(super) fn measure(&mut self, measured: TimeSpan) {
        self.least = Some(self.least.map_or(measured, |least| least.min(measured)));
        let sample = self.in_ticks(measured).nanoseconds();
        let (smoothed, variation) = match self.smoothed {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let (smoothed, variation) = (smoothed.nanoseconds(), variation.nanoseconds());
                let error = smoothed.abs_diff(sample);
                ((7 * smoothed + sample) / 8, (3 * variation + error) / 4)
            }
        };
        let margin = (4 * variation).max(self.granularity.nanoseconds());
        self.timeout = TimeSpan::from_nanoseconds(smoothed + margin)
            .max(self.minimum_timeout)
            .min(self.maximum_timeout);
        self.smoothed = Some((
            TimeSpan::from_nanoseconds(smoothed),
            TimeSpan::from_nanoseconds(variation),
        ));
        self.doubled = 0;
    }

    /// Rounds to the nearest tick of the clock, at least one.
    fn in_ticks(&self, measured: TimeSpan) -> TimeSpan {
        let tick = self.granularity.nanoseconds();
        if tick <= 1 {
            return measured;
        }
        let ticks = (measured.nanoseconds() + tick / 2) / tick;
        self.granularity * ticks.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    fn estimator(granularity: TimeSpan) -> RoundTrip {
        RoundTrip::new(&SenderConfiguration {
            clock_granularity: granularity,
            minimum_timeout: ms(200),
            maximum_timeout: ms(4000),
            ..SenderConfiguration::default()
        })
    }

    #[test]
    fn the_formulas_of_rfc_6298() {
        let mut round_trip = estimator(TimeSpan::from_nanoseconds(1));
        assert_eq!(round_trip.timeout(), ms(1000));
        round_trip.measure(ms(160));
        // 160 + 4 · 80
        assert_eq!(round_trip.timeout(), ms(480));
        round_trip.measure(ms(240));
        // SRTT = 170, RTTVAR = (3 · 80 + 80) / 4 = 80
        assert_eq!(round_trip.smoothed(), Some(ms(170)));
        assert_eq!(round_trip.timeout(), ms(490));
        assert_eq!(round_trip.least(), Some(ms(160)));
    }

    #[test]
    fn the_timeout_doubles_to_its_maximum_until_the_next_measurement() {
        let mut round_trip = estimator(TimeSpan::from_nanoseconds(1));
        round_trip.measure(ms(160));
        let mut seen = Vec::new();
        for _ in 0..5 {
            round_trip.back_off();
            seen.push(round_trip.timeout());
        }
        assert_eq!(seen, [ms(960), ms(1920), ms(3840), ms(4000), ms(4000)]);
        round_trip.measure(ms(160));
        assert_eq!(round_trip.timeout(), ms(160 + 4 * 60));
    }

    #[test]
    fn a_coarse_clock_counts_whole_ticks() {
        let mut round_trip = estimator(ms(100));
        round_trip.measure(ms(149));
        assert_eq!(round_trip.smoothed(), Some(ms(100)));
        let mut round_trip = estimator(ms(100));
        round_trip.measure(ms(3));
        assert_eq!(round_trip.smoothed(), Some(ms(100)));
    }

    #[test]
    fn a_cancelled_measurement_is_not_taken() {
        let mut round_trip = estimator(ms(1));
        round_trip.start(Time::ZERO, 0, 1000);
        round_trip.cancel();
        round_trip.acknowledge(Time::ZERO + ms(5), 1000);
        assert_eq!(round_trip.smoothed(), None);
    }
}
