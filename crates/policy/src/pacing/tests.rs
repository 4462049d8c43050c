use super::*;
use proptest::prelude::*;

const WINDOW: TimeSpan = SHORTEST_WINDOW;

/// A session that is sampled once a window.
struct Bench {
    pacing: PacingRate,
    now: Time,
    received: u64,
    /// Segments that arrived, in order or not; 0 where they are not counted.
    arrived: u32,
    /// Bytes sent to the inbound leg's peer: in each window, and in all.
    returned: u64,
    returned_in_all: u64,
    outbound: LegSample,
    held: u64,
}

impl Bench {
    fn new(mode: Pacing, limit: Option<&str>) -> Self {
        let limit = limit.map(|rate| rate.parse().unwrap());
        Self {
            pacing: PacingRate::new(mode, limit),
            now: Time::ZERO,
            received: 0,
            arrived: 0,
            returned: 0,
            returned_in_all: 0,
            outbound: LegSample {
                segment_size: 1000,
                congestion_window: 100,
                peer_window: 1_000_000,
                ..LegSample::default()
            },
            held: 0,
        }
    }

    /// A window in which `bytes` arrived.
    fn bring(&mut self, bytes: u64) -> Option<u64> {
        self.received += bytes;
        self.returned_in_all += self.returned;
        let inbound = LegSample {
            segment_size: 1000,
            bytes_received: ByteSize::from_bytes(self.received),
            data_segments_received: self.arrived,
            bytes_acknowledged: ByteSize::from_bytes(self.returned_in_all),
            ..LegSample::default()
        };
        let held = ByteSize::from_bytes(self.held);
        let rates = self
            .pacing
            .handle_sample(self.now, &inbound, &self.outbound, held);
        self.now += WINDOW;
        rates.map(BitRate::bits_per_second)
    }

    /// `bytes` reach the outbound leg's peer.
    fn forward(&mut self, bytes: u64) {
        let before = self.outbound.bytes_acknowledged.bytes();
        self.outbound.bytes_acknowledged = ByteSize::from_bytes(before + bytes);
    }

    /// A session whose measured rate is steady at 8 Mbit/s.
    fn steady(mode: Pacing, limit: Option<&str>) -> Self {
        let mut bench = Self::new(mode, limit);
        for _ in 0..6 {
            bench.bring(100_000);
        }
        bench
    }

    fn rate(&self) -> Option<u64> {
        self.pacing.rate().map(BitRate::bits_per_second)
    }
}

#[test]
fn nothing_is_paced_while_the_rate_grows() {
    let mut bench = Bench::new(Pacing::Inbound, None);
    for power in 0..12 {
        assert_eq!(bench.bring(10_000 << power), None);
    }
    let largest = 10_000 << 11;
    let rates: Vec<_> = (0..4).filter_map(|_| bench.bring(largest)).collect();
    // A quarter above the largest amount in a tenth of a second.
    assert_eq!(rates, [largest * 8 * 10 * 5 / 4]);
}

#[test]
fn stalls_of_the_inbound_leg_do_not_lower_the_rate() {
    let mut bench = Bench::steady(Pacing::Inbound, None);
    assert_eq!(bench.rate(), Some(10_000_000));
    for _ in 0..30 {
        for bytes in [0, 100_000, 20_000, 60_000] {
            assert_eq!(bench.bring(bytes), None);
        }
    }
}

#[test]
fn what_a_filled_hole_makes_data_of_at_once_is_not_taken_for_the_rate_of_the_path() {
    for segment in [1000, 500, 9000] {
        let mut bench = Bench::new(Pacing::Inbound, None);
        // 8 Mbit/s, with a hole now and then.
        let windows = [
            100_000, 100_000, 0, 200_000, 100_000, 50_000, 150_000, 0, 0, 300_000,
        ];
        let mut rates = Vec::new();
        let full = [100_000; 12].into_iter();
        for bytes in full.chain(windows.into_iter().cycle().take(60)) {
            bench.arrived += 100_000_u32.div_ceil(segment);
            rates.extend(bench.bring(bytes));
        }
        // The rate is right as far as the size of the segments is known.
        let largest = rates.iter().max().unwrap() * 4 / 5;
        let known = if segment == 500 { 3 } else { 1 };
        assert!(
            (8_000_000..=8_400_000 * known).contains(&largest),
            "{segment}: {rates:?}"
        );
    }
}

#[test]
fn a_backlog_that_is_worked_off_does_not_raise_the_rate() {
    let mut bench = Bench::new(Pacing::Inbound, None);
    for bytes in [100_000; 12].into_iter().chain([0]) {
        bench.arrived += 100;
        bench.bring(bytes);
    }
    bench.held = 1;
    for _ in 0..4 * ESCAPE {
        bench.arrived += 100;
        bench.forward(120_000);
        assert_eq!(bench.bring(100_000), None);
    }
    // This holds no longer than until the backlog is gone.
    let rates: Vec<_> = (0..8)
        .filter_map(|_| {
            bench.arrived += 120;
            bench.forward(120_000);
            bench.bring(120_000)
        })
        .collect();
    assert_eq!(rates.last(), Some(&UNLIMITED));
}

#[test]
fn what_filled_a_hole_is_worked_off_without_raising_the_rate_though_the_path_is_not_full() {
    let mut bench = Bench::new(Pacing::Inbound, None);
    // After the loss the sender's window is smaller: 60 segments arrive behind the hole, and 60
    // fill it.
    let windows = [(100, 100_000); 6].into_iter();
    for (arrived, received) in windows.chain([(60, 0), (60, 120_000)]) {
        bench.arrived += arrived;
        bench.bring(received);
    }
    let rate = bench.rate();
    assert!(rate.is_some());
    bench.held = 1;
    for _ in 0..5 {
        bench.arrived += 60;
        bench.forward(70_000);
        bench.bring(60_000);
        assert_eq!(bench.rate(), rate);
    }
}

#[test]
fn a_slower_path_is_followed_after_the_windows_that_are_remembered() {
    let mut bench = Bench::steady(Pacing::Inbound, None);
    for _ in 0..2 * REMEMBERED {
        bench.bring(25_000);
    }
    assert_eq!(bench.rate(), Some(2_500_000));
}

#[test]
fn a_rate_that_holds_back_is_doubled_and_then_given_up() {
    let mut bench = Bench::steady(Pacing::Inbound, None);
    bench.held = 1;
    // Pacing itself keeps the inbound leg from being faster.
    let rates: Vec<_> = (0..8).filter_map(|_| bench.bring(125_000)).collect();
    assert_eq!(rates[0], 12_500_000);
    assert!(rates.contains(&25_000_000), "{rates:?}");
    assert_eq!(rates.last(), Some(&UNLIMITED));
    assert_eq!(bench.rate(), None);
}

#[test]
fn after_a_pause_nothing_is_paced() {
    let mut bench = Bench::steady(Pacing::Inbound, None);
    bench.now += TimeSpan::from_seconds(1);
    assert_eq!(bench.bring(1000), Some(UNLIMITED));
}

#[test]
fn the_configured_rate_is_the_upper_bound() {
    let mut bench = Bench::steady(Pacing::Auto, Some("3 Mbit/s"));
    // The start has set this limit already.
    assert_eq!(bench.rate(), Some(3_000_000));
    bench.now += TimeSpan::from_seconds(1);
    assert_eq!(bench.bring(1000), None);
    let mut off = Bench::new(Pacing::Fixed, None);
    assert!((0..20).all(|_| off.bring(100_000).is_none()));
}

/// Makes the leg fill its window, with or without a queue in the path.
fn filling(bench: &mut Bench, has_queue: bool) {
    let milliseconds = TimeSpan::from_milliseconds;
    bench.outbound.unacknowledged = 100;
    bench.outbound.slow_start_threshold = Some(80);
    bench.outbound.not_sent = ByteSize::from_bytes(50_000);
    bench.outbound.delivery_rate = BitRate::from_bits_per_second(4_000_000);
    bench.outbound.minimum_round_trip_time = Some(milliseconds(10));
    bench.outbound.round_trip_time = Some(milliseconds(if has_queue { 20 } else { 10 }));
}

#[test]
fn auto_is_bounded_by_what_the_outbound_leg_delivers_where_there_is_a_queue() {
    for (mode, has_queue, lost, expected) in [
        (Pacing::Inbound, true, 0, 10_000_000),
        (Pacing::Auto, true, 0, 5_000_000),
        // Without a queue, losses are no congestion, and the window may grow.
        (Pacing::Auto, false, 1, 10_000_000),
        // A queue and losses: the queue drains.
        (Pacing::Auto, true, 1, 3_800_000),
    ] {
        let mut bench = Bench::steady(mode, None);
        filling(&mut bench, has_queue);
        for _ in 0..3 {
            bench.outbound.segments_retransmitted += lost;
            bench.bring(100_000);
        }
        assert_eq!(bench.rate(), Some(expected), "{mode:?} {has_queue} {lost}");
    }
}

#[test]
fn after_a_loss_with_a_queue_the_queue_stays_short_for_a_while() {
    let mut bench = Bench::steady(Pacing::Auto, None);
    filling(&mut bench, true);
    bench.bring(100_000);
    bench.outbound.segments_retransmitted += 1;
    bench.bring(100_000);
    assert_eq!(bench.rate(), Some(3_800_000));
    // The queue has drained, and pacing holds the leg back: its delivery rate is no new
    // information, and no reason to give pacing up. The rate rises.
    filling(&mut bench, false);
    bench.outbound.unacknowledged = 20;
    for window in 1..CALM {
        bench.bring(40_000);
        let rate = if window == 1 { 4_200_000 } else { 4_500_000 };
        assert_eq!(bench.rate(), Some(rate));
    }
    for _ in 0..BINDING {
        bench.bring(40_000);
    }
    assert!(bench.rate().is_none_or(|rate| rate >= 10_000_000));
}

#[test]
fn a_growing_flight_is_not_what_the_path_takes() {
    let mut bench = Bench::steady(Pacing::Auto, None);
    filling(&mut bench, true);
    bench.outbound.slow_start_threshold = None;
    bench.bring(100_000);
    assert_eq!(bench.rate(), Some(10_000_000));
}

#[test]
fn a_rate_is_given_up_when_it_keeps_all_that_came_waiting() {
    let mut bench = Bench::steady(Pacing::Auto, None);
    bench.outbound.not_sent = ByteSize::from_bytes(50_000);
    // Waiting data fills the proxy, so that nothing more arrives.
    let rates: Vec<_> = (0..ESCAPE).filter_map(|_| bench.bring(0)).collect();
    assert_eq!(rates.last(), Some(&UNLIMITED));
}

proptest! {
    #[test]
    fn a_rate_is_never_below_the_least_nor_above_the_limit(
        limit in 200_000_u64..1_000_000_000,
        windows in proptest::collection::vec(
            (0_u64..10_000_000, 0_u64..2, 0_u32..200, 0_u64..2_000_000_000, 0_u64..900), 1..80),
    ) {
        let limit = BitRate::from_bits_per_second(limit);
        let mut bench = Bench::new(Pacing::Auto, None);
        bench.pacing = PacingRate::new(Pacing::Auto, limit);
        for (bytes, held, in_flight, delivered, pause) in windows {
            bench.held = held;
            bench.outbound.unacknowledged = in_flight;
            bench.outbound.not_sent = ByteSize::from_bytes(held);
            bench.outbound.delivery_rate = BitRate::from_bits_per_second(delivered);
            bench.now += TimeSpan::from_milliseconds(pause);
            if let Some(rate) = bench.bring(bytes) {
                prop_assert!(rate >= LEAST);
                prop_assert!(Some(rate) <= limit.map(BitRate::bits_per_second));
            }
        }
    }
}

#[test]
fn answers_to_requests_are_not_paced() {
    let mut bench = Bench::new(Pacing::Auto, None);
    bench.returned = 500;
    assert!((0..20).all(|_| bench.bring(50_000).is_none()));
    // A large response can be measured.
    bench.returned = 0;
    let rates: Vec<_> = (0..6).filter_map(|_| bench.bring(50_000)).collect();
    assert_eq!(rates, [5_000_000]);
    bench.returned = 500;
    assert_eq!(bench.bring(50_000), Some(UNLIMITED));
}
