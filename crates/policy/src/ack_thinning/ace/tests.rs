use proptest::prelude::*;

use super::*;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn ms(milliseconds: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(milliseconds)
}

fn timestamp(milliseconds: u64) -> RoundTrip {
    RoundTrip {
        source: RoundTripSource::Timestamp,
        span: ms(milliseconds),
    }
}

const ONE: AckSample = AckSample {
    number: 0,
    newly_covered: 1,
    arrived: 1,
    duplicate: false,
    selective: false,
    selection_grows: false,
    fills_gap: false,
    window_update: false,
    congestion_echo: false,
    other: false,
};

const DUPLICATE: AckSample = AckSample {
    newly_covered: 0,
    duplicate: true,
    ..ONE
};

/// A flow with `rcv_RTT` 100 ms that got one segment every 10 ms for `until` milliseconds.
fn steady(until: u64) -> AceThinning {
    let mut flow = AceThinning::new(AceSettings::default());
    flow.handle_round_trip(at(0), timestamp(100));
    for time in (0..until).step_by(10) {
        flow.acknowledge(at(time), &ONE);
    }
    flow
}

#[test]
fn a_window_is_what_arrives_in_a_round_trip_and_then_every_third_ack_leaves() {
    let mut flow = AceThinning::new(AceSettings::default());
    flow.handle_round_trip(at(0), timestamp(100));
    // The first round: 0, 10, … 90 ms are 10 segments, and all are acknowledged at once.
    for time in (0..100).step_by(10) {
        assert_eq!(flow.acknowledge(at(time), &ONE), AckVerdict::Pass, "{time}");
        assert_eq!(flow.est_cwnd(), 1);
    }
    // It ends with the segment at 100 ms: est_cwnd = 10, ppa = ⌊10 / 3⌋ = 3, ATO = 3 × 10 ms.
    assert_eq!(
        flow.acknowledge(at(100), &ONE),
        AckVerdict::HoldUntil(at(130))
    );
    assert_eq!((flow.est_cwnd(), flow.ppa(), flow.ato()), (10, 3, ms(30)));
    assert_eq!(
        flow.acknowledge(at(110), &ONE),
        AckVerdict::HoldUntil(at(130))
    );
    assert_eq!(flow.acknowledge(at(120), &ONE), AckVerdict::Pass);
    assert_eq!(
        flow.acknowledge(at(130), &ONE),
        AckVerdict::HoldUntil(at(160))
    );
}

#[test]
fn a_smaller_count_is_ignored() {
    let mut flow = steady(110);
    assert_eq!(flow.est_cwnd(), 10);
    // One segment each 50 ms: two in a round trip.
    for time in (150..1000).step_by(50) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!(flow.est_cwnd(), 10);
    // Two each 10 ms: 20 in a round trip.
    for time in (1000..1300).step_by(10) {
        let two = AckSample {
            newly_covered: 2,
            arrived: 2,
            ..ONE
        };
        flow.acknowledge(at(time), &two);
    }
    assert_eq!((flow.est_cwnd(), flow.ppa()), (20, 5));
}

#[test]
fn three_duplicates_set_the_window_to_one() {
    let mut flow = steady(110);
    for time in [110, 120] {
        assert_eq!(
            flow.acknowledge(at(time), &DUPLICATE),
            AckVerdict::PassAfterHeld
        );
        assert_eq!(flow.est_cwnd(), 10);
    }
    assert_eq!(
        flow.acknowledge(at(130), &DUPLICATE),
        AckVerdict::PassAfterHeld
    );
    assert_eq!((flow.est_cwnd(), flow.ppa()), (1, 1));
    // Later data is acknowledged at once, until a round trip has been counted again.
    assert_eq!(flow.acknowledge(at(140), &ONE), AckVerdict::Pass);
    // A fourth duplicate changes nothing more.
    for time in (150..260).step_by(10) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!(flow.est_cwnd(), 10);
}

/// A flow that thins in recoveries and has met a loss: `est_cwnd` was 20.
fn in_recovery() -> AceThinning {
    let mut flow = AceThinning::new(AceSettings {
        thins_in_recovery: true,
        ..AceSettings::default()
    });
    flow.handle_round_trip(at(0), timestamp(100));
    for time in (0..110).step_by(5) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!(flow.est_cwnd(), 20);
    for time in [110, 115, 120] {
        let verdict = flow.acknowledge(at(time), &SELECTIVE);
        assert_eq!(verdict, AckVerdict::PassAfterHeld);
    }
    flow
}

const SELECTIVE: AckSample = AckSample {
    selective: true,
    ..DUPLICATE
};

const GROWS: AckSample = AckSample {
    selection_grows: true,
    ..SELECTIVE
};

#[test]
fn in_a_recovery_three_duplicates_leave_at_once_and_those_after_them_are_thinned() {
    let mut flow = in_recovery();
    assert_eq!((flow.est_cwnd(), flow.ppa()), (10, 3));
    let held = |verdict| matches!(verdict, AckVerdict::HoldUntil(_));
    assert!(held(flow.acknowledge(at(125), &GROWS)));
    assert!(held(flow.acknowledge(at(130), &GROWS)));
    assert_eq!(flow.acknowledge(at(135), &GROWS), AckVerdict::Pass);
    assert!(held(flow.acknowledge(at(140), &GROWS)));
    // An ACK that does not contain all information of the held one.
    let verdict = flow.acknowledge(at(145), &SELECTIVE);
    assert_eq!(verdict, AckVerdict::PassAfterHeld);
    assert!(held(flow.acknowledge(at(150), &GROWS)));
    // Half of the gap is filled: both leave.
    let part = AckSample {
        selective: true,
        fills_gap: true,
        ..ONE
    };
    assert_eq!(flow.acknowledge(at(155), &part), AckVerdict::PassAfterHeld);
    // Another loss, while the first is repaired.
    for time in [160, 165, 170] {
        flow.acknowledge(at(time), &SELECTIVE);
    }
    assert_eq!((flow.est_cwnd(), flow.ppa()), (5, 1));
    assert_eq!(flow.acknowledge(at(175), &GROWS), AckVerdict::Pass);
}

#[test]
fn in_a_recovery_an_ack_with_new_information_leaves_at_once() {
    for sample in [
        AckSample {
            congestion_echo: true,
            ..GROWS
        },
        AckSample {
            other: true,
            ..GROWS
        },
        AckSample {
            duplicate: false,
            window_update: true,
            ..GROWS
        },
    ] {
        let verdict = in_recovery().acknowledge(at(125), &sample);
        assert_eq!(verdict, AckVerdict::PassAfterHeld, "{sample:?}");
    }
}

#[test]
fn without_sack_or_the_setting_a_loss_is_treated_as_in_the_paper() {
    let mut flow = in_recovery();
    flow.acknowledge(at(125), &ONE);
    for time in [130, 135, 140] {
        flow.acknowledge(at(time), &DUPLICATE);
    }
    assert_eq!(flow.est_cwnd(), 1);
    let mut flow = steady(110);
    for time in [110, 115, 120] {
        flow.acknowledge(at(time), &SELECTIVE);
    }
    assert_eq!(flow.est_cwnd(), 1);
    let verdict = flow.acknowledge(at(125), &GROWS);
    assert_eq!(verdict, AckVerdict::PassAfterHeld);
}

/// A flow that counts only recent arrivals; `est_cwnd` is 20.
fn counting_recent() -> AceThinning {
    let mut flow = AceThinning::new(AceSettings {
        thins_in_recovery: true,
        counts_only_recent: true,
        ..AceSettings::default()
    });
    flow.handle_round_trip(at(0), timestamp(100));
    for time in (0..200).step_by(5) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!((flow.est_cwnd(), flow.ppa()), (20, 5));
    flow
}

#[test]
fn a_window_that_shrank_unnoticed_is_what_arrives_lately() {
    let mut flow = counting_recent();
    // One segment each 20 ms: five in a round trip.
    for time in (200..400).step_by(20) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!((flow.est_cwnd(), flow.ppa()), (20, 1));
    assert_eq!(flow.acknowledge(at(400), &ONE), AckVerdict::Pass);
    for time in (405..500).step_by(5) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!((flow.est_cwnd(), flow.ppa()), (20, 5));
}

#[test]
fn a_single_long_round_trip_makes_no_window() {
    let mut flow = counting_recent();
    // One segment each 20 ms.
    for time in (200..700).step_by(20) {
        flow.acknowledge(at(time), &ONE);
    }
    flow.handle_round_trip(at(690), timestamp(300));
    flow.acknowledge(at(700), &ONE);
    assert_eq!((flow.rcv_rtt(), flow.ppa()), (Some(ms(300)), 1));
    // The path is slower: 14 segments in seven eighths of a round trip.
    flow.handle_round_trip(at(710), timestamp(300));
    flow.acknowledge(at(720), &ONE);
    assert_eq!(flow.ppa(), 4);
}

#[test]
fn after_any_sign_of_a_loss_what_arrives_is_counted_anew() {
    let fills = AckSample {
        fills_gap: true,
        ..ONE
    };
    for sign in [DUPLICATE, SELECTIVE, fills] {
        let mut flow = counting_recent();
        flow.acknowledge(at(200), &sign);
        assert_eq!((flow.est_cwnd(), flow.ppa()), (20, 1), "{sign:?}");
        // The sixth ACK may cover two segments, the fifteenth five.
        for time in 1..6 {
            let verdict = flow.acknowledge(at(200 + time), &ONE);
            assert_eq!(verdict, AckVerdict::Pass, "{time} {sign:?}");
        }
        flow.acknowledge(at(206), &ONE);
        assert_eq!(flow.ppa(), 2);
        for time in 7..16 {
            flow.acknowledge(at(200 + time), &ONE);
        }
        assert_eq!(flow.ppa(), 5);
    }
}

#[test]
fn after_a_fast_recovery_half_of_the_window_is_left() {
    let recover = |duplicates: u64, silence: u64| {
        let mut flow = counting_recent();
        for time in 0..duplicates {
            flow.acknowledge(at(200 + time), &SELECTIVE);
        }
        let fills = AckSample {
            fills_gap: true,
            ..ONE
        };
        flow.acknowledge(at(210 + silence), &fills);
        flow.acknowledge(at(212 + silence), &ONE);
        flow.ppa()
    };
    // 17 had arrived in seven eighths of a round trip; 8 are left, and the newest one.
    assert_eq!(recover(3, 0), 3);
    assert_eq!(recover(2, 0), 1);
    // A time-out, with or without duplicates before it.
    assert_eq!(recover(3, 200), 1);
}

/// A flow with the settings of hosts: a burst of ten segments in 30 ms after a round trip of 20 ms,
/// then bursts of `burst` segments, each `gap` ms after the last, with round trips of 400 ms.
fn bursts(settings: AceSettings, burst: u64, gap: u64) -> AceThinning {
    let mut flow = AceThinning::new(settings);
    flow.handle_round_trip(at(0), timestamp(20));
    for segment in 0..10 {
        flow.acknowledge(at(3 * segment), &ONE);
    }
    flow.handle_round_trip(at(30), timestamp(400));
    flow.handle_round_trip(at(30), timestamp(400));
    for begin in (30..6000).step_by(gap as usize) {
        for segment in 1..=burst {
            flow.acknowledge(at(begin + 3 * segment), &ONE);
        }
    }
    flow
}

#[test]
fn while_the_upstream_limits_an_ack_may_cover_more_than_five_of_a_large_window() {
    let hosts = AceSettings::of_hosts();
    // 60 segments in a round trip, of 133 that the downstream carries.
    let flow = bursts(hosts, 9, 60);
    assert!((6..=16).contains(&flow.ppa()), "{}", flow.ppa());
    // A third of the window is the limit: 18 segments arrive in seven eighths of a round trip.
    assert!(bursts(hosts, 6, 130).ppa() <= 6);
    // The downstream is full.
    assert_eq!(bursts(hosts, 20, 60).ppa(), 5);
    // The rule of the paper, or a fixed maximum.
    let four = hosts.at_most(MaximumPacketsPerAck::Fixed(4));
    assert_eq!(bursts(four, 9, 60).ppa(), 4);
    assert_eq!(bursts(AceSettings::default(), 9, 60).ppa(), 5);
}

#[test]
fn a_loss_halves_what_was_added() {
    let mut flow = bursts(AceSettings::of_hosts(), 9, 60);
    let before = flow.most_packets();
    for time in 0..3 {
        flow.acknowledge(at(6000 + time), &SELECTIVE);
    }
    assert_eq!(flow.most_packets(), (before / 2).max(5));
}

#[test]
fn silence_of_more_than_1_2_round_trips_sets_the_window_to_one() {
    let mut flow = steady(110);
    assert_eq!(flow.rcv_rto(), Some(ms(120)));
    flow.acknowledge(at(220), &ONE);
    assert_eq!(flow.est_cwnd(), 10, "120 ms are not more than 120 ms");
    assert_eq!(flow.acknowledge(at(341), &ONE), AckVerdict::Pass);
    assert_eq!(flow.est_cwnd(), 1);
    // The silence is not a gap between packets of a flow.
    assert!(flow.gap.span().unwrap() < ms(30));
}

#[test]
fn nothing_waits_while_no_round_trip_is_known() {
    let mut flow = AceThinning::new(AceSettings::default());
    for time in 0..1000 {
        assert_eq!(flow.acknowledge(at(time), &ONE), AckVerdict::Pass);
    }
    assert_eq!(flow.estimate().round_trip, None);
}

#[test]
fn a_handshake_gives_the_round_trip_until_something_better_does() {
    let mut flow = AceThinning::new(AceSettings::default());
    let handshake = |span| RoundTrip {
        source: RoundTripSource::Handshake,
        span: ms(span),
    };
    flow.handle_round_trip(at(0), handshake(70));
    assert_eq!(flow.rcv_rtt(), Some(ms(70)));
    flow.handle_round_trip(at(1), timestamp(100));
    flow.handle_round_trip(at(2), handshake(50));
    assert_eq!(flow.rcv_rtt(), Some(ms(100)));
    flow.handle_round_trip(at(3), timestamp(90));
    assert_eq!(flow.rcv_rtt(), Some(ms(90)));
}

#[test]
fn no_ack_waits_longer_than_the_limit() {
    let settings = AceSettings {
        ack_timeout_limit: ms(25),
        ..AceSettings::default()
    };
    let mut flow = AceThinning::new(settings);
    flow.handle_round_trip(at(0), timestamp(100));
    for time in (0..100).step_by(10) {
        flow.acknowledge(at(time), &ONE);
    }
    assert_eq!(
        flow.acknowledge(at(100), &ONE),
        AckVerdict::HoldUntil(at(125))
    );
}

/// An event at the receiver, with the time since the previous event.
#[derive(Debug, Clone)]
enum Event {
    Ack(AckSample),
    RoundTrip(u64),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let flag = || prop::bool::weighted(0.04);
    let ack = (1_u32..4, flag(), flag(), flag(), flag(), flag()).prop_map(
        |(covered, duplicate, selective, window_update, congestion_echo, grows)| {
            let duplicate = duplicate || grows;
            let same = duplicate || window_update;
            Event::Ack(AckSample {
                newly_covered: if same { 0 } else { covered },
                arrived: if window_update { 0 } else { covered },
                duplicate,
                selective: selective || grows,
                selection_grows: grows,
                window_update: window_update && !duplicate,
                congestion_echo,
                ..ONE
            })
        },
    );
    let event = prop_oneof![20 => ack, 1 => (1_u64..400).prop_map(Event::RoundTrip)];
    prop::collection::vec(
        (prop_oneof![9 => 0_u64..12, 1 => 0_u64..600], event),
        1..400,
    )
}

proptest! {
    /// Plays the caller, as `crate::AckPolicy` describes it, next to the policy.
    #[test]
    fn what_must_hold(
        events in events(),
        adaptive in any::<bool>(),
        thins_in_recovery in any::<bool>(),
        counts_only_recent in any::<bool>(),
        upstream_may_limit in any::<bool>(),
    ) {
        let limit = ms(100);
        let settings = AceSettings {
            max_packets_per_ack: if adaptive {
                MaximumPacketsPerAck::Adaptive { least: 2, most: 8 }
            } else {
                MaximumPacketsPerAck::Fixed(5)
            },
            thins_in_recovery,
            counts_only_recent,
            max_while_upstream_limits: upstream_may_limit.then_some(16),
            ..AceSettings::default()
        };
        let mut flow = AceThinning::new(settings);
        let mut now = at(0);
        // Numbers of ACKs: the newest one asked for, the newest one that left, the held one.
        let (mut number, mut left) = (0_u32, 0_u32);
        let mut held: Option<(u32, Time, Time)> = None;
        for (gap, event) in events {
            now += ms(gap);
            if let Some((waiting, _, deadline)) = held && deadline <= now {
                left = waiting;
                held = None;
            }
            let mut sample = match event {
                Event::RoundTrip(span) => {
                    flow.handle_round_trip(now, timestamp(span));
                    continue;
                }
                Event::Ack(sample) => sample,
            };
            number += sample.newly_covered;
            sample.number = number;
            let verdict = flow.acknowledge(now, &sample);
            match verdict {
                AckVerdict::Pass | AckVerdict::PassAfterHeld => {
                    left = number;
                    held = None;
                }
                AckVerdict::HoldUntil(deadline) => {
                    let may_wait = thins_in_recovery && sample.says_only_that_selection_grows();
                    prop_assert!(!sample.is_urgent() || may_wait);
                    let since = held.map_or(now, |(_, since, _)| since);
                    prop_assert!(deadline > now || held.is_some());
                    // No ACK is held longer than the ATO's limit, counted from the first one.
                    prop_assert!(deadline.since(since) <= limit);
                    if let Some((_, _, before)) = held {
                        prop_assert!(deadline <= before);
                    }
                    held = Some((number, since, deadline));
                }
            }
            // At least three ACKs for each estimated window: the held ACK and one more like it
            // never cover more than a third.
            let waiting = number - left;
            if held.is_some() {
                prop_assert!(waiting * 3 <= flow.est_cwnd(), "{waiting} of {}", flow.est_cwnd());
                let most = if upstream_may_limit { 16 } else { 8 };
                prop_assert!(waiting < flow.ppa() || waiting < most);
            }
            // The newest ACK is held or has left.
            prop_assert_eq!(held.map_or(left, |(waiting, _, _)| waiting), number);
        }
    }
}
