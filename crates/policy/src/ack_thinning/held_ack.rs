//! The ACK that is held until it covers more segments.

use midspan_units::{Time, TimeSpan};

use crate::{AckSample, AckVerdict};

/// Holds ACKs until they cover enough segments, at most for a time-out: the common part of all
/// policies that wait for *n* packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeldAck {
    /// Segments that the held ACK covers beyond the last ACK that left.
    covered: u32,
    /// When the held ACK leaves at the latest.
    deadline: Option<Time>,
}

impl HeldAck {
    /// The verdict on an ACK. It leaves when it and the held one cover `target` segments, or when
    /// another ACK as large as it would make them cover more than `most`. Urgent ACKs leave at
    /// once. The first ACK that is held sets the deadline, `time_out` from `now`; later ones do not
    /// extend it.
    pub fn judge(
        &mut self,
        now: Time,
        sample: &AckSample,
        target: u32,
        most: u32,
        time_out: TimeSpan,
    ) -> AckVerdict {
        self.expire(now);
        if sample.is_urgent() {
            return self.pass_urgent(sample);
        }
        self.hold(now, sample.newly_covered, target, most, time_out)
    }

    /// The held ACK has left at its deadline; then no ACK is held.
    fn expire(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            *self = Self::default();
        }
    }

    /// As [`judge`](Self::judge), but in a recovery: an ACK whose only news is more data behind a
    /// gap that is already reported to the sender is held too, and counts for as many segments as
    /// have arrived.
    pub fn judge_in_recovery(
        &mut self,
        now: Time,
        sample: &AckSample,
        target: u32,
        most: u32,
        time_out: TimeSpan,
    ) -> AckVerdict {
        if !sample.says_only_that_selection_grows() {
            return self.judge(now, sample, target, most, time_out);
        }
        self.expire(now);
        self.hold(now, sample.arrived, target, most, time_out)
    }

    fn pass_urgent(&mut self, sample: &AckSample) -> AckVerdict {
        *self = Self::default();
        // The same number with a newer window contains all information of the held ACK.
        if sample.is_window_update_alone() {
            AckVerdict::Pass
        } else {
            AckVerdict::PassAfterHeld
        }
    }

    fn hold(
        &mut self,
        now: Time,
        new: u32,
        target: u32,
        most: u32,
        time_out: TimeSpan,
    ) -> AckVerdict {
        self.covered = self.covered.saturating_add(new);
        let enough = self.covered >= target || self.covered.saturating_add(new) > most;
        if enough || time_out == TimeSpan::ZERO {
            *self = Self::default();
            return AckVerdict::Pass;
        }
        AckVerdict::HoldUntil(*self.deadline.get_or_insert(now + time_out))
    }

    /// When the held ACK leaves at the latest; `None` if no ACK is held.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: TimeSpan = TimeSpan::from_milliseconds(10);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn ack(newly_covered: u32) -> AckSample {
        AckSample {
            newly_covered,
            arrived: newly_covered,
            ..AckSample::default()
        }
    }

    #[test]
    fn the_first_that_waits_sets_the_deadline() {
        let mut held = HeldAck::default();
        let first = held.judge(at(0), &ack(1), 3, 3, SPAN);
        assert_eq!(first, AckVerdict::HoldUntil(at(10)));
        let second = held.judge(at(4), &ack(1), 3, 3, SPAN);
        assert_eq!(second, AckVerdict::HoldUntil(at(10)));
        assert_eq!(held.judge(at(5), &ack(1), 3, 3, SPAN), AckVerdict::Pass);
        assert_eq!(held.deadline(), None);
    }

    #[test]
    fn what_left_at_its_deadline_is_not_counted_again() {
        let mut held = HeldAck::default();
        held.judge(at(0), &ack(2), 3, 3, SPAN);
        assert_eq!(
            held.judge(at(10), &ack(1), 3, 3, SPAN),
            AckVerdict::HoldUntil(at(20))
        );
    }

    #[test]
    fn one_that_would_be_too_many_with_another_leaves_now() {
        let mut held = HeldAck::default();
        // 2 of 3 are covered; 4 would be more than a third of a window of 9.
        assert_eq!(held.judge(at(0), &ack(2), 3, 3, SPAN), AckVerdict::Pass);
        // In a large window, more than the target may be covered.
        assert!(matches!(
            held.judge(at(1), &ack(2), 3, 30, SPAN),
            AckVerdict::HoldUntil(_)
        ));
        assert_eq!(held.judge(at(1), &ack(2), 3, 30, SPAN), AckVerdict::Pass);
    }
}
