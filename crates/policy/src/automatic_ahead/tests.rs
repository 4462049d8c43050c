use super::*;
use proptest::prelude::*;

const SEGMENT: u32 = 1_000;
const ADDED: u8 = 6;
const WINDOW: u64 = 65_536;

fn leg() -> AcceptedLeg {
    AcceptedLeg {
        round_trip: TimeSpan::from_milliseconds(600),
        window: WINDOW,
        window_scale: 7,
        segment_size: SEGMENT,
    }
}

/// A leg to a known client.
fn prepared() -> AutomaticAhead {
    AutomaticAhead::prepare(&leg(), None, &known(), true).unwrap()
}

/// What a session leaves that has sent nothing ahead of the window.
fn known() -> AheadHistory {
    after(&AheadRecord {
        sent: 100,
        ..AheadRecord::default()
    })
}

fn trusted() -> AheadHistory {
    after(&AheadRecord {
        is_taken: true,
        ..AheadRecord::default()
    })
}

fn after(record: &AheadRecord) -> AheadHistory {
    let mut histories = crate::ahead_history::AheadHistories::default();
    let client = std::net::IpAddr::from([192, 0, 2, 1]);
    histories.note(Time::ZERO, client, record);
    histories.of(Time::ZERO, client)
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn rate(bits: u64) -> Option<BitRate> {
    BitRate::from_bits_per_second(bits)
}

/// A reading with these thousands of bytes acknowledged and in flight, and this window.
fn reading(acknowledged: u64, in_flight: u32, window: u64) -> LegSample {
    LegSample {
        segment_size: SEGMENT,
        round_trip_time: Some(TimeSpan::from_milliseconds(600)),
        minimum_round_trip_time: Some(TimeSpan::from_milliseconds(600)),
        peer_window: window << ADDED,
        bytes_acknowledged: ByteSize::from_bytes(acknowledged * 1_000),
        unacknowledged: in_flight,
        congestion_window: 80 + u32::try_from(acknowledged).unwrap(),
        segments_sent: u32::try_from(acknowledged).unwrap() + in_flight,
        ..LegSample::default()
    }
}

/// A leg whose first flight of 80 segments is acknowledged at 10 segments in 5 ms: 16 Mbit/s.
fn after_first_flight() -> AutomaticAhead {
    let mut ahead = prepared();
    ahead.handle_sample(at(0), &reading(0, 80, WINDOW));
    for turn in 0..=8_u32 {
        let acknowledged = u64::from(10 * turn);
        let sample = reading(acknowledged, 80, WINDOW + acknowledged * 1_000);
        ahead.handle_sample(at(600 + 5 * u64::from(turn)), &sample);
    }
    ahead
}

fn cap(ahead: &AutomaticAhead) -> u64 {
    ahead.cap().map_or(u64::MAX, ByteSize::bytes)
}

#[test]
fn only_a_long_leg_with_a_window_that_can_be_scaled_is_prepared() {
    let prepare = |change: fn(&mut AcceptedLeg)| {
        let mut leg = leg();
        change(&mut leg);
        AutomaticAhead::prepare(&leg, None, &AheadHistory::default(), true)
    };
    let ahead = prepare(|_| {}).unwrap();
    assert_eq!((ahead.added_scale(), ahead.scaled_window()), (6, 4 << 20));
    let limit = |leg: &mut AcceptedLeg| leg.round_trip = LONG_HANDSHAKE;
    assert!(prepare(limit).is_some());
    assert!(prepare(|leg| leg.round_trip = TimeSpan::from_milliseconds(149)).is_none());
    assert!(prepare(|leg| leg.window = 0).is_none());
    assert!(prepare(|leg| leg.window = 7_999).is_none());
    // The window is large enough already, or no larger scale exists.
    assert!(prepare(|leg| leg.window = 8 << 20).is_none());
    assert!(prepare(|leg| leg.window_scale = 14).is_none());
    assert_eq!(
        prepare(|leg| leg.window_scale = 12).unwrap().added_scale(),
        2
    );
}

#[test]
fn a_known_client_gets_eighty_segments_if_its_window_can_grow() {
    assert_eq!(cap(&prepared()), 80_000);
    for (scale, history) in [(7, AheadHistory::default()), (0, known()), (3, known())] {
        let leg = AcceptedLeg {
            window_scale: scale,
            ..leg()
        };
        let ahead = AutomaticAhead::prepare(&leg, None, &history, true).unwrap();
        assert_eq!((cap(&ahead), ahead.state()), (WINDOW, AheadState::Watching));
    }
    // A larger window is not reduced.
    let large = AcceptedLeg {
        window: 200_000,
        ..leg()
    };
    let ahead = AutomaticAhead::prepare(&large, None, &AheadHistory::default(), true).unwrap();
    assert_eq!(cap(&ahead), 200_000);
}

#[test]
fn the_first_flight_measures_the_rate_and_lifts_the_cap() {
    let ahead = after_first_flight();
    assert_eq!(ahead.state(), AheadState::Ahead);
    // 16 Mbit/s carry 1.2 MB in 600 ms; 16 times what is acknowledged is 1.28 MB.
    assert_eq!(cap(&ahead), 1_280_000);
    assert!(ahead.record().is_taken && !ahead.record().has_failed);
    assert_eq!(ahead.record().rate, rate(16_000_000));
}

#[test]
fn a_window_that_does_not_limit_is_not_exceeded() {
    let mut ahead = prepared();
    for turn in 0..=8_u32 {
        let mut sample = reading(u64::from(10 * turn), 10, WINDOW);
        sample.congestion_window = 40;
        ahead.handle_sample(at(600 + 5 * u64::from(turn)), &sample);
    }
    assert_eq!(ahead.state(), AheadState::Watching);
}

#[test]
fn a_queue_does_not_lift_the_cap() {
    let mut ahead = prepared();
    for turn in 0..=8_u32 {
        let mut sample = reading(u64::from(10 * turn), 80, WINDOW);
        sample.round_trip_time = Some(TimeSpan::from_milliseconds(900));
        ahead.handle_sample(at(600 + 5 * u64::from(turn)), &sample);
    }
    assert_eq!(ahead.state(), AheadState::Watching);
}

/// Data that leaves after the retransmission arrives behind it, when the window has moved on.
#[test]
fn a_loss_takes_the_leg_back_to_two_windows_for_good() {
    const GROWN: u64 = WINDOW + 80_000;
    let mut ahead = after_first_flight();
    let lost = |acknowledged, in_flight| LegSample {
        segments_retransmitted: 1,
        ..reading(acknowledged, in_flight, GROWN)
    };
    ahead.handle_sample(at(700), &lost(80, 500));
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::TakenBack, 2 * GROWN)
    );
    assert!(ahead.record().has_failed);
    for turn in 0..100_u32 {
        let now = at(1_300 + u64::from(turn) * 100);
        ahead.handle_sample(now, &lost(u64::from(580 + turn * 60), 60));
    }
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::TakenBack, 2 * GROWN)
    );
}

/// The ACK that fills a gap acknowledges at once what had arrived before.
#[test]
fn a_gap_that_is_filled_is_no_rate() {
    let mut ahead = after_first_flight();
    let lost = |acknowledged, in_flight| LegSample {
        segments_retransmitted: 1,
        ..reading(acknowledged, in_flight, WINDOW)
    };
    ahead.handle_sample(at(700), &lost(80, 500));
    for (milliseconds, acknowledged) in [(1_290, 80), (1_300, 580), (1_310, 590), (1_340, 600)] {
        ahead.handle_sample(at(milliseconds), &lost(acknowledged, 0));
    }
    assert_eq!(ahead.record().rate, rate(16_000_000));
}

#[test]
fn a_loss_within_the_window_is_no_failure_of_the_client() {
    let mut ahead = prepared();
    ahead.handle_sample(at(0), &reading(0, 40, WINDOW));
    let lost = LegSample {
        segments_retransmitted: 1,
        ..reading(20, 40, WINDOW)
    };
    ahead.handle_sample(at(600), &lost);
    assert_eq!(ahead.state(), AheadState::TakenBack);
    assert!(!ahead.record().has_failed);
    // This loss counts, and those of data that was beyond the window do not.
    assert_eq!(ahead.record().lost, 1);
    let mut ahead = after_first_flight();
    for lost in 1..100 {
        let sample = LegSample {
            segments_retransmitted: lost,
            ..reading(80, 500, WINDOW)
        };
        ahead.handle_sample(at(700 + u64::from(lost)), &sample);
    }
    assert_eq!(ahead.record().lost, 0);
}

#[test]
fn a_slow_reader_and_a_shortage_take_the_leg_back() {
    let mut ahead = after_first_flight();
    ahead.handle_sample(at(800), &reading(100, 500, 30_000));
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::TakenBack, 30_000)
    );
    assert!(!ahead.record().has_failed);
    // A window of zero stops the kernel, and one segment makes it request the next window.
    ahead.handle_sample(at(900), &reading(120, 400, 0));
    assert_eq!(cap(&ahead), 1_000);
    // A window that has room for less than a segment is not exceeded.
    ahead.handle_sample(at(950), &reading(120, 400, 700));
    assert_eq!(cap(&ahead), 700);
    let mut ahead = after_first_flight();
    ahead.handle_shortage();
    ahead.handle_sample(at(800), &reading(100, 500, WINDOW * 2));
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::TakenBack, WINDOW * 2)
    );
    // A client that has never taken data ahead.
    let mut ahead = prepared();
    ahead.handle_sample(at(0), &reading(0, 80, WINDOW));
    let lost = LegSample {
        segments_retransmitted: 1,
        ..reading(0, 80, WINDOW)
    };
    ahead.handle_sample(at(600), &lost);
    assert_eq!(cap(&ahead), WINDOW);
}

/// Such a client still acknowledges what arrives, until its window is full.
#[test]
fn a_client_that_stops_reading_gets_nothing_beyond_its_window() {
    let leg = AcceptedLeg {
        window: 64_000,
        ..leg()
    };
    let unknown = AheadHistory::default();
    let mut ahead = AutomaticAhead::prepare(&leg, None, &unknown, true).unwrap();
    let added = ahead.added;
    let reading = |acknowledged, in_flight, window: u64| LegSample {
        peer_window: window << added,
        ..reading(acknowledged, in_flight, window)
    };
    assert_eq!(ahead.write_limit(), Some(64_000));
    for (turn, acknowledged) in [0_u32, 20, 40, 60].into_iter().enumerate() {
        let window = 64_000 - u64::from(acknowledged) * 1_000;
        let sample = reading(acknowledged.into(), 64 - acknowledged, window);
        ahead.handle_sample(at(600 + 100 * turn as u64), &sample);
        assert_eq!(ahead.write_limit(), Some(64_000));
    }
    ahead.handle_sample(at(1_000), &reading(64, 0, 0));
    assert_eq!(ahead.write_limit(), Some(65_000));
    // It reads on.
    ahead.handle_sample(at(20_000), &reading(64, 0, 64_000));
    assert_eq!(ahead.write_limit(), Some(128_000));
}

#[test]
fn nothing_more_goes_ahead_to_a_client_that_stops_reading() {
    const GROWN: u64 = WINDOW + 80_000;
    let mut ahead = after_first_flight();
    assert_eq!(ahead.write_limit(), Some(80_000 + 1_280_000));
    ahead.handle_sample(at(700), &reading(120, 500, GROWN - 40_000));
    assert_eq!(ahead.state(), AheadState::Ahead);
    assert_eq!(ahead.write_limit(), Some(80_000 + GROWN));
    // A reading without a new ACK shows nothing new.
    ahead.handle_sample(at(710), &reading(120, 500, GROWN - 40_000));
    assert_eq!(ahead.write_limit(), Some(80_000 + GROWN));
    ahead.handle_sample(at(720), &reading(130, 500, GROWN));
    assert_eq!(ahead.write_limit(), Some(130_000 + 1_500_000));
}

/// Data behind a gap cannot be read, so it takes room, and the ACKs of a repair may not move the window.
#[test]
fn a_client_with_a_gap_has_not_stopped_reading() {
    const GROWN: u64 = WINDOW + 80_000;
    let mut ahead = after_first_flight();
    let lost = |acknowledged, window| LegSample {
        segments_retransmitted: 1,
        ..reading(acknowledged, 500, window)
    };
    ahead.handle_sample(at(700), &lost(80, GROWN));
    ahead.handle_sample(at(1_300), &lost(100, GROWN - 20_000));
    let beyond = GROWN - 20_000;
    assert_eq!(ahead.write_limit(), Some(80_000 + GROWN + beyond));
}

/// As the window of a client that does not read shrinks, it becomes smaller than the congestion window. It is no
/// limit of the transfer for this reason.
#[test]
fn a_client_that_stops_reading_is_not_sent_ahead() {
    let mut ahead = prepared();
    for turn in 0..=8_u32 {
        let acknowledged = u64::from(10 * turn);
        let sample = reading(acknowledged, 80, 400_000 + acknowledged * 1_000);
        ahead.handle_sample(at(600 + 5 * u64::from(turn)), &sample);
    }
    assert_eq!(ahead.state(), AheadState::Watching);
    let mut sample = reading(160, 400, 400_000);
    sample.congestion_window = 450;
    ahead.handle_sample(at(700), &sample);
    assert_eq!(ahead.state(), AheadState::Watching);
    assert_eq!(ahead.write_limit(), Some(560_000));
}

#[test]
fn what_waits_to_be_sent_counts_before_the_limit_goes() {
    let mut ahead = after_first_flight();
    let mut sample = reading(2_000, 1_000, 4_200_000);
    ahead.handle_sample(at(3_000), &sample);
    assert_eq!(ahead.write_limit(), None);
    sample.not_sent = ByteSize::from_bytes(30_000);
    ahead.handle_sample(at(3_100), &sample);
    assert_eq!(ahead.write_limit(), Some(6_200_000));
}

#[test]
fn the_cap_goes_when_the_window_has_grown_and_comes_again_when_it_shrinks() {
    let mut ahead = after_first_flight();
    ahead.handle_sample(at(2_000), &reading(1_000, 1_000, 1_500_000));
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::Watching, 1_500_000)
    );
    ahead.handle_sample(at(3_000), &reading(2_000, 1_000, 4_200_000));
    assert_eq!(ahead.cap(), None);
    ahead.handle_sample(at(3_100), &reading(2_100, 1_000, 900_000));
    assert_eq!(
        (ahead.state(), cap(&ahead)),
        (AheadState::TakenBack, 900_000)
    );
}

#[test]
fn a_trusted_client_gets_what_the_known_rate_carries_from_the_first_byte() {
    let of = |rate| AutomaticAhead::prepare(&leg(), rate, &trusted(), true).unwrap();
    let ahead = of(rate(8_000_000));
    // 8 Mbit/s carry 600 KB in 600 ms.
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::Ahead, 750_000));
    assert_eq!(cap(&of(rate(1_000_000_000))), MOST.bytes());
    assert_eq!(cap(&of(rate(8_000))), 80_000);
    assert_eq!(of(None).state(), AheadState::Watching);
}

/// While other sessions of the network carry data, the client's window holds in each state.
#[test]
fn next_to_others_the_window_holds() {
    const GROWN: u64 = WINDOW + 80_000;
    let mut ahead = after_first_flight();
    ahead.set_allowed(false);
    ahead.handle_sample(at(700), &reading(80, 500, GROWN));
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::Watching, GROWN));
    // Alone again, it goes ahead again: nothing was lost.
    ahead.set_allowed(true);
    ahead.handle_sample(at(800), &reading(80, 500, GROWN));
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::Ahead, 1_280_000));
    ahead.set_allowed(false);
    let lost = LegSample {
        segments_retransmitted: 1,
        ..reading(80, 500, GROWN)
    };
    ahead.handle_sample(at(900), &lost);
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::TakenBack, GROWN));
    // From the first byte on, for a client that took data ahead before.
    let fast = rate(8_000_000);
    let mut ahead = AutomaticAhead::prepare(&leg(), fast, &trusted(), false).unwrap();
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::Watching, WINDOW));
    ahead.set_allowed(true);
    ahead.handle_sample(at(0), &reading(0, 60, WINDOW));
    ahead.handle_sample(at(600), &reading(20, 60, WINDOW));
    assert_eq!((ahead.state(), cap(&ahead)), (AheadState::Ahead, 750_000));
}

#[test]
fn readings_follow_each_other_sooner_while_the_rate_is_measured() {
    let mut ahead = prepared();
    let after = |ahead: &AutomaticAhead, now| ahead.poll_timeout(at(now)).since(at(now));
    let nine = TimeSpan::from_nanoseconds(9_375_000);
    assert_eq!(after(&ahead, 0), nine);
    ahead.handle_sample(at(0), &reading(0, 80, WINDOW));
    assert_eq!(after(&ahead, 2_399), nine);
    // The cap is the limit, but the client has not acknowledged anything.
    let rare = TimeSpan::from_milliseconds(75);
    assert_eq!(after(&ahead, 2_400), rare);
    ahead.handle_sample(at(2_400), &reading(10, 80, WINDOW));
    assert_eq!(after(&ahead, 2_400), nine);
    assert_eq!(after(&ahead, 4_800), rare);
    ahead.handle_sample(at(2_400), &reading(80, 10, WINDOW));
    assert_eq!(after(&ahead, 2_400), rare);
}

proptest! {
    /// With any readings: the limit is the right edge of the client's window, and beyond it at most the bound, or
    /// one window after a loss.
    #[test]
    fn the_cap_is_bounded(
        steps in proptest::collection::vec(
            (0_u64..2_000, 0_u64..1 << 24, 0_u32..5_000, 0_u64..1 << 22, 0_u32..2, 0_u32..4_000, any::<bool>()),
            1..60),
        scale in 0_u8..=14,
        window in 0_u64..1 << 22,
        known in proptest::option::of(1_u64..1 << 40),
        is_trusted in any::<bool>(),
        mut is_allowed in any::<bool>(),
    ) {
        let leg = AcceptedLeg { window, window_scale: scale, ..leg() };
        let history = if is_trusted { trusted() } else { AheadHistory::default() };
        let known = known.and_then(rate);
        let Some(mut ahead) = AutomaticAhead::prepare(&leg, known, &history, is_allowed) else {
            return Ok(());
        };
        prop_assert!(scale + ahead.added_scale() <= 14);
        prop_assert!(cap(&ahead) <= MOST.bytes().max(window));
        let (mut now, mut acknowledged, mut lost) = (0, 0, 0);
        let mut is_taken_back = false;
        for (later, more, in_flight, window, again, congestion, allowed) in steps {
            now += later;
            acknowledged += more;
            lost += again;
            is_allowed = allowed;
            ahead.set_allowed(is_allowed);
            let sample = LegSample {
                bytes_acknowledged: ByteSize::from_bytes(acknowledged),
                peer_window: window << ahead.added_scale(),
                segments_retransmitted: lost,
                congestion_window: congestion,
                ..reading(0, in_flight, 0)
            };
            ahead.handle_sample(at(now), &sample);
            is_taken_back |= ahead.state() == AheadState::TakenBack;
            prop_assert_eq!(is_taken_back, ahead.state() == AheadState::TakenBack);
            let edge = acknowledged + window;
            let least = if window == 0 { u64::from(SEGMENT) } else { 0 };
            let limit = ahead.write_limit();
            match limit {
                Some(limit) if !is_allowed => prop_assert_eq!(limit, edge + least),
                Some(limit) if is_taken_back => prop_assert!(limit <= edge + window.max(least)),
                Some(limit) => prop_assert!(limit <= edge + MOST.bytes()),
                None => prop_assert!(window / 2 >= u64::from(congestion.max(in_flight)) * 1_000),
            }
            prop_assert!(limit.is_none_or(|limit| limit >= edge));
            prop_assert_eq!(ahead.cap().map(ByteSize::bytes), limit.map(|limit| limit - acknowledged));
            prop_assert!(ahead.poll_timeout(at(now)) > at(now));
        }
    }
}
