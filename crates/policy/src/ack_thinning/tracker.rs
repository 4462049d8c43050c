//! Derives what thinning needs about each ACK from the headers of successive ACKs of a flow.

use super::receiver_round_trip::is_before;
use super::reported::ReportedBlocks;
use super::sack_blocks::SackBlocks;
use super::selection_growth;
use crate::AckSample;

/// Number of duplicate ACKs after which the sender is assumed to retransmit (RFC 5681 §3.2, RFC
/// 6675 §2: `DupThresh`).
const DUPLICATES: u32 = 3;

/// The fields of an acknowledging packet's header that thinning needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckHeader {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub number: u32,
    /// Window as in the header, not scaled.
    pub window: u16,
    /// The bits AE, CWR and ECE (RFC 9768 §3.1.1: AE is the highest of the three).
    pub ecn: u8,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// `TSval` (RFC 7323).
    pub timestamp: Option<u32>,
    /// Whether the packet is a pure ACK: no data, no flag except ACK (and the ECN flags), and no
    /// option except those that a later ACK repeats or that may be missed without harm.
    pub plain: bool,
}

/// Compares each ACK of a flow with the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckTracker {
    before: Option<AckHeader>,
    /// What the ACKs that have left have reported.
    reported: ReportedBlocks,
    /// Segments that duplicates announced since the number last advanced; the next advance will
    /// cover them.
    duplicates: u32,
    /// Number of those duplicates.
    repeats: u32,
}

impl AckTracker {
    /// The next ACK of the flow. The sender's segments carry `segment_size` bytes of data (a zero
    /// counts as one).
    ///
    /// The first ACK that is seen, and one whose number goes back, are urgent, because there is
    /// nothing to compare them with.
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
        // Another sequence number: the receiver's own data was sent between the two.
        sample.other |= header.sequence != before.sequence;
        if header.number == before.number {
            // The previous ACK reported a gap and may be held; this ACK must not replace it.
            sample.other |= before.sack.count > 0 && !selective;
            sample.window_update = header.window != before.window;
            sample.duplicate = !sample.window_update && header.sequence == before.sequence;
            if sample.duplicate || selective {
                let (sack, number) = (&header.sack, header.number);
                let growth = growth(sack, &before.sack, &self.reported, number);
                sample.selection_grows =
                    sample.duplicate && growth.is_some() && self.repeats >= DUPLICATES;
                // A kernel may have left some ACKs out.
                let segments = growth.unwrap_or(0).div_ceil(segment_size.max(1).into());
                sample.arrived = u32::try_from(segments).unwrap_or(u32::MAX).max(1);
                self.duplicates = self.duplicates.saturating_add(sample.arrived);
                self.repeats = self.repeats.saturating_add(1);
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
        (self.duplicates, self.repeats) = (0, 0);
        sample
    }

    /// An ACK has left: at once, or after it was held. Its SACK blocks reach the sender, so a later ACK that has
    /// no room for them may replace one that has.
    pub fn handle_sent(&mut self, header: &AckHeader) {
        self.reported.handle_sent(header.number, &header.sack);
    }
}

/// Bytes that the blocks of an ACK cover in addition to those of the ACK before, both with the same acknowledged number,
/// and to those that have reached the sender; see [`selection_growth`].
fn growth(
    now: &SackBlocks,
    before: &SackBlocks,
    reported: &ReportedBlocks,
    number: u32,
) -> Option<u64> {
    let (now, count) = now.offsets(number);
    let (before, before_count) = before.offsets(number);
    let is_behind = |(start, end): &(u64, u64)| (*start).max(*end) < 1 << 31;
    let now = now.get(..count).filter(|now| now.iter().all(is_behind))?;
    selection_growth(before.get(..before_count)?, &reported.offsets(number), now)
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

    fn selective(number: u32, blocks: &[(u32, u32)]) -> AckHeader {
        let mut header = ack(number);
        for (place, block) in header.sack.edges.iter_mut().zip(blocks) {
            *place = *block;
            header.sack.count += 1;
        }
        header
    }

    #[test]
    fn selections_grow_from_the_fourth_duplicate_on() {
        // The numbers wrap around.
        let base = u32::MAX - 1499;
        let mut flow = tracker(base);
        let mut next = |blocks: &[(u32, u32)]| {
            let edges: Vec<_> = (blocks.iter())
                .map(|(start, end)| (base.wrapping_add(*start), base.wrapping_add(*end)))
                .collect();
            let sample = flow.handle_ack(&selective(base, &edges), 1000);
            assert!(sample.is_urgent() && sample.duplicate);
            (sample.selection_grows, sample.arrived)
        };
        assert_eq!(next(&[(1000, 2000)]), (false, 1));
        assert_eq!(next(&[(1000, 3000)]), (false, 1));
        assert_eq!(next(&[(1000, 4000)]), (false, 1));
        assert_eq!(next(&[(1000, 5000)]), (true, 1));
        // A kernel that left two ACKs out.
        assert_eq!(next(&[(1000, 8000)]), (true, 3));
        // A second gap; then the same blocks again, which report a segment that came twice.
        assert_eq!(next(&[(9000, 10_000), (1000, 8000)]), (true, 1));
        assert_eq!(next(&[(9000, 10_000), (1000, 8000)]), (false, 1));
        // RFC 2883: the first block is a segment that came twice, here below the number.
        let twice = 0_u32.wrapping_sub(1000);
        assert_eq!(
            next(&[(twice, 0), (9000, 11_000), (1000, 8000)]),
            (false, 1)
        );
        // All of them were counted: 1 + 1 + 1 + 1 + 3 + 1 + 1 + 1.
        let filled = flow.handle_ack(&ack(base.wrapping_add(11_000)), 1000);
        assert_eq!((filled.arrived, filled.selection_grows), (1, false));
        assert!(filled.fills_gap);
        // The counts start at zero again.
        let number = base.wrapping_add(11_000);
        let edge = |offset| number.wrapping_add(offset);
        let first = selective(number, &[(edge(1000), edge(2000))]);
        assert!(!flow.handle_ack(&first, 1000).selection_grows);
    }

    #[test]
    fn an_ack_without_room_for_a_block_that_has_left_reports_more() {
        let mut flow = tracker(0);
        let mut next = |blocks: &[(u32, u32)], leaves: bool| {
            let header = selective(0, blocks);
            let sample = flow.handle_ack(&header, 1000);
            if leaves {
                flow.handle_sent(&header);
            }
            (sample.selection_grows, sample.arrived)
        };
        let [one, two, three, four] = [1, 3, 5, 7].map(|at| (1000 * at, 1000 * at + 1000));
        for end in [2000, 3000, 4000] {
            next(&[(1000, end)], false);
        }
        next(&[one], false);
        assert_eq!(next(&[two, one], false), (true, 1));
        assert_eq!(next(&[three, two, one], true), (true, 1));
        // The first block has left.
        assert_eq!(next(&[four, three, two], false), (true, 1));
        // The fourth one has not.
        let five = (9000, 10_000);
        assert_eq!(next(&[five, three, two], false), (false, 1));
    }

    #[test]
    fn without_blocks_nothing_grows() {
        let mut flow = tracker(0);
        for _ in 0..9 {
            assert!(!flow.handle_ack(&ack(0), 1000).selection_grows);
        }
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
        // An ACK without the blocks of the previous one does not contain all its information.
        flow.handle_ack(&selective(0, &[(1000, 2000)]), 1000);
        let update = flow.handle_ack(
            &AckHeader {
                window: 501,
                ..ack(0)
            },
            1000,
        );
        assert!(update.window_update && !update.is_window_update_alone());
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
