//! Properties that hold for every input: monotone in loss, delay, bandwidth and buffers; a split is
//! never better than its slowest leg, and equal to it with endless send buffers.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use crate::common::{any_response, at_least, config, log_uniform};
use midspan_model::completion::{self, Start};
use midspan_model::leg::{Leg, Transport};
use midspan_model::overlay::{self, Analysis, Outcome, Reading};
use midspan_model::path::{Hop, Path, Section};
use midspan_model::pftk::{self, Conditions};
use midspan_model::placement::{self, Setup};
use midspan_model::response::Response;
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use proptest::prelude::*;

fn rate(megabits: f64) -> BitRate {
    BitRate::from_bits_per_second((megabits * 1e6) as u64).unwrap()
}

fn span(seconds: f64) -> TimeSpan {
    TimeSpan::from_nanoseconds((seconds * 1e9) as u64)
}

fn hop(megabits: f64, seconds: f64, loss: f64) -> Hop {
    Hop {
        rate: rate(megabits),
        round_trip: span(seconds),
        loss: Probability::from_f64(loss).unwrap(),
        return_rate: None,
        queue: None,
    }
}

fn bytes(size: f64) -> ByteSize {
    ByteSize::from_bytes(size as u64)
}

fn transport(response: Response) -> Transport {
    let mut transport = Transport::linux();
    transport.response = response;
    transport
}

/// 1 to 4 hops in the ranges for which the analysis is compared with the simulator.
fn any_hops() -> impl Strategy<Value = Vec<Hop>> {
    let one = (
        log_uniform(1.0, 1000.0),
        log_uniform(0.001, 0.3),
        log_uniform(1e-5, 0.05),
    )
        .prop_map(|(rate, delay, loss)| hop(rate, delay, loss));
    prop::collection::vec(one, 1..=4)
}

fn any_buffer() -> impl Strategy<Value = ByteSize> {
    log_uniform(8e3, 4e6).prop_map(bytes)
}

#[derive(Debug, Clone)]
struct Case {
    hops: Vec<Hop>,
    setup: Setup,
}

fn any_case(reading: Reading) -> impl Strategy<Value = Case> {
    (
        any_hops(),
        any_buffer(),
        any_buffer(),
        any_response(),
        any::<bool>(),
    )
        .prop_map(move |(hops, receive, send, response, bounds)| Case {
            hops,
            setup: Setup {
                transport: transport(response),
                receive_buffer: receive,
                send_buffer: send,
                send_buffer_bounds_window: bounds,
                analysis: Analysis {
                    reading,
                    ..Analysis::default()
                },
            },
        })
}

/// A split with every hop as a separate leg.
fn split(case: &Case) -> Outcome {
    let sections: Vec<Section> = case.hops.iter().map(Section::of).collect();
    overlay::analyse(&case.setup.chain(&sections), &case.setup.analysis).unwrap()
}

fn through(case: &Case) -> f64 {
    split(case).throughput.bits_per_second()
}

fn worse_loss(loss: Probability, factor: f64) -> Probability {
    Probability::from_f64((loss.as_f64() * factor).min(1.0)).unwrap()
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn more_loss_is_never_faster(
        case in any_case(Reading::Conserving), at in 0usize..4, factor in 1.0..50.0f64,
    ) {
        let mut worse = case.clone();
        let at = at % worse.hops.len();
        worse.hops[at].loss = worse_loss(worse.hops[at].loss, factor);
        prop_assert!(at_least(through(&case), through(&worse)), "{} {}", through(&case), through(&worse));
    }

    #[test]
    fn more_delay_is_never_faster(
        case in any_case(Reading::Conserving), at in 0usize..4, more in log_uniform(1e-4, 10.0),
    ) {
        let mut worse = case.clone();
        let at = at % worse.hops.len();
        worse.hops[at].round_trip = worse.hops[at].round_trip + span(more);
        prop_assert!(at_least(through(&case), through(&worse)), "{} {}", through(&case), through(&worse));
    }

    #[test]
    fn less_bandwidth_is_never_faster(
        case in any_case(Reading::Conserving), at in 0usize..4, divisor in 1u64..1000,
    ) {
        let mut worse = case.clone();
        let at = at % worse.hops.len();
        let slower = worse.hops[at].rate.bits_per_second() / divisor;
        worse.hops[at].rate = BitRate::from_bits_per_second(slower.max(1)).unwrap();
        prop_assert!(at_least(through(&case), through(&worse)), "{} {}", through(&case), through(&worse));
    }

    #[test]
    fn smaller_buffers_are_never_faster(
        case in any_case(Reading::Conserving), send in 1u64..100, receive in 1u64..100,
    ) {
        let mut worse = case.clone();
        worse.setup.send_buffer = ByteSize::from_bytes(case.setup.send_buffer.bytes() / send);
        prop_assert!(at_least(through(&case), through(&worse)));
        let less = worse.clone();
        worse.setup.receive_buffer =
            ByteSize::from_bytes(case.setup.receive_buffer.bytes() / receive);
        prop_assert!(at_least(through(&less), through(&worse)));
    }

    #[test]
    fn a_split_is_never_better_than_its_slowest_leg(
        conserving in any_case(Reading::Conserving), printed in any_case(Reading::Printed),
    ) {
        for case in [conserving, printed] {
            let outcome = split(&case);
            let slowest = outcome.legs[outcome.slowest].isolated.throughput;
            prop_assert_eq!(outcome.expected, slowest);
            prop_assert!(at_least(slowest.bits_per_second(), outcome.throughput.bits_per_second()));
            // The printed iteration may oscillate between two throughputs; it reports that.
            prop_assert!(outcome.converged || case.setup.analysis.reading == Reading::Printed);
        }
    }

    #[test]
    fn endless_send_buffers_give_the_slowest_leg(case in any_case(Reading::Conserving)) {
        let mut endless = case;
        endless.setup.send_buffer = ByteSize::from_bytes(1 << 50);
        let outcome = split(&endless);
        prop_assert!(outcome.coupling_loss() < 1e-6, "{}", outcome.coupling_loss());
    }

    #[test]
    fn one_leg_is_that_leg(case in any_case(Reading::Conserving)) {
        let mut one = case;
        one.hops.truncate(1);
        let outcome = split(&one);
        let alone = outcome.legs[0].isolated.throughput;
        prop_assert!((outcome.throughput.bits_per_second() / alone.bits_per_second() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_analysis_is_the_same_twice(case in any_case(Reading::Printed)) {
        prop_assert_eq!(split(&case), split(&case));
    }

    #[test]
    fn a_leg_never_gets_faster_with_loss_or_delay(
        response in any_response(),
        round_trip in log_uniform(1e-4, 10.0),
        loss in log_uniform(1e-9, 1.0),
        factor in 1.0..20.0f64,
        megabits in log_uniform(0.1, 10_000.0),
        buffer in any_buffer(),
    ) {
        let leg = |seconds: f64, loss: f64| {
            let leg = Leg {
                section: Section::of(&hop(megabits, seconds, loss)),
                transport: transport(response),
                receive_buffer: buffer,
                send_buffer: None,
            };
            leg.isolated().throughput.bits_per_second()
        };
        let here = leg(round_trip, loss);
        prop_assert!(at_least(here, leg(round_trip, (loss * factor).min(1.0))));
        prop_assert!(at_least(here, leg(round_trip * factor, loss)));
    }

    #[test]
    fn the_full_model_never_falls_as_the_window_grows(
        round_trip in log_uniform(1e-4, 10.0), loss in log_uniform(1e-9, 1.0), b in 1u32..9,
        window in log_uniform(1.0, 1e5), factor in 1.0..20.0f64,
    ) {
        let loss = Probability::from_f64(loss).unwrap();
        let b = NonZeroU32::new(b).unwrap();
        let conditions = Conditions::new(span(round_trip), loss, span(1.0 + round_trip), b);
        for formula in [pftk::send_rate, pftk::throughput] {
            let rate = |window| formula(&conditions, Some(window)).unwrap().packets_per_second();
            prop_assert!(at_least(rate(window * factor), rate(window)));
        }
    }

    #[test]
    fn transfers_never_get_faster_with_size_or_loss(
        case in any_case(Reading::Conserving), size in log_uniform(1.0, 1e9), factor in 1.0..50.0f64,
    ) {
        let time = |case: &Case, size: f64| {
            let leg = case.setup.chain(&[Section::of(&case.hops[0])])[0].leg;
            completion::transfer_time(&leg, bytes(size), &Start::default()).unwrap()
        };
        prop_assert!(at_least(time(&case, size * factor), time(&case, size)));
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn no_placement_beats_the_fastest_slowest_leg(
        hops in prop::collection::vec(any_hops(), 2..4), proxies in 0usize..4,
        send in any_buffer(), receive in any_buffer(),
    ) {
        let hops: Vec<Hop> = hops.into_iter().flatten().collect();
        let setup = Setup {
            transport: Transport::linux(),
            receive_buffer: receive,
            send_buffer: send,
            send_buffer_bounds_window: true,
            analysis: Analysis::default(),
        };
        let path = Path::new(hops).unwrap();
        let proxies = proxies.min(path.places());
        let (_, fastest) = placement::fastest_slowest_leg(&path, &setup, proxies).unwrap();
        let ranking = placement::rank(&path, &setup, proxies, 3).unwrap();
        prop_assert!(ranking.exhaustive);
        for placement in &ranking.placements {
            prop_assert!(at_least(fastest.bits_per_second(), placement.outcome.throughput.bits_per_second()));
        }
    }
}
