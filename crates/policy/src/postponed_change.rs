//! A change of the congestion control that waits for the end of recovery.
//!
//! A leg is found lossy just after a loss. At this time, CUBIC is in recovery, in which proportional rate reduction
//! (RFC 9937) keeps cwnd as small as what is still in flight. Only at its end does Linux set cwnd to ssthresh, and not for BBR
//! (`tcp_end_cwnd_reduction`). BBR would begin with this small cwnd, and with the pacing rate of it.
//! So the change waits until recovery is over, but not for long. While a large window loses segments in each round trip,
//! one recovery follows the other, and each lowers cwnd. In simulations over GEO with 1 % of losses (600 ms), the page takes 4.9 s
//! with each bound from 1 to 16 round trips, and 5.5 s without waiting. But 10 MB take 8.8 s without waiting and with a bound of 2, 9.2 s
//! with 4, and 10.2 s with 8.

use midspan_units::{Time, TimeSpan};

use crate::LegSample;

/// Most round trips for which a change waits: recovery takes one, and a second one if a segment is lost again.
const LONGEST: u64 = 2;
/// A round trip, if it is unknown.
const UNKNOWN: TimeSpan = TimeSpan::from_seconds(1);

/// A change that is decided and not yet made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostponedChange {
    /// It is made then at the latest.
    until: Time,
}

impl PostponedChange {
    /// A change that was decided by this reading; `None` if it can be made at once.
    #[must_use]
    pub fn begin(now: Time, leg: &LegSample) -> Option<Self> {
        let round_trip = leg.round_trip_time.unwrap_or(UNKNOWN);
        let until = now + round_trip * LONGEST;
        let change = Self { until };
        (!change.is_due(now, leg)).then_some(change)
    }

    /// Whether the change is to be made now.
    #[must_use]
    pub fn is_due(&self, now: Time, leg: &LegSample) -> bool {
        !leg.is_recovering || now >= self.until
    }
}
