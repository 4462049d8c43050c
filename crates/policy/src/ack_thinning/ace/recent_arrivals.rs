//! The data that has arrived in the last round trip and since the last sign of a loss: a window
//! that the sender certainly has.

use midspan_units::{Time, TimeSpan};

/// The length of a time slice, as a divisor of a round trip.
const SLICES: u64 = 8;
/// Number of slices that are kept: even a round trip that has doubled still has all of its slices.
const KEPT: usize = 16;

/// Counts arrivals in slices of time. The slices that began within the last `rcv_RTT` count:
/// together never more than what arrived in it, and at most an eighth of a round trip less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentArrivals {
    /// When each slice began, and the packets in it, the newest slice first; empty ones are zero.
    slices: [(Time, u32); KEPT],
}

impl RecentArrivals {
    /// `segments` packets arrived.
    pub fn handle_arrival(&mut self, now: Time, segments: u32, rcv_rtt: TimeSpan) {
        let [(start, count), ..] = &mut self.slices;
        if *count == 0 || now.since(*start) >= rcv_rtt / SLICES {
            self.slices.rotate_right(1);
            let [newest, ..] = &mut self.slices;
            *newest = (now, segments);
        } else {
            *count = count.saturating_add(segments);
        }
    }

    /// Packets that have arrived within the last `rcv_rtt`.
    pub fn segments(&self, now: Time, rcv_rtt: TimeSpan) -> u32 {
        let recent = (self.slices.iter()).take_while(|(start, _)| now.since(*start) < rcv_rtt);
        recent.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// A packet was lost or sent again: from here on, the sender has another window.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(milliseconds: u64) -> TimeSpan {
        TimeSpan::from_milliseconds(milliseconds)
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + ms(milliseconds)
    }

    proptest! {
        #[test]
        fn they_are_those_of_the_last_round_trip(
            gaps in prop::collection::vec((0_u64..40, 1_u32..4), 1..200),
            rcv_rtt in 1_u64..300,
            growth in 1_u64..3,
        ) {
            let mut recent = RecentArrivals::default();
            let mut arrivals = Vec::new();
            let mut now = 0;
            for (gap, segments) in gaps {
                now += gap;
                recent.handle_arrival(at(now), segments, ms(rcv_rtt));
                arrivals.push((now, segments));
                let span = rcv_rtt * growth;
                let since = |span: u64| -> u32 {
                    let within = arrivals.iter().filter(|(then, _)| now - then < span);
                    within.map(|(_, segments)| segments).sum()
                };
                let counted = recent.segments(at(now), ms(span));
                prop_assert!(counted <= since(span), "{counted} of {}", since(span));
                let less = since(span - rcv_rtt.div_ceil(SLICES));
                prop_assert!(counted >= less, "{counted}, and {less} for certain");
            }
        }
    }

    #[test]
    fn nothing_is_left_after_a_loss() {
        let mut recent = RecentArrivals::default();
        recent.handle_arrival(at(1), 9, ms(100));
        assert_eq!(recent.segments(at(2), ms(100)), 9);
        recent.forget();
        assert_eq!(recent.segments(at(2), ms(100)), 0);
        recent.handle_arrival(at(3), 2, ms(100));
        assert_eq!(recent.segments(at(3), ms(100)), 2);
    }
}
