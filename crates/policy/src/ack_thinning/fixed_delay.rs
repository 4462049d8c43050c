//! Delayed ACKs: one for every n-th segment, whatever the window (FDA(n); with n = 2, RFC 1122).

use midspan_units::{Time, TimeSpan};

use super::HeldAck;
use crate::{AckEstimate, AckPolicy, AckSample, AckVerdict};

/// FDA(n): fixed delay acknowledgment for n packets, or until the ACK time-out (Tam §4.1).
///
/// It slows down a sender whose window is below n: each ACK then waits for its time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedDelay {
    packets_per_ack: u32,
    time_out: TimeSpan,
    held: HeldAck,
}

impl FixedDelay {
    /// The default time-out: 200 ms, that of BSD's delayed ACK; RFC 1122 §4.2.3.2 allows up to 500
    /// ms.
    pub const TIME_OUT: TimeSpan = TimeSpan::from_milliseconds(200);

    /// One ACK for `packets_per_ack` segments (a zero counts as one), or after `time_out`.
    #[must_use]
    pub fn new(packets_per_ack: u32, time_out: TimeSpan) -> Self {
        Self {
            packets_per_ack: packets_per_ack.max(1),
            time_out,
            held: HeldAck::default(),
        }
    }

    /// The delayed ACK of RFC 1122 §4.2.3.2 and RFC 5681 §4.2: at least every second segment.
    #[must_use]
    pub fn standard(time_out: TimeSpan) -> Self {
        Self::new(2, time_out)
    }
}

impl AckPolicy for FixedDelay {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        self.held
            .judge(now, sample, self.packets_per_ack, u32::MAX, self.time_out)
    }

    fn estimate(&self) -> AckEstimate {
        AckEstimate {
            packets_per_ack: self.packets_per_ack,
            ..AckEstimate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    const ONE: AckSample = AckSample {
        number: 0,
        newly_covered: 1,
        arrived: 1,
        duplicate: false,
        selective: false,
        selection_grows: false,
        fills_gap: false,
        window_update: false,
        congestion_echo: false,
        other: false,
    };

    #[test]
    fn every_second_segment_and_a_lone_one_after_the_time_out() {
        let mut delayed = FixedDelay::standard(FixedDelay::TIME_OUT);
        let hold = AckVerdict::HoldUntil;
        assert_eq!(delayed.acknowledge(at(0), &ONE), hold(at(200)));
        assert_eq!(delayed.acknowledge(at(1), &ONE), AckVerdict::Pass);
        assert_eq!(delayed.acknowledge(at(2), &ONE), hold(at(202)));
        // The ACK left at 202 ms; the next hold starts at zero.
        assert_eq!(delayed.acknowledge(at(300), &ONE), hold(at(500)));
    }

    #[test]
    fn out_of_order_data_is_acknowledged_at_once_and_the_count_begins_anew() {
        let mut four = FixedDelay::new(4, FixedDelay::TIME_OUT);
        let duplicate = AckSample {
            newly_covered: 0,
            duplicate: true,
            ..ONE
        };
        let fills = AckSample {
            newly_covered: 3,
            fills_gap: true,
            ..ONE
        };
        assert_eq!(
            four.acknowledge(at(0), &ONE),
            AckVerdict::HoldUntil(at(200))
        );
        for sample in [duplicate, duplicate, duplicate, fills] {
            assert_eq!(four.acknowledge(at(1), &sample), AckVerdict::PassAfterHeld);
        }
        for step in 0..3 {
            let verdict = four.acknowledge(at(2 + step), &ONE);
            assert_eq!(verdict, AckVerdict::HoldUntil(at(202)));
        }
        assert_eq!(four.acknowledge(at(6), &ONE), AckVerdict::Pass);
    }
}
