//! ACC: ACKs under congestion control (Balakrishnan et al. 1997 §4.3; Tam §2.2; RFC 3449 §5.2.2).
//!
//! The upstream router marks ACKs when its queue grows, the sender echoes the mark in its data, and
//! the receiver then sends fewer ACKs. Simulated only: it needs a router that marks pure ACKs, and
//! a sender with an echo that no standard defines.

use midspan_units::{Time, TimeSpan};

use super::{HeldAck, MIN_ACK_PER_WIN};
use crate::{AckEstimate, AckPolicy, AckSample, AckVerdict, RoundTrip};

/// ACK congestion control: the delayed-ACK factor *d* doubles after a round trip with a mark, and
/// shrinks by one after a round trip without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckCongestionControl {
    max_packets_per_ack: u32,
    time_out: TimeSpan,
    /// *d*: segments for each ACK.
    factor: u32,
    round_trip: Option<TimeSpan>,
    /// When the present round trip began.
    since: Time,
    marked: bool,
    /// Segments that arrived in this round trip and in the previous one: an estimate of the window.
    arrived: [u32; 2],
    held: HeldAck,
}

impl AckCongestionControl {
    /// An ACK covers at most `max_packets_per_ack` packets (0 counts as 1). An ACK is held
    /// for at most `time_out`.
    #[must_use]
    pub fn new(max_packets_per_ack: u32, time_out: TimeSpan) -> Self {
        Self {
            max_packets_per_ack: max_packets_per_ack.max(1),
            time_out,
            factor: 1,
            round_trip: None,
            since: Time::ZERO,
            marked: false,
            arrived: [0; 2],
            held: HeldAck::default(),
        }
    }

    /// A data segment with the echo of an ACK's mark has arrived.
    pub const fn handle_mark(&mut self) {
        self.marked = true;
    }

    /// The largest number of segments for one ACK. The sender must get at least three ACKs
    /// (`MIN_ACK_PER_WIN`) for each window; the window is estimated from the arrivals.
    fn most(&self) -> u32 {
        let window = self.arrived.into_iter().max().unwrap_or(0);
        (window / MIN_ACK_PER_WIN).clamp(1, self.max_packets_per_ack)
    }

    /// A round trip has ended.
    fn adapt(&mut self, now: Time) {
        self.factor = if self.marked {
            self.factor.saturating_mul(2)
        } else {
            self.factor.saturating_sub(1)
        };
        self.arrived = [0, self.arrived[0]];
        self.factor = self.factor.clamp(1, self.max_packets_per_ack);
        self.marked = false;
        self.since = now;
    }
}

impl AckPolicy for AckCongestionControl {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        self.arrived[0] = self.arrived[0].saturating_add(sample.arrived);
        if self
            .round_trip
            .is_some_and(|span| now.since(self.since) >= span)
        {
            self.adapt(now);
        }
        let most = self.most();
        let target = self.factor.min(most);
        self.held.judge(now, sample, target, most, self.time_out)
    }

    fn handle_round_trip(&mut self, now: Time, round_trip: RoundTrip) {
        if self.round_trip.is_none() {
            self.since = now;
        }
        self.round_trip = Some(round_trip.span);
    }

    fn estimate(&self) -> AckEstimate {
        AckEstimate {
            packets_per_ack: self.factor,
            round_trip: self.round_trip,
            ..AckEstimate::default()
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

    /// The number of ACKs that pass between two times, with one segment each millisecond.
    fn passed(policy: &mut AckCongestionControl, from: u64, to: u64) -> usize {
        let one = AckSample {
            newly_covered: 1,
            arrived: 1,
            ..AckSample::default()
        };
        let verdicts = (from..to).map(|time| policy.acknowledge(at(time), &one));
        verdicts
            .filter(|verdict| *verdict == AckVerdict::Pass)
            .count()
    }

    #[test]
    fn marks_double_the_factor_and_their_absence_lowers_it() {
        let mut policy = AckCongestionControl::new(8, TimeSpan::from_seconds(1));
        policy.handle_round_trip(
            at(0),
            RoundTrip {
                source: RoundTripSource::Timestamp,
                span: TimeSpan::from_milliseconds(100),
            },
        );
        assert_eq!(passed(&mut policy, 0, 100), 100);
        let factors: Vec<u32> = (1..6)
            .map(|round| {
                policy.handle_mark();
                passed(&mut policy, 100 * round, 100 * (round + 1));
                policy.estimate().packets_per_ack
            })
            .collect();
        assert_eq!(factors, [2, 4, 8, 8, 8]);
        let factors: Vec<u32> = (6..14)
            .map(|round| {
                passed(&mut policy, 100 * round, 100 * (round + 1));
                policy.estimate().packets_per_ack
            })
            .collect();
        assert_eq!(factors, [7, 6, 5, 4, 3, 2, 1, 1]);
    }

    #[test]
    fn a_small_window_keeps_three_acks() {
        let mut policy = AckCongestionControl::new(8, TimeSpan::from_seconds(1));
        policy.handle_round_trip(
            at(0),
            RoundTrip {
                source: RoundTripSource::Timestamp,
                span: TimeSpan::from_milliseconds(6),
            },
        );
        for round in 1..40 {
            policy.handle_mark();
            let acks = passed(&mut policy, 6 * round, 6 * (round + 1));
            assert!(acks >= 3, "{acks} in round {round}");
        }
    }
}
