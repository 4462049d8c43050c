//! Window prediction: the receiver runs a copy of the sender's congestion control (Calveras et al.
//! 1998; Tam §2.1).
//!
//! Simulated only. The prediction becomes wrong when an ACK is lost, while the sender's ssthresh is
//! unknown, or when the sender has nothing to send; and an error is never corrected (Tam §2.1 names
//! these).

use midspan_units::{Time, TimeSpan};

use super::{HeldAck, MIN_ACK_PER_WIN, packets_per_ack};
use crate::{AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip};

/// Number of duplicate ACKs after which the sender is assumed to retransmit.
const DUPLICATES: u32 = 3;
/// cwnd is counted in this fraction of a segment.
const PARTS: u64 = 1 << 16;

/// Predicts the sender's cwnd, and derives ppa from it as [`ExplicitWindow`](super::ExplicitWindow)
/// does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowPrediction {
    max_packets_per_ack: u32,
    time_out: TimeSpan,
    /// Upper limit of cwnd in segments: the receiver's own window.
    limit: u32,
    /// cwnd in units of 1/`PARTS` segment.
    window: u64,
    /// ssthresh in units of 1/`PARTS` segment.
    threshold: u64,
    duplicates: u32,
    last_arrival: Option<Time>,
    round_trip: Option<TimeSpan>,
    held: HeldAck,
}

impl WindowPrediction {
    /// A sender that starts with `initial_window` segments and never has more than `limit` in
    /// flight; the other parameters are those of
    /// [`ExplicitWindow::new`](super::ExplicitWindow::new).
    #[must_use]
    pub fn new(
        initial_window: u32,
        limit: u32,
        max_packets_per_ack: u32,
        time_out: TimeSpan,
    ) -> Self {
        Self {
            max_packets_per_ack,
            time_out,
            limit: limit.max(1),
            window: u64::from(initial_window.max(1)) * PARTS,
            threshold: u64::MAX,
            duplicates: 0,
            last_arrival: None,
            round_trip: None,
            held: HeldAck::default(),
        }
    }

    fn segments(&self) -> u32 {
        u32::try_from(self.window / PARTS)
            .unwrap_or(u32::MAX)
            .clamp(1, self.limit)
    }

    fn ppa(&self) -> u32 {
        packets_per_ack(self.segments(), MIN_ACK_PER_WIN, self.max_packets_per_ack)
    }

    /// An ACK of new data leaves: the sender's cwnd grows as in RFC 5681.
    fn grow(&mut self) {
        self.window += if self.window < self.threshold {
            PARTS
        } else {
            (PARTS * PARTS / self.window).max(1)
        };
        self.window = self.window.min(u64::from(self.limit) * PARTS);
    }

    /// The sender has met a loss: ssthresh is half of its window, and cwnd continues from `to`, or
    /// from ssthresh.
    fn shrink(&mut self, to: Option<u64>) {
        self.threshold = (self.window / 2).max(2 * PARTS);
        self.window = to.unwrap_or(self.threshold);
    }

    fn handle_arrival(&mut self, now: Time) {
        let silence = self.last_arrival.replace(now).map(|last| now.since(last));
        // As in Tam §3.2 (4) for est_cwnd: no sender waits so long by itself.
        let rto = self.round_trip.map(|span| span + span / 5);
        if rto.is_some_and(|rto| silence.is_some_and(|silence| silence > rto)) {
            self.shrink(Some(PARTS));
        }
    }
}

impl AckPolicy for WindowPrediction {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        if sample.arrived > 0 {
            self.handle_arrival(now);
        }
        if sample.duplicate {
            self.duplicates = self.duplicates.saturating_add(1);
            if self.duplicates == DUPLICATES {
                self.shrink(None);
            }
        } else if sample.newly_covered > 0 {
            self.duplicates = 0;
        }
        let most = (self.segments() / MIN_ACK_PER_WIN).max(1);
        let verdict = self
            .held
            .judge(now, sample, self.ppa(), most, self.time_out);
        if verdict != AckVerdict::Pass && !matches!(verdict, AckVerdict::PassAfterHeld) {
            return verdict;
        }
        if sample.newly_covered > 0 {
            self.grow();
        }
        verdict
    }

    fn handle_round_trip(&mut self, _now: Time, round_trip: RoundTrip) {
        self.round_trip = Some(round_trip.span);
    }

    fn estimate(&self) -> AckEstimate {
        AckEstimate {
            congestion_window: self.segments(),
            packets_per_ack: self.ppa(),
            round_trip: self.round_trip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RoundTripSource;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn policy() -> WindowPrediction {
        WindowPrediction::new(1, 20, 5, TimeSpan::from_milliseconds(100))
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
    fn each_ack_in_slow_start_is_a_segment_more() {
        let mut policy = policy();
        for window in 2..=6 {
            assert_eq!(policy.acknowledge(at(0), &ONE), AckVerdict::Pass);
            assert_eq!(policy.estimate().congestion_window, window);
        }
        // From 6 on, an ACK waits for two segments.
        assert_eq!(policy.estimate().packets_per_ack, 2);
        assert!(matches!(
            policy.acknowledge(at(0), &ONE),
            AckVerdict::HoldUntil(_)
        ));
        assert_eq!(policy.acknowledge(at(0), &ONE), AckVerdict::Pass);
        assert_eq!(policy.estimate().congestion_window, 7);
        for _ in 0..1000 {
            policy.acknowledge(at(0), &ONE);
        }
        assert_eq!(policy.estimate().congestion_window, 20);
    }

    #[test]
    fn three_duplicates_halve_the_window_and_silence_ends_it() {
        let mut policy = policy();
        policy.handle_round_trip(
            at(0),
            RoundTrip {
                source: RoundTripSource::Timestamp,
                span: TimeSpan::from_milliseconds(100),
            },
        );
        for _ in 0..1000 {
            policy.acknowledge(at(0), &ONE);
        }
        let duplicate = AckSample {
            duplicate: true,
            newly_covered: 0,
            ..ONE
        };
        for _ in 0..3 {
            policy.acknowledge(at(1), &duplicate);
        }
        assert_eq!(policy.estimate().congestion_window, 10);
        // 1.2 round trips without data.
        policy.acknowledge(at(122), &ONE);
        assert_eq!(policy.estimate().congestion_window, 2);
        assert_eq!(policy.estimate().packets_per_ack, 1);
    }
}
