//! HyStart: ends slow start before it overflows a queue (Ha and Rhee, *Taming the elephants: New
//! TCP slow start*, Computer Networks 2011), as in Linux's CUBIC.
//!
//! In a window of at least [`LEAST_WINDOW`] segments, ssthresh is set to cwnd in a round
//!
//! - in which more than [`SAMPLES`] round trips were measured, all of them longer than the shortest one of the
//!   connection by more than an eighth of it (but at least 4 ms and at most 16 ms): a queue builds up; or
//! - whose ACKs have arrived without a pause of more than 2 ms for half the shortest round trip (if segments
//!   are paced: for all of it): the path is full.

use std::collections::VecDeque;

use midspan_units::{Time, TimeSpan};

/// In segments.
const LEAST_WINDOW: u64 = 16;
/// Number of round trips of a round that are compared.
const SAMPLES: u8 = 8;
const LEAST_RISE: TimeSpan = TimeSpan::from_milliseconds(4);
const MOST_RISE: TimeSpan = TimeSpan::from_milliseconds(16);
/// ACKs that follow each other within this time are a train.
const TRAIN_GAP: TimeSpan = TimeSpan::from_milliseconds(2);
/// Number of segments of a round whose times are kept: enough for [`SAMPLES`] ACKs of some segments
/// each.
const TIMED: usize = 64;

/// The state of HyStart in slow start.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    /// The round ends when more than this is acknowledged.
    round_end: u64,
    round_start: Time,
    /// The last ACK of the train that began with the round.
    last_ack: Time,
    samples: u8,
    least_of_round: Option<TimeSpan>,
    /// Ends of the first segments of this round, and the times at which they left.
    sent: VecDeque<(u64, Time)>,
    /// The same for the previous round, whose ACKs are arriving now.
    timed: VecDeque<(u64, Time)>,
}

impl HyStart {
    /// New data up to `end` leaves.
    pub(super) fn handle_sent(&mut self, now: Time, end: u64) {
        if self.sent.len() < TIMED {
            self.sent.push_back((end, now));
        }
    }

    /// Everything before `number` is newly acknowledged, in slow start with a window of `window`
    /// segments; everything before `next` has been sent. Returns whether slow start must end.
    pub(super) fn handle_acknowledged(
        &mut self,
        now: Time,
        number: u64,
        next: u64,
        window: u64,
        (shortest, is_paced): (Option<TimeSpan>, bool),
    ) -> bool {
        if number > self.round_end {
            self.begin_round(now, next);
        }
        // As in Linux: the sample of the newest acknowledged segment.
        let mut sample = None;
        while let Some((end, sent)) = self.timed.front().copied()
            && end <= number
        {
            sample = Some(now.since(sent));
            self.timed.pop_front();
        }
        let Some(shortest) = shortest.filter(|_| window >= LEAST_WINDOW) else {
            return false;
        };
        self.is_train_long(now, shortest, is_paced) || self.has_queue(sample, shortest)
    }

    /// A loss has ended slow start.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    fn begin_round(&mut self, now: Time, next: u64) {
        self.round_end = next;
        (self.round_start, self.last_ack) = (now, now);
        (self.samples, self.least_of_round) = (0, None);
        self.timed = std::mem::take(&mut self.sent);
    }

    fn is_train_long(&mut self, now: Time, shortest: TimeSpan, is_paced: bool) -> bool {
        if now.since(self.last_ack) > TRAIN_GAP {
            return false;
        }
        self.last_ack = now;
        let long = if is_paced { shortest } else { shortest / 2 };
        now.since(self.round_start) > long
    }

    fn has_queue(&mut self, sample: Option<TimeSpan>, shortest: TimeSpan) -> bool {
        let Some(sample) = sample else {
            return false;
        };
        let least = self.least_of_round.map_or(sample, |it| it.min(sample));
        self.least_of_round = Some(least);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        least > shortest + (shortest / 8).clamp(LEAST_RISE, MOST_RISE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: TimeSpan = TimeSpan::from_milliseconds(100);

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    /// A round of 20 segments, sent at 0, 3, 6 … ms and acknowledged a round trip (ms) later.
    /// Returns the ACK at which slow start ends.
    fn ends(round_trip: u64, window: u64) -> Option<u64> {
        let mut start = HyStart::default();
        start.begin_round(at(0), 0);
        for segment in 1..=20 {
            start.handle_sent(at(segment * 3), segment);
        }
        (1..=20).find(|segment| {
            let now = at(segment * 3 + round_trip);
            let path = (Some(LEAST), false);
            start.handle_acknowledged(now, *segment, 20 + 2 * segment, window, path)
        })
    }

    #[test]
    fn a_round_that_is_longer_from_its_beginning_ends_slow_start() {
        assert_eq!(ends(113, 40), Some(9));
        assert_eq!(ends(112, 40), None);
        // A small window gives no result.
        assert_eq!(ends(200, 15), None);
    }

    #[test]
    fn one_short_round_trip_of_the_first_is_enough_to_go_on() {
        let mut start = HyStart::default();
        start.begin_round(at(0), 0);
        for segment in 1..=20 {
            start.handle_sent(at(segment * 3), segment);
        }
        let path = (Some(LEAST), false);
        assert!(!start.handle_acknowledged(at(106), 2, 22, 40, path));
        let ended = (3..=20)
            .any(|segment| start.handle_acknowledged(at(segment * 3 + 150), segment, 40, 40, path));
        assert!(!ended);
    }

    #[test]
    fn a_train_of_acknowledgements_as_long_as_half_a_round_trip_ends_slow_start() {
        let ends = |gap: u64, is_paced| {
            let mut start = HyStart::default();
            start.begin_round(at(0), 0);
            (0..=150).step_by(gap as usize).find(|time| {
                let path = (Some(LEAST), is_paced);
                start.handle_acknowledged(at(*time), 0, 1000, 40, path)
            })
        };
        assert_eq!(ends(2, false), Some(52));
        assert_eq!(ends(2, true), Some(102));
        assert_eq!(ends(3, false), None);
    }
}
