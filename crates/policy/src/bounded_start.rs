//! Bounds the data in flight on a long leg that starts with a large initial window.
//!
//! Usually, a connection starts with a fixed number of segments, and the congestion window grows by what each
//! flight has carried. On a long leg, this takes several round trips, although the ACKs of the first flight
//! show the rate of the path within some milliseconds. So a leg that is long, or [presumably](crate::long_legs)
//! long, gets the largest initial window, and the relay limits the data in flight:
//!
//! | when | most data in flight |
//! | --- | --- |
//! | until the first ACKs show a rate | the segments of a cold or learned start, and what is acknowledged: as in slow start |
//! | then | 1.25 times what this rate carries in a round trip, at most 16 times what has arrived |
//! | while [other sessions](crate::network_load) of the client's network carry data | what was allowed before; and more while there is no queue: as in slow start until a queue has lost data or the connection has a slow-start threshold, then a segment in each round trip |
//! | after a loss from a queue | what the rate carries in a round trip |
//! | slow start has ended two round trips ago, and the congestion window is no larger than this limit, or is BBR's | no limit |
//!
//! Segments that have arrived behind a gap (SACK) are not in flight. The limit holds until slow start has ended, because every congestion
//! control overshoots in it: CUBIC doubles the window in a round trip in which the queue of a long path overflows, before it sees that the
//! round trip grows, and BBR sends three times what the path carries. A random loss ends CUBIC's slow start, and then the leg may change
//! to BBR, which begins with another one: so the limit stays for two round trips more.
//!
//! The limit is never less than the segments of the cold or learned start. Careful Resume
//! (draft-ietf-tsvwg-careful-resume) makes a similar start at a remembered rate; here, the first flight
//! measures the rate.

use midspan_units::{ByteSize, Time, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::LegSample;
use crate::ack_train::AckTrain;
use crate::pacing::has_queue;

/// In flight: the measured rate times the round trip, times this fraction, so that the bound does not
/// hold the rate down.
const HEADROOM: (u64, u64) = (5, 4);
/// At most this many times the bytes that have arrived, so that ACKs that arrive in a burst
/// do not permit far more than the path has carried.
const PROVEN: u64 = 16;
/// Time between two readings at first: two make the shortest train of ACKs that shows a rate.
const SOON: TimeSpan = TimeSpan::from_milliseconds(5);
/// After [`NEW`] round trips, a reading follows each `LATER`th part of a round trip, so that a long session costs little CPU time.
/// Where there is [`HEADROOM`], it is larger than what arrives between two readings.
const LATER: u64 = 16;
/// Longest time between two readings.
const LONGEST: TimeSpan = TimeSpan::from_milliseconds(50);
/// For this many round trips, the rate that the ACKs show may still rise quickly.
const NEW: u64 = 8;

/// Bounds the data in flight on one leg with a large initial window.
///
/// Another process may continue a leg, as that of [`AutomaticAhead`](crate::automatic_ahead::AutomaticAhead).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundedStart {
    /// Segments that may be in flight in any case.
    segments: u32,
    #[serde(skip)]
    train: AckTrain,
    retransmitted: Option<u32>,
    /// Segments were lost while there was a queue.
    #[serde(default)]
    has_overflowed: bool,
    /// Whether the measured rate counts: no other session of the network carries data.
    is_allowed: bool,
    /// When the first round trip was known, and the shortest one.
    #[serde(skip)]
    began: Option<(Time, TimeSpan)>,
    /// Bytes acknowledged at the newest reading.
    acknowledged: u64,
    /// In bytes, without those that have arrived behind a gap.
    bound: u64,
    /// Bytes that have arrived behind a gap.
    #[serde(default)]
    behind_gap: u64,
    /// Since when the bound has not been needed.
    #[serde(skip)]
    needless_since: Option<Time>,
    is_over: bool,
}

impl BoundedStart {
    /// A leg on which nothing has been sent. Its first flight may have `segments` segments of
    /// `segment_size` bytes.
    #[must_use]
    pub fn new(segments: u32, segment_size: u32) -> Self {
        Self {
            segments,
            train: AckTrain::default(),
            retransmitted: None,
            has_overflowed: false,
            is_allowed: true,
            began: None,
            acknowledged: 0,
            bound: u64::from(segments) * u64::from(segment_size.max(1)),
            behind_gap: 0,
            needless_since: None,
            is_over: false,
        }
    }

    /// Bytes that may be sent and not acknowledged; `None`: the congestion window is the limit.
    #[must_use]
    pub fn bound(&self) -> Option<ByteSize> {
        let bytes = self.bound.saturating_add(self.behind_gap);
        (!self.is_over).then_some(ByteSize::from_bytes(bytes))
    }

    /// When to read the leg again, while data is in flight; `None` if nothing will change.
    #[must_use]
    pub fn poll_timeout(&self, now: Time) -> Option<Time> {
        let old = (self.began).filter(|(at, round_trip)| now.since(*at) >= *round_trip * NEW);
        let interval = old.map_or(SOON, |(_, round_trip)| {
            (round_trip / LATER).max(SOON).min(LONGEST)
        });
        (!self.is_over).then(|| now + interval)
    }

    /// Whether the measured rate counts, from the next reading on.
    pub const fn set_allowed(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// Takes a reading of the leg.
    pub fn handle_sample(&mut self, now: Time, sample: &LegSample) {
        if self.is_over {
            return;
        }
        let segment = u64::from(sample.segment_size.max(1));
        let acknowledged = sample.bytes_acknowledged.bytes();
        let before = self.retransmitted.replace(sample.segments_retransmitted);
        let loses = before.is_some_and(|before| before != sample.segments_retransmitted);
        self.has_overflowed |= loses && has_queue(sample);
        self.behind_gap = u64::from(sample.selectively_acknowledged) * segment;
        let arrived = acknowledged + self.behind_gap;
        self.train.handle_reading(now, arrived, segment);
        if let Some(round_trip) = sample.minimum_round_trip_time {
            self.began = Some((self.began.map_or(now, |(at, _)| at), round_trip));
        }
        let first = u64::from(self.segments) * segment;
        let (rate, round_trip) = (self.train.rate(), sample.minimum_round_trip_time);
        self.bound = match (rate, round_trip) {
            (Some(rate), Some(round_trip)) if self.is_allowed => {
                let carried = rate.bytes_in(round_trip);
                self.may_carry(carried, arrived).max(first)
            }
            _ if has_queue(sample) => self.bound,
            // CUBIC has seen a loss, or that queues begin. Its window cannot end slow start by itself here, because it is larger.
            _ if self.has_overflowed || sample.slow_start_threshold.is_some() => {
                let more = acknowledged.saturating_sub(self.acknowledged);
                let grown = more.saturating_mul(segment) / self.bound.max(1);
                self.bound.saturating_add(grown)
            }
            _ => self
                .bound
                .saturating_add(acknowledged.saturating_sub(self.acknowledged)),
        };
        self.acknowledged = acknowledged;
        if self.is_needed(sample, segment) {
            self.needless_since = None;
            return;
        }
        let since = *self.needless_since.get_or_insert(now);
        self.is_over = round_trip.is_none_or(|round_trip| now.since(since) >= round_trip * 2);
    }

    /// Whether the congestion window would let more data into the path than the bound, or soon will.
    fn is_needed(&self, sample: &LegSample, segment: u64) -> bool {
        let window = u64::from(sample.congestion_window);
        sample.slow_start_threshold.is_none_or(|threshold| {
            // BBR sets the threshold to half its window, and paces.
            let is_of_bbr = window * 2 >= u64::from(threshold) * 3;
            window.saturating_mul(segment) > self.bound && !is_of_bbr
        })
    }

    /// What may be in flight where the measured rate carries this in a round trip, and so much has arrived.
    fn may_carry(&self, carried: u64, arrived: u64) -> u64 {
        if self.has_overflowed {
            return carried;
        }
        let (numerator, denominator) = HEADROOM;
        let carried = (carried / denominator).saturating_mul(numerator);
        carried.min(arrived.saturating_mul(PROVEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT: u32 = 1_000;
    const WINDOW: u32 = 640;

    fn reading(acknowledged: u64, window: u32, retransmitted: u32) -> LegSample {
        LegSample {
            segment_size: SEGMENT,
            bytes_acknowledged: ByteSize::from_bytes(acknowledged),
            congestion_window: window,
            minimum_round_trip_time: Some(TimeSpan::from_milliseconds(600)),
            segments_retransmitted: retransmitted,
            ..LegSample::default()
        }
    }

    fn bound(start: &BoundedStart) -> Option<u64> {
        start.bound().map(|bound| bound.bytes() / 1_000)
    }

    /// A reading after slow start has ended.
    fn with_threshold(acknowledged: u64, window: u32, threshold: u32) -> LegSample {
        LegSample {
            slow_start_threshold: Some(threshold),
            ..reading(acknowledged, window, 0)
        }
    }

    /// After a first flight of 80 segments whose ACKs take this time in ms, each.
    fn after_first_flight(milliseconds: u64) -> BoundedStart {
        let mut start = BoundedStart::new(80, SEGMENT);
        for turn in 0..=80 {
            let now = Time::ZERO + TimeSpan::from_milliseconds(600 + milliseconds * turn);
            start.handle_sample(now, &reading(turn * 1_000, WINDOW, 0));
        }
        start
    }

    #[test]
    fn the_first_flight_is_that_of_any_cold_start() {
        let mut start = BoundedStart::new(80, SEGMENT);
        assert_eq!(bound(&start), Some(80));
        for at in 0..700 {
            let now = Time::ZERO + TimeSpan::from_milliseconds(at);
            start.handle_sample(now, &reading(0, WINDOW, 0));
            assert_eq!(bound(&start), Some(80));
        }
    }

    #[test]
    fn the_first_acks_show_what_the_path_carries() {
        // 8 Mbit/s carry 600 KB in 600 ms.
        assert_eq!(bound(&after_first_flight(1)), Some(750));
        // 4 Mbit/s carry 300 KB.
        assert_eq!(bound(&after_first_flight(2)), Some(375));
        // 0.4 Mbit/s carry less than the first flight.
        assert_eq!(bound(&after_first_flight(20)), Some(80));
        // Without a rate, the bound grows as in slow start.
        let mut start = BoundedStart::new(80, SEGMENT);
        start.handle_sample(Time::ZERO, &reading(20_000, WINDOW, 0));
        assert_eq!(bound(&start), Some(100));
    }

    /// How many ms after the bound of 750 segments is no longer needed it ends, if it does, on a leg with this reading.
    fn ends_after(last: &LegSample) -> Option<u64> {
        let mut start = after_first_flight(1);
        (0..6_000).step_by(10).find(|at| {
            let now = Time::ZERO + TimeSpan::from_milliseconds(1_000 + at);
            start.handle_sample(now, last);
            start.bound().is_none() && start.poll_timeout(now).is_none()
        })
    }

    /// CUBIC's window is no larger than its threshold when slow start ends. BBR's is twice what the path carries.
    #[test]
    fn the_bound_ends_two_round_trips_after_slow_start() {
        for (last, end) in [
            (reading(80_000, 700, 0), None),
            (with_threshold(80_000, 1_500, 1_500), None),
            (with_threshold(80_000, 750, 1_500), Some(1_200)),
            (with_threshold(80_000, 525, 525), Some(1_200)),
            (with_threshold(80_000, 1_200, 1_200), None),
            (with_threshold(80_000, 1_200, 600), Some(1_200)),
        ] {
            assert_eq!(ends_after(&last), end, "{last:?}");
        }
    }

    /// A random loss ends CUBIC's slow start. If the leg changes to BBR then, another start begins.
    #[test]
    fn a_change_to_bbr_keeps_the_bound() {
        let mut start = after_first_flight(1);
        let at = |milliseconds| Time::ZERO + TimeSpan::from_milliseconds(milliseconds);
        start.handle_sample(at(1_000), &with_threshold(80_000, 525, 525));
        start.handle_sample(at(1_200), &reading(80_000, 525, 1));
        for milliseconds in (1_300..9_000).step_by(10) {
            start.handle_sample(at(milliseconds), &reading(80_000, 1_600, 1));
            assert_eq!(bound(&start), Some(750));
        }
    }

    /// A bound that CUBIC's window never comes down to holds for the whole session, and must not cost much CPU time.
    #[test]
    fn an_old_bound_is_read_less_often() {
        let mut start = BoundedStart::new(80, SEGMENT);
        let mut pause = |at| {
            let now = Time::ZERO + TimeSpan::from_milliseconds(at);
            start.handle_sample(now, &reading(80_000, WINDOW, 0));
            start.poll_timeout(now).map(|next| next.since(now))
        };
        assert_eq!(pause(1_000), Some(SOON));
        assert_eq!(pause(5_799), Some(SOON));
        assert_eq!(pause(5_800), Some(TimeSpan::from_nanoseconds(37_500_000)));
    }

    #[test]
    fn only_a_loss_from_a_queue_leaves_no_room_for_one() {
        let mut start = after_first_flight(2);
        let now = Time::ZERO + TimeSpan::from_milliseconds(900);
        start.handle_sample(now, &reading(80_000, WINDOW, 1));
        assert_eq!(bound(&start), Some(375));
        let overflow = LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(900)),
            ..reading(80_000, WINDOW, 2)
        };
        start.handle_sample(now, &overflow);
        assert_eq!(bound(&start), Some(300));
    }

    /// An ACK that fills a gap comes a round trip after the loss. The data behind the gap is not in flight.
    #[test]
    fn segments_behind_a_gap_have_arrived() {
        let mut start = after_first_flight(2);
        let now = Time::ZERO + TimeSpan::from_milliseconds(900);
        let gap = LegSample {
            selectively_acknowledged: 40,
            ..reading(80_000, WINDOW, 1)
        };
        start.handle_sample(now, &gap);
        assert_eq!(bound(&start), Some(415));
        // They also show the rate: 1 ms for each.
        let mut start = BoundedStart::new(80, SEGMENT);
        for turn in 0..=80 {
            let now = Time::ZERO + TimeSpan::from_milliseconds(600 + turn);
            let gap = LegSample {
                selectively_acknowledged: u32::try_from(turn).unwrap_or(0),
                ..reading(0, WINDOW, 0)
            };
            start.handle_sample(now, &gap);
        }
        assert_eq!(bound(&start), Some(750 + 80));
    }

    /// Next to others, the first ACKs show no rate that this session may take for itself.
    #[test]
    fn next_to_others_a_start_grows_as_in_slow_start_until_there_is_a_queue() {
        let mut start = after_first_flight(2);
        start.set_allowed(false);
        let now = Time::ZERO + TimeSpan::from_milliseconds(800);
        start.handle_sample(now, &reading(80_000, WINDOW, 0));
        assert_eq!(bound(&start), Some(375));
        let mut start = BoundedStart::new(80, SEGMENT);
        start.set_allowed(false);
        for turn in 0..=80 {
            let now = Time::ZERO + TimeSpan::from_milliseconds(600 + turn);
            start.handle_sample(now, &reading(turn * 1_000, WINDOW, 0));
            assert_eq!(bound(&start), Some(80 + turn));
        }
        let queue = LegSample {
            round_trip_time: Some(TimeSpan::from_milliseconds(900)),
            ..reading(200_000, WINDOW, 0)
        };
        start.handle_sample(now, &queue);
        assert_eq!(bound(&start), Some(160));
        start.handle_sample(now, &reading(300_000, WINDOW, 0));
        assert_eq!(bound(&start), Some(260));
        // Alone, the measured rate is the limit.
        start.set_allowed(true);
        start.handle_sample(now, &reading(300_000, WINDOW, 0));
        assert!(bound(&start).is_some_and(|bound| bound >= 750));
    }

    /// With a window of 640 segments, the threshold that CUBIC sets at the first sign of a queue limits nothing.
    #[test]
    fn next_to_others_a_threshold_ends_the_growth_of_slow_start() {
        let mut start = BoundedStart::new(80, SEGMENT);
        start.set_allowed(false);
        start.handle_sample(Time::ZERO, &reading(20_000, WINDOW, 0));
        assert_eq!(bound(&start), Some(100));
        // One segment for each flight that is acknowledged.
        for flight in 0..4 {
            let acknowledged = 20_000 + flight * 100_000;
            start.handle_sample(Time::ZERO, &with_threshold(acknowledged, WINDOW, WINDOW));
        }
        assert_eq!(bound(&start), Some(102));
    }

    proptest! {
        #[test]
        fn the_bound_is_never_below_the_first_flight(
            steps in proptest::collection::vec(
                (0_u64..100, 0_u64..1 << 20, 0_u32..2_000, 0_u32..2, any::<bool>()), 0..60),
            segments in 1_u32..100,
        ) {
            let mut start = BoundedStart::new(segments, SEGMENT);
            let (mut now, mut acknowledged, mut lost) = (Time::ZERO, 0, 0);
            for (later, more, window, again, is_allowed) in steps {
                now += TimeSpan::from_milliseconds(later);
                acknowledged += more;
                lost += again;
                start.set_allowed(is_allowed);
                start.handle_sample(now, &reading(acknowledged, window, lost));
                let least = u64::from(segments) * u64::from(SEGMENT);
                prop_assert!(start.bound().is_none_or(|bound| bound.bytes() >= least));
            }
        }
    }
}
