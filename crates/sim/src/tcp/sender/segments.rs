//! The segments that were sent and are not acknowledged: which have arrived, which are lost, when
//! each was sent last.
//!
//! Every operation takes amortized logarithmic time in the number of segments.

use std::collections::{BTreeSet, VecDeque};

use midspan_units::Time;

use super::delivery_rate::Snapshot;
use crate::tcp::ranges::Range;

/// A segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The deliveries when it was sent last.
    pub(super) snapshot: Snapshot,
    /// The receiver has it.
    arrived: bool,
    /// It was found lost; if it was sent again since, `resent` is set too.
    lost: bool,
    resent: bool,
    /// It was sent more than once.
    pub(super) was_resent: bool,
}

/// The segments of a connection, in the order of their numbers, without gaps.
#[derive(Debug, Clone, Default)]
pub(super) struct Segments {
    sent: VecDeque<Segment>,
    /// Start of each segment in the order of sending, with the time. Entries are left out of
    /// account if the segment was sent again later, has arrived, or is lost.
    order: VecDeque<(Time, u64)>,
    /// Starts of the segments that are lost and not sent again.
    to_resend: BTreeSet<u64>,
    /// Number of segments that have arrived, that are lost, and that were sent again and are not
    /// lost again.
    arrived: u64,
    lost: u64,
    resent: u64,
    /// Segments that were found lost, in total.
    total_lost: u64,
}

/// A segment that was delivered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) segment: Segment,
    /// It was delivered by an earlier ACK, selectively.
    pub(super) before: bool,
}

impl Segments {
    /// New data was sent.
    pub(super) fn push(&mut self, start: u64, end: u64, snapshot: Snapshot) {
        self.order.push_back((snapshot.sent(), start));
        self.sent.push_back(Segment {
            start,
            end,
            snapshot,
            arrived: false,
            lost: false,
            resent: false,
            was_resent: false,
        });
    }

    /// Data from `start` to `end` was sent again: all segments that begin there.
    pub(super) fn resend(&mut self, start: u64, end: u64, snapshot: Snapshot) {
        let mut index = self.sent.partition_point(|segment| segment.start < start);
        while let Some(segment) = self.sent.get_mut(index)
            && segment.start < end
        {
            if !segment.arrived {
                if segment.lost && !segment.resent {
                    segment.resent = true;
                    self.resent += 1;
                    self.to_resend.remove(&segment.start);
                }
                segment.was_resent = true;
                segment.snapshot = snapshot;
                self.order.push_back((snapshot.sent(), segment.start));
            }
            index += 1;
        }
    }

    /// The first segment that is lost and not sent again, cut to `most` bytes.
    pub(super) fn next_to_resend(&mut self, most: u64) -> Option<Range> {
        let start = *self.to_resend.first()?;
        Some(self.cut(start, most))
    }

    /// The first segment, cut to `most` bytes.
    pub(super) fn first(&mut self, most: u64) -> Option<Range> {
        let start = self.sent.front()?.start;
        Some(self.cut(start, most))
    }

    /// The last segment, cut to its last `most` bytes.
    pub(super) fn last(&mut self, most: u64) -> Option<Range> {
        let Segment { start, end, .. } = *self.sent.back()?;
        let from = start.max(end.saturating_sub(most.max(1)));
        if from > start {
            self.cut(start, from - start);
        }
        Some(Range { start: from, end })
    }

    /// Makes a segment of at most `most` bytes of the one that begins at `start`.
    fn cut(&mut self, start: u64, most: u64) -> Range {
        let index = self.sent.partition_point(|segment| segment.start < start);
        let Some(segment) = self.sent.get_mut(index) else {
            return Range { start, end: start };
        };
        let end = segment.end.min(start + most.max(1));
        if end < segment.end {
            let rest = Segment {
                start: end,
                ..*segment
            };
            segment.end = end;
            self.arrived += u64::from(rest.arrived);
            self.lost += u64::from(rest.lost);
            self.resent += u64::from(rest.resent);
            if rest.lost && !rest.resent {
                self.to_resend.insert(end);
            }
            self.sent.insert(index + 1, rest);
            // The order of sending has the rest where the whole is, at its front or behind it.
            let sent = (rest.snapshot.sent(), end);
            let place = self.order.partition_point(|entry| entry.0 <= sent.0);
            self.order.insert(place, sent);
        }
        Range { start, end }
    }

    /// The receiver has `piece`, which is part of the range `whole` that it has. Calls `each` with
    /// every segment that is delivered now.
    pub(super) fn arrive(&mut self, piece: Range, whole: Range, mut each: impl FnMut(&Segment)) {
        let mut index = self
            .sent
            .partition_point(|segment| segment.end <= piece.start);
        while let Some(segment) = self.sent.get_mut(index)
            && segment.start < piece.end
        {
            if !segment.arrived && whole.start <= segment.start && segment.end <= whole.end {
                each(segment);
                segment.arrived = true;
                self.arrived += 1;
                self.lost -= u64::from(segment.lost);
                self.resent -= u64::from(segment.resent);
                if segment.lost && !segment.resent {
                    self.to_resend.remove(&segment.start);
                }
                (segment.lost, segment.resent) = (false, false);
            }
            index += 1;
        }
    }

    /// Everything before `number` is acknowledged. Calls `each` with every segment that is gone.
    pub(super) fn acknowledge(&mut self, number: u64, mut each: impl FnMut(&Delivered)) {
        while let Some(segment) = self.sent.front().copied()
            && segment.end <= number
        {
            self.sent.pop_front();
            self.arrived -= u64::from(segment.arrived);
            self.lost -= u64::from(segment.lost);
            self.resent -= u64::from(segment.resent);
            if segment.lost && !segment.resent {
                self.to_resend.remove(&segment.start);
            }
            each(&Delivered {
                segment,
                before: segment.arrived,
            });
        }
        if let Some(first) = self.sent.front_mut()
            && first.start < number
        {
            // A part of an oversized segment.
            let before = std::mem::replace(&mut first.start, number);
            let sent = first.snapshot.sent();
            if self.to_resend.remove(&before) {
                self.to_resend.insert(number);
            }
            let place = self.order.partition_point(|entry| entry.0 <= sent);
            self.order.insert(place, (sent, number));
        }
        self.oldest_in_flight();
    }

    /// The oldest segment in the order of sending that is neither lost nor delivered, and when it
    /// was sent.
    pub(super) fn oldest_in_flight(&mut self) -> Option<Segment> {
        while let Some((sent, start)) = self.order.front() {
            match self.get(*start) {
                Some(segment)
                    if !segment.arrived
                        && (!segment.lost || segment.resent)
                        && segment.snapshot.sent() == *sent =>
                {
                    return Some(*segment);
                }
                _ => self.order.pop_front(),
            };
        }
        None
    }

    /// The segment that begins at `start`, which is in flight, is lost.
    pub(super) fn lose(&mut self, start: u64) {
        let index = self.sent.partition_point(|segment| segment.start < start);
        if let Some(segment) = self.sent.get_mut(index)
            && segment.start == start
            && !segment.arrived
            && (!segment.lost || segment.resent)
        {
            self.resent -= u64::from(segment.resent);
            self.lost += u64::from(!segment.lost);
            (segment.lost, segment.resent) = (true, false);
            self.to_resend.insert(start);
            self.total_lost += 1;
        }
    }

    /// No segment is lost: a time-out was spurious.
    pub(super) fn find_again(&mut self) {
        for segment in &mut self.sent {
            (segment.lost, segment.resent) = (false, false);
        }
        (self.lost, self.resent) = (0, 0);
        self.to_resend.clear();
        // Those that had left the order of sending come back.
        let mut order: Vec<_> = (self.sent.iter())
            .filter(|segment| !segment.arrived)
            .map(|segment| (segment.snapshot.sent(), segment.start))
            .collect();
        order.sort_unstable();
        self.order = order.into();
    }

    /// The segments that have not arrived, with the start of each.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Segment> + '_ {
        self.sent.iter().filter(|segment| !segment.arrived)
    }

    /// When the first segment was sent last.
    pub(super) fn first_sent(&self) -> Option<Time> {
        self.sent.front().map(|segment| segment.snapshot.sent())
    }

    /// Number of segments in flight: sent, and neither delivered nor lost.
    pub(super) fn in_flight(&self) -> u64 {
        self.count() + self.resent - self.arrived - self.lost
    }

    /// Number of segments that are not acknowledged.
    pub(super) fn count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Number of segments that the receiver has beyond the first gap (Linux: `sacked_out`).
    pub(super) const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether any segment is lost, sent again or not.
    pub(super) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Whether lost segments wait to be sent again.
    pub(super) fn has_to_resend(&self) -> bool {
        !self.to_resend.is_empty()
    }

    /// Segments that were found lost, in total.
    pub(super) const fn total_lost(&self) -> u64 {
        self.total_lost
    }

    fn get(&self, start: u64) -> Option<&Segment> {
        let index = self.sent.partition_point(|segment| segment.start < start);
        self.sent
            .get(index)
            .filter(|segment| segment.start == start)
    }

    /// Panics in debug builds if the state is inconsistent.
    pub(super) fn check_invariants(&self, first: u64, end: u64) {
        debug_assert_eq!(
            self.sent.front().map_or(end, |segment| segment.start),
            first
        );
        debug_assert_eq!(self.sent.back().map_or(first, |segment| segment.end), end);
        debug_assert!(self.arrived + self.lost <= self.count() && self.resent <= self.lost);
        debug_assert_eq!(self.to_resend.len() as u64, self.lost - self.resent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::sender::delivery_rate::DeliveryRate;
    use midspan_units::TimeSpan;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    /// Ten segments of 100 bytes, one each millisecond.
    fn ten() -> (Segments, DeliveryRate) {
        let (mut segments, mut rate) = (Segments::default(), DeliveryRate::default());
        for number in 0..10 {
            let snapshot = rate.handle_sent(at(number), number == 0);
            segments.push(100 * number, 100 * number + 100, snapshot);
        }
        (segments, rate)
    }

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn segments_in_flight_are_counted() {
        let (mut segments, mut rate) = ten();
        assert_eq!(segments.in_flight(), 10);
        let block = range(300, 500);
        segments.arrive(block, block, |_| ());
        segments.lose(0);
        segments.lose(100);
        assert_eq!((segments.in_flight(), segments.total_lost()), (6, 2));
        assert_eq!(segments.next_to_resend(1000), Some(range(0, 100)));
        segments.resend(0, 100, rate.handle_sent(at(20), false));
        assert_eq!(segments.in_flight(), 7);
        assert_eq!(segments.next_to_resend(1000), Some(range(100, 200)));
        // Lost again, and then all that is acknowledged is gone.
        segments.lose(0);
        assert_eq!((segments.in_flight(), segments.total_lost()), (6, 3));
        let mut before = 0;
        segments.acknowledge(500, |one| before += u64::from(one.before));
        segments.check_invariants(500, 1000);
        assert_eq!((segments.in_flight(), before), (5, 2));
        assert!(!segments.has_to_resend() && !segments.has_lost());
    }

    #[test]
    fn the_oldest_is_the_one_that_was_sent_first_or_again() {
        let (mut segments, mut rate) = ten();
        segments.lose(0);
        assert_eq!(segments.oldest_in_flight().map(|one| one.start), Some(100));
        segments.resend(0, 100, rate.handle_sent(at(20), false));
        let rest = range(100, 1000);
        segments.arrive(rest, rest, |_| ());
        assert_eq!(segments.oldest_in_flight().map(|one| one.start), Some(0));
        segments.acknowledge(1000, |_| ());
        assert!(segments.oldest_in_flight().is_none());
        segments.check_invariants(1000, 1000);
    }

    #[test]
    fn a_large_segment_is_cut_and_a_part_of_it_acknowledged() {
        let (mut segments, mut rate) = (Segments::default(), DeliveryRate::default());
        segments.push(0, 1000, rate.handle_sent(at(0), true));
        segments.acknowledge(300, |_| ());
        segments.check_invariants(300, 1000);
        segments.lose(300);
        assert_eq!(segments.next_to_resend(400), Some(range(300, 700)));
        assert_eq!((segments.count(), segments.in_flight()), (2, 0));
        segments.resend(300, 700, rate.handle_sent(at(5), false));
        assert_eq!(segments.next_to_resend(400), Some(range(700, 1000)));
        assert_eq!(segments.last(100), Some(range(900, 1000)));
        segments.check_invariants(300, 1000);
        // A part of a segment has not arrived as a whole.
        let part = range(950, 1000);
        segments.arrive(part, part, |_| ());
        assert_eq!(segments.arrived(), 0);
    }

    #[test]
    fn after_a_spurious_time_out_nothing_is_lost() {
        let (mut segments, mut rate) = ten();
        for number in 0..10 {
            segments.lose(100 * number);
        }
        segments.resend(0, 100, rate.handle_sent(at(50), false));
        assert_eq!(segments.in_flight(), 1);
        segments.find_again();
        segments.check_invariants(0, 1000);
        assert_eq!(segments.in_flight(), 10);
        assert_eq!(segments.oldest_in_flight().map(|one| one.start), Some(100));
    }
}
