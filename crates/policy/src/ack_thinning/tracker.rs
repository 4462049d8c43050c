//! From the headers of successive ACKs of a flow to what thinning must know of each.

use super::receiver_round_trip::is_before;
use crate::AckSample;

/// Up to four SACK blocks (RFC 2018 §3), as many as fit into a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    /// Left and right edge of each; only the first [`count`](Self::count) mean something.
    pub edges: [(u32, u32); 4],
    /// How many there are.
    pub count: u8,
}

/// What the header of a packet that acknowledges says, as far as thinning needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckHeader {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub number: u32,
    /// Window as it stands in the header, not scaled.
    pub window: u16,
    /// The bits AE, CWR and ECE (RFC 9768 §3.1.1: AE is the highest of the three).
    pub ecn: u8,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// `TSval` (RFC 7323).
    pub timestamp: Option<u32>,
    /// It is an ACK and nothing more: no data, no flag but ACK (and those of ECN), no option but
    /// those that a later ACK repeats or that mean nothing when missed.
    pub plain: bool,
}

/// Compares each ACK of a flow with the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckTracker {
    before: Option<AckHeader>,
    /// Duplicates since the number last advanced; they told of segments that the next advance
    /// will cover.
    duplicates: u32,
}

impl AckTracker {
    /// The next ACK of the flow, where the sender's segments carry `segment_size` bytes of data
    /// (a zero counts as one).
    ///
    /// The first ACK that is seen, and one whose number goes back, are urgent: nothing is known
    /// of what they say.
    pub fn handle_ack(&mut self, header: &AckHeader, segment_size: u32) -> AckSample {
        let before = self.before.replace(*header);
        let selective = header.sack.count > 0;
        let mut sample = AckSample {
            number: header.number,
            selective,
            other: !header.plain,
            ..AckSample::default()
        };
        let Some(before) = before else {
            sample.other = true;
            return sample;
        };
        sample.congestion_echo = header.ecn != before.ecn;
        // Another sequence number: own data lies between the two.
        sample.other |= header.sequence != before.sequence;
        if header.number == before.number {
            sample.window_update = header.window != before.window;
            sample.duplicate = !sample.window_update && header.sequence == before.sequence;
            if sample.duplicate || selective {
                self.duplicates = self.duplicates.saturating_add(1);
                sample.arrived = 1;
            }
            return sample;
        }
        if is_before(header.number, before.number) {
            self.before = Some(before);
            sample.other = true;
            return sample;
        }
        let bytes = header.number.wrapping_sub(before.number);
        sample.newly_covered = bytes.div_ceil(segment_size.max(1));
        sample.arrived = sample.newly_covered.saturating_sub(self.duplicates).max(1);
        sample.fills_gap = self.duplicates > 0 || before.sack.count > 0;
        self.duplicates = 0;
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(number: u32) -> AckHeader {
        AckHeader {
            number,
            window: 500,
            plain: true,
            ..AckHeader::default()
        }
    }

    fn tracker(number: u32) -> AckTracker {
        let mut tracker = AckTracker::default();
        assert!(tracker.handle_ack(&ack(number), 1000).is_urgent());
        tracker
    }

    #[test]
    fn an_advance_is_counted_in_segments_across_the_wrap() {
        let mut flow = tracker(u32::MAX - 499);
        let sample = flow.handle_ack(&ack(1500), 1000);
        assert_eq!((sample.newly_covered, sample.arrived), (2, 2));
        assert!(!sample.is_urgent());
        assert_eq!(flow.handle_ack(&ack(1501), 1000).newly_covered, 1);
    }

    #[test]
    fn duplicates_count_as_arrivals_and_not_again_when_the_gap_is_filled() {
        let mut flow = tracker(0);
        for _ in 0..3 {
            let sample = flow.handle_ack(&ack(0), 1000);
            assert!(sample.duplicate && !sample.window_update);
            assert_eq!((sample.newly_covered, sample.arrived), (0, 1));
        }
        let filled = flow.handle_ack(&ack(4000), 1000);
        assert_eq!((filled.newly_covered, filled.arrived), (4, 1));
        assert!(filled.fills_gap);
        assert!(!flow.handle_ack(&ack(5000), 1000).fills_gap);
    }

    #[test]
    fn a_window_update_is_no_duplicate() {
        let mut flow = tracker(0);
        let update = flow.handle_ack(
            &AckHeader {
                window: 501,
                ..ack(0)
            },
            1000,
        );
        assert!(update.is_window_update_alone());
        assert_eq!(update.arrived, 0);
    }

    #[test]
    fn what_is_not_plain_or_not_expected_is_urgent() {
        let mut flow = tracker(1000);
        let mut urgent = |header: AckHeader| flow.handle_ack(&header, 1000).is_urgent();
        assert!(!urgent(ack(2000)));
        assert!(urgent(AckHeader {
            plain: false,
            ..ack(3000)
        }));
        assert!(urgent(AckHeader {
            ecn: 1,
            ..ack(4000)
        }));
        assert!(!urgent(AckHeader {
            ecn: 1,
            ..ack(5000)
        }));
        assert!(urgent(ack(6000)), "ECE is gone again");
        assert!(urgent(ack(1000)), "an old one");
        assert!(!urgent(ack(7000)));
        assert!(urgent(AckHeader {
            sequence: 9,
            ..ack(8000)
        }));
        let sack = SackBlocks {
            count: 1,
            ..SackBlocks::default()
        };
        assert!(urgent(AckHeader {
            sequence: 9,
            sack,
            ..ack(9000)
        }));
    }
}
