//! What one session has measured of the path that carries its data: the largest flight that arrived
//! without loss or queue, the largest delivery rate, and whether the session met a limit at all.
//!
//! A transfer that ends before its window stops growing, or that the peer's window holds back,
//! delivers less than the path carries. BBR marks such samples as "app-limited"
//! (draft-ietf-ccwg-bbr). Here, such a rate may also raise the known capacity but does not limit
//! it. A later session may begin with a flight that arrived without a queue. A queue shows the path's limit.
//! Losses show the limit too, except losses without a queue on a long path: these are random, whatever is
//! sent.

use midspan_units::BitRate;

use crate::LegSample;
use crate::congestion::LONG;
use crate::pacing::has_queue;
use crate::recent_maximum::RecentMaximum;

/// The delivery rate of a sample counts for at least this many further samples (ten a second).
const REMEMBERED: u8 = 200;

/// Observes one leg of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenFlight {
    bytes: u64,
    /// The acknowledged byte at which the largest unacknowledged flight ends, and that flight's
    /// size in bytes.
    under_way: Option<(u64, u64)>,
    rate: RecentMaximum,
    retransmitted: u32,
    is_filled: bool,
}

impl Default for TakenFlight {
    fn default() -> Self {
        Self {
            bytes: 0,
            under_way: None,
            rate: RecentMaximum::new(REMEMBERED),
            retransmitted: 0,
            is_filled: false,
        }
    }
}

impl TakenFlight {
    /// Takes a reading of the leg.
    pub(crate) fn handle_sample(&mut self, leg: &LegSample) {
        self.rate
            .add(leg.delivery_rate.map_or(0, BitRate::bits_per_second));
        let is_long = leg.minimum_round_trip_time.is_some_and(|time| time >= LONG);
        let lost = self.retransmitted != leg.segments_retransmitted;
        self.retransmitted = leg.segments_retransmitted;
        if has_queue(leg) || (lost && !is_long) {
            self.is_filled = true;
            self.under_way = None;
            return;
        }
        let acknowledged = leg.bytes_acknowledged.bytes();
        if let Some((end, bytes)) = self.under_way
            && acknowledged >= end
        {
            self.bytes = self.bytes.max(bytes);
            self.under_way = None;
        }
        let bytes = u64::from(leg.unacknowledged) * u64::from(leg.segment_size);
        let largest = self.under_way.map_or(self.bytes, |(_, bytes)| bytes);
        if bytes > largest {
            self.under_way = Some((acknowledged.saturating_add(bytes), bytes));
        }
    }

    /// The largest flight that arrived without loss or queue, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a flight met a queue, or losses that may come from one.
    pub(crate) const fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// The largest recent delivery rate.
    pub(crate) fn rate(&self) -> Option<BitRate> {
        BitRate::from_bits_per_second(self.rate.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::{ByteSize, TimeSpan};

    fn leg(acknowledged: u64, in_flight: u32) -> LegSample {
        let milliseconds = |time| Some(TimeSpan::from_milliseconds(time));
        LegSample {
            segment_size: 1000,
            bytes_acknowledged: ByteSize::from_bytes(acknowledged),
            unacknowledged: in_flight,
            round_trip_time: milliseconds(600),
            minimum_round_trip_time: milliseconds(600),
            delivery_rate: BitRate::from_bits_per_second(1_000_000),
            ..LegSample::default()
        }
    }

    #[test]
    fn a_flight_counts_once_it_is_acknowledged() {
        let mut taken = TakenFlight::default();
        taken.handle_sample(&leg(0, 40));
        taken.handle_sample(&leg(39_999, 80));
        assert_eq!(taken.bytes(), 0);
        taken.handle_sample(&leg(119_999, 1));
        assert_eq!((taken.bytes(), taken.is_filled()), (80_000, false));
        // A smaller flight later does not lower the value.
        taken.handle_sample(&leg(130_000, 20));
        taken.handle_sample(&leg(150_000, 0));
        assert_eq!(taken.bytes(), 80_000);
    }

    #[test]
    fn a_flight_that_met_a_queue_does_not_count() {
        let mut taken = TakenFlight::default();
        taken.handle_sample(&leg(0, 40));
        taken.handle_sample(&LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(800)),
            ..leg(40_000, 80)
        });
        taken.handle_sample(&leg(120_000, 0));
        assert_eq!((taken.bytes(), taken.is_filled()), (0, true));
    }

    #[test]
    fn losses_bound_a_short_path_and_not_a_long_one() {
        let lost = |least| LegSample {
            segments_retransmitted: 3,
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(least)),
            round_trip_time: Some(TimeSpan::from_milliseconds(least)),
            ..leg(0, 40)
        };
        for (least, is_filled) in [(600, false), (10, true)] {
            let mut taken = TakenFlight::default();
            taken.handle_sample(&lost(least));
            assert_eq!(taken.is_filled(), is_filled);
        }
    }

    #[test]
    fn a_last_slow_sample_does_not_hide_the_rate_that_was_reached() {
        let mut taken = TakenFlight::default();
        for rate in [1, 5, 2] {
            taken.handle_sample(&LegSample {
                delivery_rate: BitRate::from_bits_per_second(rate),
                ..leg(0, 0)
            });
        }
        assert_eq!(taken.rate(), BitRate::from_bits_per_second(5));
    }
}
