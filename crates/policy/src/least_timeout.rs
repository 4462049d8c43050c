//! The least retransmission time-out of a short leg.
//!
//! If the last segment of a burst is lost and nothing else is in flight, only a timer shows it. Linux waits 200 ms longer
//! than a round trip or two, because a receiver may delay its ACK (RFC 8985 §7.2, RFC 6298). On a leg with a round trip of 25 ms,
//! this is most of the time of a page. Receivers of today delay an ACK by 40 to 50 ms.
//!
//! If a receiver delays its ACK for longer, the segment is sent once more for nothing. The receiver acknowledges this
//! second copy at once.

use midspan_units::TimeSpan;

use crate::LegSample;

/// Legs with a shorter round trip are short.
const SHORT: TimeSpan = TimeSpan::from_milliseconds(60);
/// The least time-out, longer than receivers delay an ACK. Linux adds the smoothed round trip.
const LEAST: TimeSpan = TimeSpan::from_milliseconds(60);

/// The least time-out of this leg, if it is short: two round trips, and at least 60 ms.
#[must_use]
pub(crate) fn least_timeout(leg: &LegSample) -> Option<TimeSpan> {
    let round_trip = leg.minimum_round_trip_time?;
    (round_trip < SHORT).then(|| (round_trip * 2).max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_legs_wait_less_than_200_ms() {
        let milliseconds = TimeSpan::from_milliseconds;
        let of = |round_trip: Option<u64>| {
            least_timeout(&LegSample {
                minimum_round_trip_time: round_trip.map(milliseconds),
                ..LegSample::default()
            })
        };
        assert_eq!(of(None), None);
        assert_eq!(of(Some(1)), Some(milliseconds(60)));
        assert_eq!(of(Some(30)), Some(milliseconds(60)));
        assert_eq!(of(Some(59)), Some(milliseconds(118)));
        assert_eq!(of(Some(60)), None);
    }
}
