use std::net::IpAddr;

use super::*;
use midspan_units::ByteSize;
use proptest::prelude::*;

fn peer(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// 20 Mbit/s and 600 ms: 1.5 MB.
fn satellite(retransmitted: u32) -> LegSample {
    LegSample {
        delivery_rate: Some("20 Mbit/s".parse().unwrap()),
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(600)),
        bytes_acknowledged: ByteSize::from_bytes(10_000_000),
        segment_size: 1000,
        segments_retransmitted: retransmitted,
        ..LegSample::default()
    }
}

/// As if routes could give every window.
fn every() -> Vec<u32> {
    (LEAST_WINDOW..=MOST_WINDOW).collect()
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_seconds(seconds)
}

#[test]
fn half_of_what_the_path_carries_is_the_window_of_the_next_connection() {
    let mut paths = LearnedPaths::default();
    assert_eq!(paths.start(Time::ZERO, peer(1), 1000, &every()).rate, None);
    paths.note(Time::ZERO, peer(1), &satellite(0), true);
    let start = paths.start(Time::ZERO, peer(1), 1000, &every());
    assert_eq!(start.window, 750);
    assert_eq!(start.rate, satellite(0).delivery_rate);
    assert!(start.is_lossy);
    // Another peer is unknown.
    let other = paths.start(Time::ZERO, peer(2), 1000, &every());
    assert_eq!((other.window, other.rate), (80, None));
}

#[test]
fn thirty_starts_at_once_stay_within_what_the_path_carries() {
    let mut paths = LearnedPaths::default();
    paths.note(Time::ZERO, peer(1), &satellite(0), false);
    let windows = |paths: &mut LearnedPaths, now| -> u32 {
        (0..30)
            .map(|_| paths.start(now, peer(1), 1000, &every()).window)
            .sum()
    };
    // Ten segments for each start come on top, which any connection may send.
    let all = windows(&mut paths, Time::ZERO);
    assert!((1_400..=1_500 + 300).contains(&all), "{all}");
    assert_eq!(paths.start(Time::ZERO, peer(1), 1000, &every()).window, 10);
    let rate = paths.start(Time::ZERO, peer(1), 1000, &every()).rate;
    assert_eq!(rate, BitRate::from_bits_per_second(20_000_000 / 32));
    // A round trip later, the flights have been acknowledged.
    assert_eq!(paths.start(seconds(1), peer(1), 1000, &every()).window, 750);
}

#[test]
fn the_window_is_one_that_can_be_carried_out() {
    assert_eq!(windows(9), []);
    assert_eq!(windows(100), [20, 40, 80, 100]);
    assert_eq!(windows(u32::MAX), [20, 40, 80, 160, 320, 640, 1000]);
    let mut paths = LearnedPaths::default();
    paths.note(Time::ZERO, peer(1), &satellite(0), false);
    let mut window = |now, windows: &[u32]| {
        let start = paths.start(seconds(now), peer(1), 1000, windows);
        assert!(start.rate.is_some());
        start.window
    };
    assert_eq!(window(0, &windows(320)), 320);
    // With 750 - 160, the window 640 does not fit twice.
    assert_eq!(window(0, &windows(1000)), 320);
    assert_eq!(window(2, &[]), 10);
    assert_eq!(window(4, &[2]), 10);
}

#[test]
fn what_sessions_have_in_flight_is_not_given_out_again() {
    let mut paths = LearnedPaths::default();
    let one = SessionId(1);
    // The peer is unknown so far, and nothing is recorded.
    paths.note_in_flight(Time::ZERO, peer(1), one, (1_000_000, TimeSpan::ZERO));
    paths.note(Time::ZERO, peer(1), &satellite(0), false);
    let window =
        |paths: &mut LearnedPaths, now| paths.start(seconds(now), peer(1), 1000, &every()).window;
    assert_eq!(window(&mut paths, 0), 750);
    paths.note_in_flight(seconds(2), peer(1), one, (1_000_000, TimeSpan::ZERO));
    assert_eq!(window(&mut paths, 2), 166);
    // The reading is too old: the session has been idle since.
    assert_eq!(window(&mut paths, 4), 750);
    paths.note_in_flight(seconds(6), peer(1), one, (u64::MAX, TimeSpan::ZERO));
    paths.note_in_flight(
        seconds(6),
        peer(1),
        SessionId(2),
        (u64::MAX, TimeSpan::ZERO),
    );
    assert_eq!(window(&mut paths, 6), 10);
    paths.forget_in_flight(peer(1), one);
    paths.note_in_flight(seconds(8), peer(1), SessionId(2), (0, TimeSpan::ZERO));
    assert_eq!(window(&mut paths, 8), 750);
    for session in 0..1000 {
        paths.note_in_flight(seconds(8), peer(1), SessionId(session), (1, TimeSpan::ZERO));
    }
    assert_eq!(paths.paths[&host_prefix(peer(1))].running.len(), RUNNING);
}

#[test]
fn what_was_learned_ages_and_is_forgotten() {
    let mut paths = LearnedPaths::default();
    paths.note(Time::ZERO, peer(1), &satellite(0), false);
    assert_eq!(
        paths.start(seconds(601), peer(1), 1000, &every()).window,
        375
    );
    let forgotten = paths.start(seconds(3_601), peer(1), 1000, &every());
    assert_eq!((forgotten.window, forgotten.rate), (80, None));
}

#[test]
fn a_connection_that_lost_halves_it_and_one_that_did_not_restores_it() {
    let mut paths = LearnedPaths::default();
    let mut window = |retransmitted, is_lossy, now| {
        paths.note(seconds(now), peer(1), &satellite(retransmitted), is_lossy);
        paths.start(seconds(now), peer(1), 1000, &every()).window
    };
    assert_eq!(window(500, false, 0), 375);
    assert_eq!(window(500, false, 2), 187);
    // These losses are the path's own.
    assert_eq!(window(500, true, 4), 375);
    assert_eq!(window(0, false, 6), 750);
}

/// A transfer that has this many segments in flight for a round trip.
fn flight(segments: u32, has_queue: bool) -> TakenFlight {
    let mut taken = TakenFlight::default();
    let leg = LegSample {
        round_trip_time: Some(TimeSpan::from_milliseconds(
            600 + 300 * u64::from(has_queue),
        )),
        bytes_acknowledged: ByteSize::from_bytes(0),
        unacknowledged: segments,
        ..satellite(0)
    };
    taken.handle_sample(&leg);
    taken.handle_sample(&LegSample {
        bytes_acknowledged: ByteSize::from_bytes(u64::from(segments) * 1000),
        unacknowledged: 0,
        ..leg
    });
    taken
}

/// The knowledge after a transfer that delivered at `rate`, in flights of `segments`.
fn after(rate: &str, segments: u32, has_queue: bool) -> LearnedPaths {
    let mut paths = LearnedPaths::default();
    let leg = LegSample {
        delivery_rate: Some(rate.parse().unwrap()),
        ..satellite(0)
    };
    paths.note(Time::ZERO, peer(1), &leg, false);
    paths.note_flight(Time::ZERO, peer(1), &flight(segments, has_queue));
    paths
}

#[test]
fn a_start_is_below_a_cold_one_only_where_the_path_was_filled() {
    // A round trip holds 37 segments.
    for (segments, has_queue, window) in [(2, false, 80), (37, false, 80), (37, true, 18)] {
        let mut paths = after("500 kbit/s", segments, has_queue);
        let start = paths.start(Time::ZERO, peer(1), 1000, &every());
        assert_eq!(start.window, window, "{segments} {has_queue}");
        // Next to that start there is no room for more, if a queue has shown the capacity.
        let beside = paths.start(Time::ZERO, peer(1), 1000, &every());
        let expected = if has_queue { LEAST_WINDOW } else { 55 };
        assert_eq!(beside.window, expected);
        // There is none next to a session that sends, either.
        paths.note_in_flight(Time::ZERO, peer(1), SessionId(1), (50_000, TimeSpan::ZERO));
        let beside = paths.start(Time::ZERO, peer(1), 1000, &every());
        assert_eq!(beside.window, LEAST_WINDOW);
    }
}

#[test]
fn losses_keep_a_start_below_a_cold_one() {
    let mut paths = after("500 kbit/s", 2, false);
    let leg = LegSample {
        delivery_rate: Some("500 kbit/s".parse().unwrap()),
        ..satellite(1_000)
    };
    paths.note(Time::ZERO, peer(1), &leg, false);
    let start = paths.start(Time::ZERO, peer(1), 1000, &every());
    assert_eq!(start.window, LEAST_WINDOW);
}

#[test]
fn a_flight_that_arrived_without_a_queue_is_sent_again_whole() {
    let mut paths = after("4 Mbit/s", 300, false);
    let start = paths.start(Time::ZERO, peer(1), 1000, &every());
    assert_eq!(start.window, 300);
    // Within half a round trip, although no more than 4 Mbit/s have been seen.
    assert_eq!(start.rate, Some("8 Mbit/s".parse().unwrap()));
    let others = (0..29).map(|_| paths.start(Time::ZERO, peer(1), 1000, &every()).window);
    // The first start took 70 of the extra segments that cold starts share.
    assert_eq!(others.sum::<u32>(), 29 * LEAST_WINDOW + 90);
    let mut queued = after("4 Mbit/s", 300, true);
    assert_eq!(
        queued.start(Time::ZERO, peer(1), 1000, &every()).window,
        150
    );
    // The knowledge ages like all other.
    let mut old = after("4 Mbit/s", 300, false);
    assert_eq!(old.start(seconds(601), peer(1), 1000, &every()).window, 150);
}

#[test]
fn an_ipv6_network_is_one_peer_and_short_connections_teach_nothing() {
    let of = |text: &str| host_prefix(text.parse().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:192.0.2.1"), host_prefix(peer(1)));
    let mut paths = LearnedPaths::default();
    let short = LegSample {
        bytes_acknowledged: ByteSize::from_bytes(99_999),
        ..satellite(0)
    };
    paths.note(Time::ZERO, peer(1), &short, false);
    assert!(paths.is_empty());
}

#[test]
fn the_number_of_peers_is_bounded() {
    let mut paths = LearnedPaths::default();
    for number in 0..70_000_u32 {
        let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        paths.note(Time::ZERO, address, &satellite(0), false);
    }
    assert_eq!((paths.len(), paths.order.len()), (PEERS, PEERS));
}

proptest! {
    #[test]
    fn windows_are_bounded_whatever_was_measured(
        notes in proptest::collection::vec(
            (0_u64..u64::MAX, 0_u64..u64::MAX, 0_u32..u32::MAX, 0_u32..u32::MAX,
             0_u64..10_000, any::<bool>()), 1..50),
    ) {
        let mut paths = LearnedPaths::default();
        let mut now = Time::ZERO;
        for (rate, time, segment_size, retransmitted, pause, is_lossy) in notes {
            let leg = LegSample {
                delivery_rate: BitRate::from_bits_per_second(rate),
                minimum_round_trip_time: Some(TimeSpan::from_nanoseconds(time)),
                segment_size,
                segments_retransmitted: retransmitted,
                ..satellite(0)
            };
            paths.note(now, peer(1), &leg, is_lossy);
            let start = paths.start(now, peer(1), segment_size, &every());
            prop_assert!((LEAST_WINDOW..=MOST_WINDOW).contains(&start.window));
            now += TimeSpan::from_seconds(pause);
        }
    }
}

#[test]
fn a_raised_start_is_bounded_by_the_window_that_was_chosen() {
    let mut paths = LearnedPaths::default();
    let cold = paths.start(Time::ZERO, peer(1), 1000, &[20, 40, 80, 640]);
    assert_eq!((cold.window, cold.bound), (80, None));
    let raised = cold.raised(640);
    assert_eq!((raised.window, raised.bound), (640, Some(80)));
    assert_eq!(raised.first_flight(), cold.first_flight());
    // The kernel has not raised it.
    assert_eq!(cold.raised(80), cold);
    assert_eq!(cold.raised(10), cold);
    let again = raised.raised(1000);
    assert_eq!((again.window, again.bound), (1000, Some(80)));
}
