//! Counters and histograms of one listener.

use std::sync::Arc;

use midspan_handover::ReadingState;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{Handshake, Leg, LegSample};
use midspan_units::TimeSpan;

use super::Ending;
use crate::statistics::Counter;

/// Upper bounds of histograms of times, in microseconds: 100 µs to 50 s.
pub const TIME_BOUNDS: &[u64] = &[
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000,
];

/// Upper bounds of histograms of round-trip times, in microseconds: steps of 1.25 from 5 ms to 5 s,
/// so that a quantile read from a histogram is at most a quarter too large, and coarse steps
/// outside.
pub const ROUND_TRIP_TIME_BOUNDS: &[u64] = &[
    100, 200, 500, 1_000, 2_000, 5_000, 6_250, 7_812, 9_766, 12_207, 15_259, 19_073, 23_842,
    29_802, 37_253, 46_566, 58_208, 72_760, 90_949, 113_687, 142_109, 177_636, 222_045, 277_556,
    346_945, 433_681, 542_101, 677_626, 847_033, 1_058_791, 1_323_489, 1_654_361, 2_067_952,
    2_584_939, 3_231_174, 4_038_968, 5_048_710, 10_000_000, 20_000_000, 50_000_000,
];

/// Upper bounds of histograms of rates, in bit/s: 10 kbit/s to 10 Gbit/s.
pub const RATE_BOUNDS: &[u64] = &[
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
];

/// Upper bounds of histograms of windows, in segments.
pub const SEGMENT_BOUNDS: &[u64] = &[
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000,
];

/// Upper bounds of histograms of bytes per turn: 1 to 720 whole Ethernet segments, and the size of
/// a pipe.
pub const PIECE_BOUNDS: &[u64] = &[
    1_460, 2_920, 4_380, 7_300, 14_600, 29_200, 64_240, 146_000, 292_000, 1_051_200,
];

/// Whole numbers sorted into ranges; one thread writes.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more element than there are bounds.
    counts: Box<[Counter]>,
    sum: Counter,
}

/// The content of one or several histograms with the same bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramTotals {
    /// For each bound, the number of values up to this bound and above the one before; last, the
    /// values above all bounds.
    pub counts: Vec<u64>,
    /// Sum of the values.
    pub sum: u64,
}

impl Histogram {
    fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self {
            bounds,
            counts,
            sum: Counter::default(),
        }
    }

    fn observe(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(place) {
            count.add(1);
            self.sum.add(value);
        }
    }

    fn add_to(&self, totals: &mut HistogramTotals) {
        totals.counts.resize(self.counts.len(), 0);
        for (total, count) in totals.counts.iter_mut().zip(&self.counts) {
            *total = total.wrapping_add(count.get());
        }
        totals.sum = totals.sum.wrapping_add(self.sum.get());
    }
}

/// The numbers of a listener in one thread; only that thread writes them.
#[derive(Debug)]
pub struct ListenerCounters {
    /// Name of the listener.
    pub name: Arc<str>,
    pub opened: Counter,
    pub active: Counter,
    pub bytes_to_client: Counter,
    pub bytes_to_server: Counter,
    ended: [Counter; Ending::ALL.len()],
    setup: [Histogram; 2],
    initial_window: [Histogram; 2],
    legs: [LegCounters; 2],
}

/// The numbers of one side of a listener in one thread.
#[derive(Debug)]
struct LegCounters {
    round_trip_time: Histogram,
    minimum_round_trip_time: Histogram,
    delivery_rate: Histogram,
    congestion_window: Histogram,
    retransmitted_segments: Counter,
    retransmitted_bytes: Counter,
    timeouts: Counter,
    busy: Counter,
    receive_window_limited: Counter,
    send_buffer_limited: Counter,
    forward_data: Histogram,
    burst: Histogram,
}

/// What a listener has done since the start; all threads together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerTotals {
    /// Sessions begun.
    pub opened: u64,
    /// Sessions that exist.
    pub active: u64,
    /// Bytes handed to the kernel towards clients.
    pub bytes_to_client: u64,
    /// Bytes handed to the kernel towards servers.
    pub bytes_to_server: u64,
    /// Sessions ended, by [`Ending::index`].
    pub ended: [u64; Ending::ALL.len()],
    /// Microseconds until both legs were connected: handshake end to end, early.
    pub setup: [HistogramTotals; 2],
    /// Segments of the initial windows that were selected for client legs: without, and with,
    /// knowledge of the path.
    pub initial_window: [HistogramTotals; 2],
    /// Client legs, server legs.
    pub legs: [LegTotals; 2],
}

/// The readings of the legs on one side of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LegTotals {
    /// Smoothed round-trip times in microseconds.
    pub round_trip_time: HistogramTotals,
    /// Smallest round-trip times in microseconds.
    pub minimum_round_trip_time: HistogramTotals,
    /// Delivery rates in bit/s.
    pub delivery_rate: HistogramTotals,
    /// Congestion windows in segments.
    pub congestion_window: HistogramTotals,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Milliseconds in which there was data to send.
    pub busy: u64,
    /// Part of this time in which the peer's window was the limit.
    pub receive_window_limited: u64,
    /// Part of this time in which the send buffer was the limit.
    pub send_buffer_limited: u64,
    /// Bytes for this leg that were read in one turn.
    pub forward_data: HistogramTotals,
    /// Bytes that were handed to this leg's socket in one turn.
    pub burst: HistogramTotals,
}

/// The counters of a leg that only grow, at the last reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastReading {
    retransmitted_segments: u32,
    /// The lower half is enough: less is retransmitted between two readings.
    retransmitted_bytes: u32,
    timeouts: u16,
    busy: u32,
    receive_window_limited: u32,
    send_buffer_limited: u32,
}

impl LastReading {
    /// What another relay needs to continue.
    pub const fn hand_over(self) -> ReadingState {
        ReadingState {
            retransmitted_segments: self.retransmitted_segments,
            retransmitted_bytes: self.retransmitted_bytes,
            timeouts: self.timeouts,
            busy: self.busy,
            receive_window_limited: self.receive_window_limited,
            send_buffer_limited: self.send_buffer_limited,
        }
    }

    /// Continues the reading of another relay.
    pub const fn take_over(state: ReadingState) -> Self {
        Self {
            retransmitted_segments: state.retransmitted_segments,
            retransmitted_bytes: state.retransmitted_bytes,
            timeouts: state.timeouts,
            busy: state.busy,
            receive_window_limited: state.receive_window_limited,
            send_buffer_limited: state.send_buffer_limited,
        }
    }
}

/// The place of a handshake in [`ListenerTotals::setup`].
const fn handshake_index(handshake: Handshake) -> usize {
    match handshake {
        Handshake::EndToEnd => 0,
        Handshake::Early => 1,
    }
}

/// The place of a leg in [`ListenerTotals::legs`].
const fn leg_index(leg: Leg) -> usize {
    match leg {
        Leg::Client => 0,
        Leg::Server => 1,
    }
}

impl ListenerCounters {
    /// All zero.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            opened: Counter::default(),
            active: Counter::default(),
            bytes_to_client: Counter::default(),
            bytes_to_server: Counter::default(),
            ended: [const { Counter::new() }; Ending::ALL.len()],
            setup: std::array::from_fn(|_| Histogram::new(TIME_BOUNDS)),
            initial_window: std::array::from_fn(|_| Histogram::new(SEGMENT_BOUNDS)),
            legs: std::array::from_fn(|_| LegCounters::new()),
        }
    }

    /// A session ended.
    pub fn count_end(&self, ending: Ending) {
        if let Some(count) = self.ended.get(ending.index()) {
            count.add(1);
        }
    }

    /// Both legs of a session are connected, this long after its beginning.
    pub fn observe_setup(&self, handshake: Handshake, time: TimeSpan) {
        self.setup[handshake_index(handshake)].observe(microseconds(time));
    }

    /// A client leg begins with a selected window.
    pub fn observe_start(&self, start: &LearnedStart) {
        let place = usize::from(start.rate.is_some());
        self.initial_window[place].observe(u64::from(start.segments()));
    }

    /// A leg was read.
    pub fn observe_leg(&self, leg: Leg, sample: &LegSample, last: &mut LastReading) {
        self.legs[leg_index(leg)].observe(sample, last);
    }

    /// In one turn, this many bytes were read for a leg and this many handed to its socket.
    pub fn observe_turn(&self, outbound: Leg, read: u64, written: u64) {
        let leg = &self.legs[leg_index(outbound)];
        for (histogram, bytes) in [(&leg.forward_data, read), (&leg.burst, written)] {
            if bytes > 0 {
                histogram.observe(bytes);
            }
        }
    }

    /// Adds these numbers to a sum.
    pub fn add_to(&self, totals: &mut ListenerTotals) {
        let add = |total: &mut u64, count: &Counter| *total = total.wrapping_add(count.get());
        add(&mut totals.opened, &self.opened);
        add(&mut totals.active, &self.active);
        add(&mut totals.bytes_to_client, &self.bytes_to_client);
        add(&mut totals.bytes_to_server, &self.bytes_to_server);
        for (total, count) in totals.ended.iter_mut().zip(&self.ended) {
            add(total, count);
        }
        for (total, histogram) in totals.setup.iter_mut().zip(&self.setup) {
            histogram.add_to(total);
        }
        let windows = totals.initial_window.iter_mut();
        for (total, histogram) in windows.zip(&self.initial_window) {
            histogram.add_to(total);
        }
        for (total, leg) in totals.legs.iter_mut().zip(&self.legs) {
            leg.round_trip_time.add_to(&mut total.round_trip_time);
            leg.minimum_round_trip_time
                .add_to(&mut total.minimum_round_trip_time);
            leg.delivery_rate.add_to(&mut total.delivery_rate);
            leg.congestion_window.add_to(&mut total.congestion_window);
            leg.forward_data.add_to(&mut total.forward_data);
            leg.burst.add_to(&mut total.burst);
            add(
                &mut total.retransmitted_segments,
                &leg.retransmitted_segments,
            );
            add(&mut total.retransmitted_bytes, &leg.retransmitted_bytes);
            add(&mut total.timeouts, &leg.timeouts);
            add(&mut total.busy, &leg.busy);
            add(
                &mut total.receive_window_limited,
                &leg.receive_window_limited,
            );
            add(&mut total.send_buffer_limited, &leg.send_buffer_limited);
        }
    }
}

impl LegCounters {
    fn new() -> Self {
        Self {
            round_trip_time: Histogram::new(ROUND_TRIP_TIME_BOUNDS),
            minimum_round_trip_time: Histogram::new(ROUND_TRIP_TIME_BOUNDS),
            delivery_rate: Histogram::new(RATE_BOUNDS),
            congestion_window: Histogram::new(SEGMENT_BOUNDS),
            retransmitted_segments: Counter::default(),
            retransmitted_bytes: Counter::default(),
            timeouts: Counter::default(),
            busy: Counter::default(),
            receive_window_limited: Counter::default(),
            send_buffer_limited: Counter::default(),
            forward_data: Histogram::new(PIECE_BOUNDS),
            burst: Histogram::new(PIECE_BOUNDS),
        }
    }

    fn observe(&self, sample: &LegSample, last: &mut LastReading) {
        // Without it, nothing was ever answered on this leg.
        let Some(time) = sample.round_trip_time else {
            return;
        };
        self.round_trip_time.observe(microseconds(time));
        if let Some(time) = sample.minimum_round_trip_time {
            self.minimum_round_trip_time.observe(microseconds(time));
        }
        if let Some(rate) = sample.delivery_rate {
            self.delivery_rate.observe(rate.bits_per_second());
        }
        self.congestion_window
            .observe(u64::from(sample.congestion_window));
        let now = LastReading {
            retransmitted_segments: sample.segments_retransmitted,
            retransmitted_bytes: low_half(sample.bytes_retransmitted.bytes()),
            timeouts: sample.timeouts,
            busy: milliseconds(sample.limited.busy),
            receive_window_limited: milliseconds(sample.limited.receive_window),
            send_buffer_limited: milliseconds(sample.limited.send_buffer),
        };
        // Adds the growth of counters. They wrap after 49 days of sending.
        let grown = |now: u32, last: u32| u64::from(now.wrapping_sub(last));
        self.retransmitted_segments.add(grown(
            now.retransmitted_segments,
            last.retransmitted_segments,
        ));
        self.retransmitted_bytes
            .add(grown(now.retransmitted_bytes, last.retransmitted_bytes));
        let timeouts = now.timeouts.wrapping_sub(last.timeouts);
        self.timeouts.add(u64::from(timeouts));
        self.busy.add(grown(now.busy, last.busy));
        self.receive_window_limited.add(grown(
            now.receive_window_limited,
            last.receive_window_limited,
        ));
        self.send_buffer_limited
            .add(grown(now.send_buffer_limited, last.send_buffer_limited));
        *last = now;
    }
}

const fn microseconds(time: TimeSpan) -> u64 {
    time.nanoseconds() / 1_000
}

/// The lowest 32 bits.
#[allow(clippy::cast_possible_truncation)]
const fn low_half(value: u64) -> u32 {
    value as u32
}

const fn milliseconds(time: TimeSpan) -> u32 {
    low_half(time.nanoseconds() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::ByteSize;

    #[test]
    fn values_go_into_their_ranges() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, u64::from(u32::MAX)] {
            histogram.observe(value);
        }
        let mut totals = HistogramTotals::default();
        histogram.add_to(&mut totals);
        histogram.add_to(&mut totals);
        assert_eq!(totals.counts, [4, 4, 4]);
        assert_eq!(totals.sum, 2 * (10 + 11 + 20 + 21 + u64::from(u32::MAX)));
    }

    #[test]
    fn round_trip_times_are_told_apart_in_steps_of_a_quarter_from_5_ms_to_5_s() {
        let bounds = ROUND_TRIP_TIME_BOUNDS;
        assert!(bounds.is_sorted() && bounds.contains(&5_000));
        let fine = bounds
            .windows(2)
            .filter(|pair| (5_000..5_000_000).contains(&pair[0]));
        for pair in fine.clone() {
            // Half a microsecond of rounding at each end.
            assert!(pair[1] * 1_000 <= pair[0] * 1_251, "{pair:?}");
        }
        assert_eq!(fine.count(), 31);
    }

    #[test]
    fn what_grows_is_counted_once() {
        let counters = ListenerCounters::new("test");
        let mut last = LastReading::default();
        // Time-outs have 16 bits, and wrap.
        for (retransmitted, timeouts) in [(3, u16::MAX), (3, u16::MAX), (5, 1)] {
            let sample = LegSample {
                round_trip_time: Some(TimeSpan::from_milliseconds(20)),
                segments_retransmitted: retransmitted,
                bytes_retransmitted: ByteSize::from_bytes(u64::from(retransmitted) * 1000),
                timeouts,
                ..LegSample::default()
            };
            counters.observe_leg(Leg::Server, &sample, &mut last);
        }
        let mut totals = ListenerTotals::default();
        counters.add_to(&mut totals);
        assert_eq!(totals.legs[1].retransmitted_segments, 5);
        assert_eq!(totals.legs[1].retransmitted_bytes, 5_000);
        assert_eq!(totals.legs[1].timeouts, (1 << 16) + 1);
        assert_eq!(totals.legs[1].round_trip_time.sum, 60_000);
        assert_eq!(totals.legs[0].retransmitted_segments, 0);
    }
}
