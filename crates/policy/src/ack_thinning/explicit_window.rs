//! ECWA: the sender sends its congestion window in a TCP option (Balakrishnan et al. 1997; Tam
//! §2.1, §4.1).
//!
//! Simulated only: no TCP sends such an option.

use midspan_units::{Time, TimeSpan};

use super::{HeldAck, MIN_ACK_PER_WIN, packets_per_ack};
use crate::{AckEstimate, AckPolicy, AckSample, AckVerdict};

/// Explicit Congestion Window Acknowledgment: ppa = cwnd / `min_ack_per_win`, with the cwnd that
/// the sender reported last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExplicitWindow {
    /// cwnd in segments; 1 until the sender reports it.
    window: u32,
    max_packets_per_ack: u32,
    time_out: TimeSpan,
    held: HeldAck,
}

impl ExplicitWindow {
    /// At most `max_packets_per_ack` packets for each ACK (a zero counts as one). An ACK is held
    /// for at most `time_out`.
    #[must_use]
    pub fn new(max_packets_per_ack: u32, time_out: TimeSpan) -> Self {
        Self {
            window: 1,
            max_packets_per_ack,
            time_out,
            held: HeldAck::default(),
        }
    }

    /// A data segment reports a cwnd of `segments` segments.
    pub const fn handle_window(&mut self, segments: u32) {
        self.window = segments;
    }

    fn ppa(&self) -> u32 {
        packets_per_ack(self.window, MIN_ACK_PER_WIN, self.max_packets_per_ack)
    }
}

impl AckPolicy for ExplicitWindow {
    fn acknowledge(&mut self, now: Time, sample: &AckSample) -> AckVerdict {
        let most = (self.window / MIN_ACK_PER_WIN).max(1);
        self.held
            .judge(now, sample, self.ppa(), most, self.time_out)
    }

    fn estimate(&self) -> AckEstimate {
        AckEstimate {
            congestion_window: self.window,
            packets_per_ack: self.ppa(),
            ..AckEstimate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_reported_window_waits_for_its_ack() {
        let mut policy = ExplicitWindow::new(5, TimeSpan::from_milliseconds(100));
        let one = AckSample {
            newly_covered: 1,
            arrived: 1,
            ..AckSample::default()
        };
        let passed = |policy: &mut ExplicitWindow| {
            let verdicts = (0..10).map(|_| policy.acknowledge(Time::ZERO, &one));
            verdicts
                .filter(|verdict| *verdict == AckVerdict::Pass)
                .count()
        };
        assert_eq!(passed(&mut policy), 10);
        policy.handle_window(6);
        assert_eq!(passed(&mut policy), 5);
        policy.handle_window(20);
        assert_eq!(policy.estimate().packets_per_ack, 5);
        assert_eq!(passed(&mut policy), 2);
        // The sender starts again.
        policy.handle_window(1);
        assert_eq!(passed(&mut policy), 10);
    }
}
