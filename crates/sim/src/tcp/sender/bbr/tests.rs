//! BBR with ACKs made by hand. Segments have 1,448 bytes, the round trip is 100 ms.

use super::*;
use crate::random::stream_for;

const SEGMENT: u64 = 1448;
const ROUND: u64 = 100;

fn ms(milliseconds: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(milliseconds)
}

struct Script {
    bbr: Bbr,
    connection: Connection,
    limited: bool,
}

impl Script {
    fn new(seed: u64) -> Self {
        let connection = Connection {
            now: Time::ZERO,
            delivered: 0,
            delivered_at: Time::ZERO,
            lost: 0,
            in_flight: 0,
            window: 10,
            state: LossState::Open,
            smoothed: Some(ms(ROUND)),
            shortest: Some(ms(ROUND)),
            segment: SEGMENT,
            release: Time::ZERO,
            rate_limit: u64::MAX,
            is_application_limited: false,
        };
        Self {
            bbr: Bbr::new(stream_for(seed, "gain cycle", "test"), &connection),
            connection,
            limited: false,
        }
    }

    /// A round in which `segments` are delivered in `time` milliseconds by one ACK, after which
    /// `in_flight` are in flight.
    fn round(&mut self, segments: u64, time: u64, in_flight: u64) -> Reaction {
        self.ack(segments, time, in_flight, 0)
    }

    fn ack(&mut self, segments: u64, time: u64, in_flight: u64, losses: u64) -> Reaction {
        let connection = &mut self.connection;
        let prior = connection.delivered;
        connection.now += ms(time);
        connection.delivered_at = connection.now;
        connection.delivered += segments;
        connection.lost += losses;
        let prior_in_flight = connection.in_flight;
        connection.in_flight = in_flight;
        let reaction = self.bbr.handle_acknowledged(
            connection,
            &Acknowledged {
                segments,
                losses,
                prior_in_flight,
                sample: Some(RateSample {
                    prior_delivered: prior,
                    delivered: segments,
                    interval: Some(ms(time)),
                    is_application_limited: self.limited,
                }),
                round_trip: Some(ms(time)),
                is_delayed: false,
            },
        );
        connection.window = reaction.window;
        reaction
    }

    /// Until the path is full at 100 segments in each round, and the queue is drained.
    fn full(seed: u64) -> Self {
        let mut script = Self::new(seed);
        for segments in [10, 20, 40, 80, 100, 100, 100, 100] {
            script.round(segments, ROUND, 2 * segments);
        }
        assert_eq!(script.bbr.mode, Mode::Drain);
        script.round(100, ROUND, 100);
        assert_eq!(script.bbr.mode, Mode::ProbeBandwidth);
        script
    }

    /// The pacing rate as a share of the bandwidth of 100 segments in each round, in percent.
    fn paced(&self) -> u64 {
        (self.bbr.pacing_rate() * 100).div_ceil(1000 * SEGMENT)
    }
}

#[test]
fn it_starts_with_2_885_initial_windows_in_a_round_trip() {
    let script = Script::new(1);
    // 2.885 · 10 · 1,448 bytes in 0.1 s, and 1 % less.
    let expected = 2_885 * 10 * SEGMENT * 10 / 1000 * 99 / 100;
    let rate = script.bbr.pacing_rate();
    assert!(
        rate.abs_diff(expected) * 1000 < expected * 3,
        "{rate}, {expected}"
    );
    // Without a round trip, 1 ms is assumed.
    let connection = Connection {
        smoothed: None,
        ..script.connection
    };
    let bbr = Bbr::new(stream_for(1, "", ""), &connection);
    assert!(bbr.pacing_rate() > 99 * rate);
}

#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more() {
    let mut script = Script::new(1);
    for segments in [10, 20, 40, 80, 100] {
        script.round(segments, ROUND, 2 * segments);
        assert_eq!(script.bbr.mode, Mode::Startup);
        assert_eq!(script.bbr.pacing_gain, HIGH_GAIN);
    }
    // 100 is a quarter more than 80, 124 is less than a quarter more than 100.
    script.round(124, ROUND, 240);
    script.round(124, ROUND, 240);
    assert_eq!(script.bbr.mode, Mode::Startup);
    let reaction = script.round(124, ROUND, 240);
    assert_eq!(script.bbr.mode, Mode::Drain);
    assert_eq!(script.bbr.pacing_gain, DRAIN_GAIN);
    // The product, and three bursts of three segments, rounded up to an even number.
    assert_eq!(reaction.threshold, Some(134));
    // In Drain, until no more than the product and three bursts of two are in flight.
    script.round(124, ROUND, 131);
    assert_eq!(script.bbr.mode, Mode::Drain);
    script.round(124, ROUND, 130);
    assert_eq!(script.bbr.mode, Mode::ProbeBandwidth);
}

#[test]
fn rounds_that_the_application_limits_do_not_end_startup() {
    let mut script = Script::new(1);
    script.round(40, ROUND, 20);
    script.limited = true;
    for _ in 0..10 {
        script.round(30, ROUND, 20);
    }
    assert_eq!(script.bbr.mode, Mode::Startup);
    assert_eq!(script.bbr.bandwidth(), Bandwidth::of(40, ms(ROUND)));
}

#[test]
fn the_cycle_probes_drains_and_cruises() {
    let mut script = Script::full(1);
    let mut gains = Vec::new();
    for _ in 0..24 {
        script.round(100, ROUND + 1, 140);
        gains.push(script.bbr.pacing_gain * 100 / ONE);
    }
    let probe = gains.iter().position(|gain| *gain == 125).unwrap();
    assert_eq!(
        gains[probe..probe + 8],
        [125, 75, 100, 100, 100, 100, 100, 100]
    );
    // Probing needs 5/4 of the product in flight, or a loss.
    let mut script = Script::full(1);
    while script.bbr.phase != 0 {
        script.round(100, ROUND + 1, 100);
    }
    for _ in 0..5 {
        script.round(100, ROUND + 1, 100);
        assert_eq!(script.bbr.phase, 0);
    }
    script.ack(100, ROUND + 1, 100, 1);
    assert_eq!(script.bbr.phase, 1);
}

#[test]
fn the_first_phase_is_any_but_draining() {
    let mut seen = [0; 8];
    for seed in 0..200 {
        seen[Script::full(seed).bbr.phase] += 1;
    }
    assert_eq!(seen[1], 0);
    assert_eq!(
        seen.iter().filter(|count| **count > 10).count(),
        7,
        "{seen:?}"
    );
}

#[test]
fn cwnd_is_twice_the_product_and_at_least_four() {
    let mut script = Script::full(1);
    for _ in 0..3 {
        script.round(100, ROUND + 1, 100);
    }
    // Twice 100, three bursts of two; one ACK for all segments of a round is a group of ACKs.
    let excess = script.bbr.aggregation.window(script.bbr.bandwidth());
    let probe = if script.bbr.phase == 0 { 2 } else { 0 };
    let flight = 200 + excess + 6;
    assert_eq!(script.connection.window, flight + flight % 2 + probe);
    assert!(script.paced() <= 124);
    let mut slow = Script::new(1);
    for _ in 0..30 {
        slow.round(1, ROUND, 1);
    }
    assert!(slow.bbr.full.reached);
    assert!(
        (4..=10).contains(&slow.connection.window),
        "{}",
        slow.connection.window
    );
    // Below 1.2 Mbit/s, segments leave one by one.
    assert_eq!(slow.bbr.burst(SEGMENT, Some(ms(ROUND))), 1);
    assert_eq!(script.bbr.burst(SEGMENT, Some(ms(ROUND))), 2);
    // On a path of 0.4 ms, 64 KiB leave at once.
    let short = TimeSpan::from_nanoseconds(400_000);
    assert_eq!(script.bbr.burst(SEGMENT, Some(short)), 45);
}

#[test]
fn after_ten_seconds_the_round_trip_is_measured_for_200_ms() {
    let mut script = Script::full(1);
    let window = script.connection.window;
    let mut rounds = 0;
    while script.bbr.mode != Mode::ProbeRoundTrip {
        script.round(100, ROUND + 1, 100);
        rounds += 1;
        assert!(rounds < 110);
    }
    // The shortest round trip was seen last when the queue was drained.
    assert_eq!(rounds, 100);
    assert_eq!(script.connection.window, 4);
    // The time runs when no more than four segments are in flight.
    let reaction = script.round(96, ROUND + 1, 5);
    assert!(reaction.limits_flight);
    script.round(1, ROUND + 1, 4);
    script.round(4, ROUND, 4);
    script.round(4, ROUND, 4);
    assert_eq!(script.bbr.mode, Mode::ProbeRoundTrip);
    script.round(4, ROUND, 4);
    assert_eq!(script.bbr.mode, Mode::ProbeBandwidth);
    let after = script.connection.window;
    assert!(after.abs_diff(window) <= 8, "{after} {window}");
}

#[test]
fn the_first_round_of_recovery_conserves_packets() {
    let mut script = Script::full(1);
    script.round(100, ROUND, 100);
    let before = script.connection.window;
    script.bbr.handle_loss(before);
    script.connection.state = LossState::Recovery;
    // Ten segments are delivered, one is lost, 80 remain in flight.
    let connection = &mut script.connection;
    connection.delivered += 10;
    connection.in_flight = 80;
    let ack = Acknowledged {
        segments: 10,
        losses: 1,
        prior_in_flight: 91,
        ..Acknowledged::default()
    };
    let reaction = script.bbr.handle_acknowledged(connection, &ack);
    assert_eq!(reaction.window, 90);
    script.connection.window = 90;
    // A round later it grows again; at the end of recovery it is as before.
    script.round(10, ROUND, 80);
    assert_eq!(script.round(20, ROUND, 80).window, 120);
    script.connection.state = LossState::Open;
    let after = script.round(1, ROUND, 80).window;
    assert!(after.abs_diff(before) <= 4, "{after} {before}");
}

#[test]
fn from_idle_it_sends_at_the_bandwidth() {
    let mut script = Script::full(1);
    while script.bbr.phase != 0 {
        script.round(100, ROUND + 1, 100);
    }
    script.round(100, ROUND + 1, 100);
    assert_eq!(script.paced(), 124);
    script.connection.is_application_limited = true;
    script.connection.in_flight = 0;
    script.connection.now += TimeSpan::from_seconds(20);
    script.bbr.handle_start(&script.connection);
    assert_eq!(script.paced(), 99);
    // The shortest round trip has expired, but it is measured by the sending itself.
    script.round(10, ROUND, 10);
    assert_eq!(script.bbr.mode, Mode::ProbeBandwidth);
}
