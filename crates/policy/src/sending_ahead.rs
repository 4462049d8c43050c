//! Sending ahead of the window that a client advertises (Hasegawa §3: TGW), and its alternative:
//! large buffers only (WSO).

use midspan_units::{ByteSize, Time, TimeSpan};

use crate::{LegDecision, LegSample};

/// The window that the paper's TGW assumes for every client (Hasegawa §4: 524,280 bytes).
pub const PAPER_WINDOW: ByteSize = ByteSize::from_bytes(524_280);
/// Largest window scale (RFC 7323 §2.3).
const LARGEST_SCALE: u8 = 14;
/// A reader is slow if its window has shrunk below 1/`SLOW_READER` of the largest window seen.
const SLOW_READER: u64 = 4;
/// Least time without loss before more is allowed, and how often repeated losses double it.
const LEAST_CALM: TimeSpan = TimeSpan::from_milliseconds(100);
const DOUBLINGS: u32 = 3;
/// Shortest and longest time between two readings.
const LOOK: (TimeSpan, TimeSpan) = (
    TimeSpan::from_milliseconds(5),
    TimeSpan::from_milliseconds(100),
);

/// How a client's window is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendAhead {
    /// As the client advertises it.
    #[default]
    Off,
    /// As the client advertises it, but with send buffers of this size (WSO).
    Wso(ByteSize),
    /// As if it were this large, as long as it is not zero (TGW).
    Ahead(ByteSize),
}

impl SendAhead {
    /// How many bits to add to the window scale before the first byte, for a client that has
    /// advertised `window` bytes with the scale `agreed`.
    #[must_use]
    pub fn added_scale(self, window: u64, agreed: u8) -> u8 {
        let Self::Ahead(wanted) = self else {
            return 0;
        };
        let room = LARGEST_SCALE.saturating_sub(agreed);
        let reaches = |bits: &u8| window.max(1) << bits >= wanted.bytes();
        (0..=room).find(reaches).unwrap_or(room)
    }
}

/// How far ahead of the advertised window one leg may send, while data flows.
///
/// The window scale cannot be changed once data has been sent, so the leg is limited by how much is written to
/// it. While nothing is lost, the whole wanted window is allowed. After a loss, the client may have to drop the
/// data beyond its true window, so only the true window is allowed. The allowed window then doubles, step by step,
/// each time when two conditions are met. First, no segment was lost for a round trip (at least 0.1 s, and up to
/// eight times as long if losses repeat). Second, as many bytes were acknowledged as were allowed, or nothing is
/// unacknowledged; this condition covers a leg that waits for a time-out. If the true window falls below a quarter
/// of its largest value, the reader is slow, and no more than the true window is allowed. A window of zero stops
/// the kernel in any case; then one segment is allowed, with which it requests the next window.
#[derive(Debug, Clone, Copy)]
pub struct SendingAhead {
    wanted: u64,
    /// Bits that were added to the scale.
    added: u8,
    cap: u64,
    largest_true: u64,
    sent_again: u32,
    calm_since: Time,
    /// Bytes acknowledged at `calm_since`.
    acknowledged: u64,
    round_trip: TimeSpan,
    losses: u32,
}

impl SendingAhead {
    /// For a leg whose scale was raised by `added` bits so as to send `wanted` bytes ahead.
    #[must_use]
    pub const fn new(wanted: ByteSize, added: u8) -> Self {
        Self {
            wanted: wanted.bytes(),
            added,
            cap: wanted.bytes(),
            largest_true: 0,
            sent_again: 0,
            calm_since: Time::ZERO,
            acknowledged: 0,
            round_trip: TimeSpan::ZERO,
            losses: 0,
        }
    }

    /// Bytes that may be sent and not acknowledged.
    #[must_use]
    pub const fn cap(&self) -> ByteSize {
        ByteSize::from_bytes(self.cap)
    }

    /// How often a loss has reduced the leg to the client's true window.
    #[must_use]
    pub const fn losses(&self) -> u32 {
        self.losses
    }

    /// When to read the leg again, while data is in flight.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Time {
        let (least, most) = LOOK;
        let span = TimeSpan::from_nanoseconds(self.round_trip.nanoseconds() / 8);
        now + span.max(least).min(most)
    }

    /// How long there must be no loss before the allowed window doubles. A client that drops what
    /// lies beyond its window causes losses again and again.
    fn calm(&self) -> TimeSpan {
        let doublings = self.losses.saturating_sub(1).min(DOUBLINGS);
        self.round_trip.max(LEAST_CALM) * (1_u64 << doublings)
    }

    /// Takes a reading of the leg; returns what changes on it.
    pub fn handle_sample(&mut self, now: Time, sample: &LegSample) -> LegDecision {
        let before = self.cap;
        self.round_trip = sample.round_trip_time.unwrap_or(self.round_trip);
        let truth = sample.peer_window >> self.added.min(63);
        self.largest_true = self.largest_true.max(truth);
        let allowed = match truth {
            0 => u64::from(sample.segment_size.max(1)),
            truth => truth,
        };
        let acknowledged = sample.bytes_acknowledged.bytes();
        let has_moved = sample.unacknowledged == 0
            || acknowledged.saturating_sub(self.acknowledged) >= self.cap;
        if sample.segments_retransmitted != self.sent_again {
            if now.since(self.calm_since) >= self.round_trip {
                self.losses = self.losses.saturating_add(1);
            }
            self.sent_again = sample.segments_retransmitted;
            self.calm_since = now;
            self.acknowledged = acknowledged;
            self.cap = self.cap.min(allowed);
        } else if has_moved && now.since(self.calm_since) >= self.calm() {
            self.calm_since = now;
            self.acknowledged = acknowledged;
            self.cap = self.cap.saturating_mul(2).min(self.wanted);
        }
        self.cap = match truth < self.largest_true / SLOW_READER {
            true => self.cap.min(allowed),
            // What the client has room for is allowed in any case.
            false => self.cap.max(truth.min(self.wanted)),
        };
        LegDecision {
            in_flight_cap: (self.cap != before).then(|| self.cap()),
            ..LegDecision::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(window: u64, added: u8, sent_again: u32) -> LegSample {
        LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(100)),
            segment_size: 1460,
            peer_window: window << added,
            segments_retransmitted: sent_again,
            ..LegSample::default()
        }
    }

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn the_scale_reaches_the_wanted_window() {
        let ahead = SendAhead::Ahead(PAPER_WINDOW);
        assert_eq!(ahead.added_scale(65_535, 0), 3);
        assert_eq!(ahead.added_scale(65_536, 7), 3);
        assert_eq!(ahead.added_scale(1 << 20, 7), 0);
        // The scale never exceeds the largest one.
        assert_eq!(ahead.added_scale(1, 13), 1);
        assert_eq!(ahead.added_scale(0, 0), 14);
        assert_eq!(ahead.added_scale(65_535, 15), 0);
        assert_eq!(SendAhead::Wso(PAPER_WINDOW).added_scale(1000, 0), 0);
    }

    #[test]
    fn a_loss_takes_the_leg_back_to_the_true_window_and_calm_forward_again() {
        let mut ahead = SendingAhead::new(PAPER_WINDOW, 3);
        assert_eq!(
            ahead.handle_sample(at(100), &sample(65_536, 3, 0)),
            LegDecision::default()
        );
        let decision = ahead.handle_sample(at(210), &sample(65_536, 3, 1));
        assert_eq!(decision.in_flight_cap, Some(ByteSize::from_bytes(65_536)));
        ahead.handle_sample(at(250), &sample(65_536, 3, 1));
        assert_eq!(ahead.cap().bytes(), 65_536);
        ahead.handle_sample(at(320), &sample(65_536, 3, 1));
        assert_eq!(ahead.cap().bytes(), 131_072);
        for i in 0..10 {
            ahead.handle_sample(at(500 + i * 200), &sample(65_536, 3, 1));
        }
        assert_eq!(ahead.cap(), PAPER_WINDOW);
        assert_eq!(ahead.losses(), 1);
    }

    #[test]
    fn waiting_for_a_time_out_is_no_calm() {
        let mut ahead = SendingAhead::new(PAPER_WINDOW, 3);
        let under_way = |acknowledged, sent_again| LegSample {
            unacknowledged: 100,
            bytes_acknowledged: ByteSize::from_bytes(acknowledged),
            ..sample(65_536, 3, sent_again)
        };
        ahead.handle_sample(at(110), &under_way(1_000_000, 1));
        assert_eq!(ahead.cap().bytes(), 65_536);
        for i in 0..10 {
            ahead.handle_sample(at(500 + i * 200), &under_way(1_065_535, 1));
        }
        assert_eq!(ahead.cap().bytes(), 65_536);
        ahead.handle_sample(at(3_000), &under_way(1_065_536, 1));
        assert_eq!(ahead.cap().bytes(), 131_072);
    }

    #[test]
    fn the_cap_falls_to_the_window_of_a_slow_reader_and_rises_again() {
        let mut ahead = SendingAhead::new(PAPER_WINDOW, 3);
        ahead.handle_sample(at(0), &sample(65_536, 3, 0));
        ahead.handle_sample(at(10), &sample(10_000, 3, 0));
        assert_eq!(ahead.cap().bytes(), 10_000);
        // Not even if the window has room for less than a segment. At zero, the kernel sends nothing.
        ahead.handle_sample(at(20), &sample(1_000, 3, 0));
        assert_eq!(ahead.cap().bytes(), 1_000);
        ahead.handle_sample(at(30), &sample(0, 3, 0));
        assert_eq!(ahead.cap().bytes(), 1_000);
        // Since then the client may have read everything.
        for i in 0..10 {
            ahead.handle_sample(at(500 + i * 200), &sample(65_536, 3, 0));
        }
        assert_eq!(ahead.cap(), PAPER_WINDOW);
    }

    proptest! {
        #[test]
        fn the_cap_is_never_above_what_is_wanted_nor_zero(
            wanted in 1_u64..1 << 40,
            steps in prop::collection::vec((0_u64..1 << 30, 0_u32..4, 0_u64..1000), 1..60),
            added in 0_u8..15,
        ) {
            let mut ahead = SendingAhead::new(ByteSize::from_bytes(wanted), added);
            let (mut now, mut lost) = (0, 0);
            for (window, more, later) in steps {
                now += later;
                lost += more;
                ahead.handle_sample(at(now), &sample(window, added.min(14), lost));
                prop_assert!(ahead.cap().bytes() <= wanted && ahead.cap().bytes() > 0);
                prop_assert!(ahead.poll_timeout(at(now)) > at(now));
            }
        }
    }
}
