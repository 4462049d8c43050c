//! Recovery by selective acknowledgements (RFC 6675).

use midspan_units::Time;

use super::{DUPLICATE_THRESHOLD, Sender};
use crate::packet::{Acknowledgement, Data};
use crate::tcp::ranges::{Range, Ranges};

/// The data beyond the first gap that the receiver has, and which of the rest was sent again.
#[derive(Debug, Clone, Default)]
pub(super) struct Scoreboard {
    sacked: Ranges,
    /// `HighRxt`: the end of the data that was retransmitted in this recovery.
    resent: u64,
    /// `RescueRxt`: the rescue retransmission was used in this recovery.
    rescued: bool,
    /// `pipe`: the estimated number of bytes in flight.
    pipe: u64,
}

impl Scoreboard {
    /// Bytes that have arrived behind a gap.
    pub(super) fn arrived(&self) -> u64 {
        self.sacked
            .as_slice()
            .iter()
            .map(|range| range.length())
            .sum()
    }

    /// Adds the blocks of an ACK. Returns whether they contain new information.
    pub(super) fn update(&mut self, unacknowledged: u64, ack: &Acknowledgement) -> bool {
        let mut news = false;
        for block in ack.blocks.as_slice() {
            let start = (ack.number + u64::from(block.start)).max(unacknowledged);
            news |= self.sacked.insert(start, ack.number + u64::from(block.end));
        }
        news
    }

    /// The parts from `start` to `end` that are not known to have arrived.
    pub(super) fn missing_in(&self, start: u64, end: u64) -> Vec<Range> {
        let mut missing = Vec::new();
        let mut from = self.skip(start);
        while from < end {
            let to = self.next_start(from).unwrap_or(end).min(end);
            missing.push(Range {
                start: from,
                end: to,
            });
            from = self.skip(to);
        }
        missing
    }

    /// Adds a block. Returns whether it has new information.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        self.sacked.insert(start, end)
    }

    /// The range that contains `piece`, which has arrived.
    pub(super) fn range_of(&self, piece: Range) -> Range {
        self.sacked.find(piece.start).unwrap_or(piece)
    }

    pub(super) fn remove_below(&mut self, number: u64) {
        if !self.sacked.is_empty() {
            self.sacked.remove_below(number);
        }
    }

    /// The first number from `sequence` on that the receiver does not have.
    pub(super) fn skip(&self, sequence: u64) -> u64 {
        self.sacked
            .find(sequence)
            .map_or(sequence, |range| range.end)
    }

    /// The start of the next range after `sequence` that the receiver has.
    pub(super) fn next_start(&self, sequence: u64) -> Option<u64> {
        let ranges = self.sacked.as_slice();
        let after = ranges.partition_point(|range| range.start <= sequence);
        ranges.get(after).map(|range| range.start)
    }

    /// Number of bytes before `sequence` that the receiver has.
    pub(super) fn held_below(&self, sequence: u64) -> u64 {
        let ranges = self.sacked.as_slice().iter();
        ranges
            .map(|range| range.end.min(sequence).saturating_sub(range.start))
            .sum()
    }

    /// `IsLost`: gaps below this number are lost, because enough has arrived above them: three
    /// ranges, or more than two segments.
    pub(super) fn lost_below(&self, segment: u64) -> u64 {
        let mut bytes = 0;
        for (count, range) in (1..).zip(self.sacked.as_slice().iter().rev()) {
            bytes += range.length();
            if count >= DUPLICATE_THRESHOLD || bytes > u64::from(DUPLICATE_THRESHOLD - 1) * segment
            {
                return range.start;
            }
        }
        0
    }

    /// The gaps from `unacknowledged` to `highest`, including the one above everything that has
    /// arrived.
    fn gaps(&self, unacknowledged: u64, highest: u64) -> impl Iterator<Item = Range> + '_ {
        let ranges = self.sacked.as_slice();
        let starts = std::iter::once(unacknowledged).chain(ranges.iter().map(|range| range.end));
        let ends = ranges
            .iter()
            .map(|range| range.start)
            .chain(std::iter::once(highest));
        starts
            .zip(ends)
            .filter(|(start, end)| start < end)
            .map(|(start, end)| Range { start, end })
    }

    /// The end of the data that was retransmitted in this recovery.
    pub(super) const fn resent_below(&self) -> u64 {
        self.resent
    }

    /// `SetPipe`.
    fn set_pipe(&mut self, unacknowledged: u64, highest: u64, segment: u64) {
        let lost_below = self.lost_below(segment);
        self.pipe = self
            .gaps(unacknowledged, highest)
            .map(|gap| {
                let resent = self.resent.clamp(gap.start, gap.end) - gap.start;
                let under_way = if gap.start >= lost_below {
                    gap.length()
                } else {
                    0
                };
                under_way + resent
            })
            .sum();
    }

    /// The first gap that begins below `limit`, not counting data that was retransmitted already.
    fn gap_to_resend(&self, unacknowledged: u64, highest: u64, limit: u64) -> Option<Range> {
        let limit = limit.min(self.sacked.highest()?);
        self.gaps(unacknowledged, highest)
            .map(|gap| Range {
                start: gap.start.max(self.resent),
                end: gap.end,
            })
            .find(|gap| gap.start < gap.end)
            .filter(|gap| gap.start < limit)
    }

    pub(super) fn check_invariants(&self, unacknowledged: u64, highest: u64) {
        self.sacked.check_invariants();
        debug_assert!(self.sacked.highest().is_none_or(|end| end <= highest));
        debug_assert!(
            self.sacked
                .as_slice()
                .first()
                .is_none_or(|range| range.start >= unacknowledged)
        );
    }
}

impl Sender {
    /// §5: an ACK with SACK information about more data.
    pub(super) fn sack_duplicate(&mut self, now: Time) {
        if self.recovering {
            self.set_pipe();
            return;
        }
        let segment = self.segment_size();
        let lost = self.duplicates >= DUPLICATE_THRESHOLD
            || self.scoreboard.lost_below(segment) > self.unacknowledged;
        if !lost || !self.may_retransmit_fast() {
            return;
        }
        self.enter_fast_retransmit();
        self.cwnd = self.ssthresh;
        self.recovering = true;
        self.scoreboard.rescued = false;
        // Step 4.3: the first gap is retransmitted whatever `pipe` is.
        self.resend = Some(self.unacknowledged);
        let first_end = self
            .scoreboard
            .next_start(self.unacknowledged)
            .unwrap_or(self.highest);
        self.scoreboard.resent = first_end.min(self.unacknowledged + segment);
        self.set_pipe();
        self.restart_timer(now);
    }

    /// A new ACK in recovery. Returns whether the timer restarts.
    pub(super) fn sack_advance(&mut self) -> bool {
        self.scoreboard.remove_below(self.unacknowledged);
        if self
            .recover
            .is_none_or(|recover| self.unacknowledged >= recover)
        {
            self.end_recovery();
        } else {
            self.set_pipe();
        }
        true
    }

    fn set_pipe(&mut self) {
        let segment = self.segment_size();
        self.scoreboard
            .set_pipe(self.unacknowledged, self.highest, segment);
    }

    /// `NextSeg`, while `pipe` leaves room in cwnd.
    pub(super) fn next_in_sack_recovery(&mut self, now: Time) -> Option<Data> {
        let segment = self.segment_size();
        if self.scoreboard.pipe + segment > self.cwnd {
            return None;
        }
        let (low, high) = (self.unacknowledged, self.highest);
        let lost_below = self.scoreboard.lost_below(segment);
        // Rule 1: lost data.
        if let Some(gap) = self.scoreboard.gap_to_resend(low, high, lost_below) {
            return Some(self.resend_gap(now, gap));
        }
        // Rule 2: data that was never sent.
        let limit = self.unacknowledged.saturating_add(self.flight_limit);
        let length = self.sendable(limit);
        if length > 0 {
            let sequence = self.next;
            self.next += length;
            self.scoreboard.pipe += length;
            return Some(self.send(now, sequence, length));
        }
        // Rule 3: data that may be lost.
        if let Some(gap) = self.scoreboard.gap_to_resend(low, high, u64::MAX) {
            return Some(self.resend_gap(now, gap));
        }
        // Rule 4: once, the end of the data that was sent before recovery, in case it was lost.
        self.rescue(now)
    }

    fn resend_gap(&mut self, now: Time, gap: Range) -> Data {
        let length = gap.length().min(self.segment_size());
        self.scoreboard.resent = gap.start + length;
        self.scoreboard.pipe += length;
        self.send(now, gap.start, length)
    }

    fn rescue(&mut self, now: Time) -> Option<Data> {
        let last = self
            .scoreboard
            .gaps(self.unacknowledged, self.highest)
            .last()?;
        let start = last.end.saturating_sub(self.segment_size()).max(last.start);
        if self.scoreboard.rescued || start < self.scoreboard.resent {
            return None;
        }
        self.scoreboard.rescued = true;
        self.scoreboard.pipe += last.end - start;
        Some(self.send(now, start, last.end - start))
    }
}
