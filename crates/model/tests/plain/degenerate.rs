//! Every input has a result, however extreme: no infinity, and nothing that is not a number.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use crate::common::{any_formula, at_least, config, log_uniform};
use midspan_model::asymmetry::{self, Asymmetry, BitErrors};
use midspan_model::burst::{self, Bottleneck};
use midspan_model::completion::{self, Start};
use midspan_model::leg::{Leg, Transport};
use midspan_model::overlay::{self, Analysis, Reading};
use midspan_model::path::{Hop, Section};
use midspan_model::pftk::{self, Conditions};
use midspan_model::placement::Setup;
use midspan_model::response::TimeOut;
use midspan_model::{Throughput, buffer};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use proptest::prelude::*;

/// A value from a wide range, one of its ends, or a value outside of it.
fn wild_loss() -> impl Strategy<Value = Probability> {
    prop_oneof![
        Just(Probability::ZERO),
        Just(Probability::ONE),
        log_uniform(1e-12, 1.0).prop_map(|p| Probability::from_f64(p).unwrap()),
        (0.99..=1.0f64).prop_map(|p| Probability::from_f64(p).unwrap()),
    ]
}

fn wild_span() -> impl Strategy<Value = TimeSpan> {
    prop_oneof![
        Just(TimeSpan::ZERO),
        Just(TimeSpan::from_nanoseconds(u64::MAX)),
        log_uniform(1.0, 1e19).prop_map(|n| TimeSpan::from_nanoseconds(n as u64)),
    ]
}

fn wild_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        log_uniform(1.0, 1.8e19).prop_map(|n| n as u64),
    ]
}

fn wild_rate() -> impl Strategy<Value = BitRate> {
    wild_u64().prop_map(|n| BitRate::from_bits_per_second(n.max(1)).unwrap())
}

fn wild_hop() -> impl Strategy<Value = Hop> {
    (
        wild_rate(),
        wild_span(),
        wild_loss(),
        prop::option::of(wild_rate()),
        prop::option::of(wild_u64()),
    )
        .prop_map(|(rate, round_trip, loss, return_rate, queue)| Hop {
            rate,
            round_trip,
            loss,
            return_rate,
            queue: queue.map(ByteSize::from_bytes),
        })
}

fn wild_transport() -> impl Strategy<Value = Transport> {
    (
        1u32..=u32::MAX,
        0u32..=u32::MAX,
        any_formula(),
        1u32..=u32::MAX,
        0u32..=u32::MAX,
        prop_oneof![
            wild_span().prop_map(TimeOut::Fixed),
            Just(TimeOut::FourRoundTrips),
            Just(TimeOut::Linux)
        ],
    )
        .prop_map(
            |(payload, headers, response, per_ack, ack_size, time_out)| {
                let mut transport = Transport::new(payload, headers, response).unwrap();
                transport.packets_per_ack = NonZeroU32::new(per_ack).unwrap();
                transport.ack_size = ack_size;
                transport.time_out = time_out;
                transport
            },
        )
}

fn wild_setup() -> impl Strategy<Value = Setup> {
    (
        wild_transport(),
        wild_u64(),
        wild_u64(),
        any::<bool>(),
        prop_oneof![Just(Reading::Printed), Just(Reading::Conserving)],
        prop_oneof![
            Just(f64::NAN),
            Just(0.0),
            Just(-1.0),
            Just(1e300),
            0.0..1.0f64
        ],
        0u32..200,
    )
        .prop_map(
            |(transport, receive, send, bounds, reading, epsilon, most_iterations)| Setup {
                transport,
                receive_buffer: ByteSize::from_bytes(receive),
                send_buffer: ByteSize::from_bytes(send),
                send_buffer_bounds_window: bounds,
                analysis: Analysis {
                    reading,
                    epsilon,
                    most_iterations,
                },
            },
        )
}

fn proper(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn proper_rate(rate: Throughput) -> bool {
    proper(rate.bits_per_second())
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn no_chain_is_without_an_answer(
        hops in prop::collection::vec(wild_hop(), 1..6),
        setup in wild_setup(),
        size in wild_u64(),
        share in 0.0..=1.0f64,
    ) {
        let sections: Vec<Section> = hops.iter().map(Section::of).collect();
        let chain = setup.chain(&sections);
        let outcome = overlay::analyse(&chain, &setup.analysis).unwrap();
        prop_assert!(proper_rate(outcome.throughput) && proper_rate(outcome.expected));
        prop_assert!(at_least(outcome.expected.bits_per_second(), outcome.throughput.bits_per_second()));
        prop_assert!(proper(outcome.coupling_loss()) && outcome.coupling_loss() <= 1.0);
        for leg in &outcome.legs {
            prop_assert!(proper_rate(leg.throughput) && proper_rate(leg.isolated.throughput));
            prop_assert!(proper(leg.stall) && proper(leg.isolated.time_out_probability));
            prop_assert!(leg.isolated.limits.iter().flatten().all(|rate| proper_rate(*rate)));
        }
        let legs: Vec<Leg> = chain.iter().map(|chained| chained.leg).collect();
        let size = ByteSize::from_bytes(size);
        let start = Start { initial_window: 0, ..Start::default() };
        for start in [start, Start::default()] {
            let time = completion::transfer_time(&legs[0], size, &start);
            prop_assert!(time.is_none_or(proper), "{time:?}");
            let time = completion::session_time(&legs, &[], &outcome, size, &start);
            prop_assert!(time.is_none_or(proper), "{time:?}");
        }
        prop_assert!(proper(burst::mean_burst(&legs[0])));
        let in_flight = buffer::in_flight(&legs[0], outcome.throughput);
        prop_assert!(in_flight.bytes() >= u64::from(legs[0].transport.payload()));
        buffer::knee(&chain, share, &setup.analysis).unwrap();
    }

    #[test]
    fn no_formula_is_without_an_answer(
        round_trip in wild_span(), loss in wild_loss(), time_out in wild_span(),
        b in 1u32..=u32::MAX, window in prop::option::of(log_uniform(1e-3, 1e18)),
    ) {
        let b = NonZeroU32::new(b).unwrap();
        let conditions = Conditions::new(round_trip, loss, time_out, b);
        let rates = [
            pftk::square_root(&conditions),
            pftk::approximate(&conditions),
            pftk::send_rate(&conditions, window),
            pftk::throughput(&conditions, window),
        ];
        for rate in rates.into_iter().flatten() {
            prop_assert!(proper(rate.packets_per_second()));
        }
        prop_assert!(pftk::window_at_loss(&conditions).is_none_or(|w| proper(w) && w >= 1.0));
        if let Some(window) = window {
            let share = pftk::time_out_probability(loss.as_f64(), window);
            prop_assert!((0.0..=1.0).contains(&share));
        }
    }

    #[test]
    fn no_asymmetry_is_without_an_answer(
        downstream in wild_rate(), upstream in wild_rate(), data_size: u32, ack_size: u32,
        per_ack in 1u32..=u32::MAX, ratio in 0.0..=1.0f64, bits in wild_u64(), delay in wild_span(),
        mtu: u32, window in wild_u64(), queue in wild_u64(), packets in wild_u64(),
    ) {
        let per_ack = NonZeroU32::new(per_ack).unwrap();
        let asymmetry = Asymmetry { downstream, upstream, data_size, ack_size };
        prop_assert!(proper(asymmetry.k()));
        prop_assert!(proper_rate(asymmetry.upstream_needed(per_ack)));
        prop_assert!(proper(asymmetry.packet_rate(per_ack).packets_per_second()));
        if let Some(ppa) = asymmetry.packets_per_ack() {
            prop_assert!(asymmetry.fits(ppa));
        }
        let errors = BitErrors::new(ratio, delay, per_ack).unwrap();
        prop_assert!(errors.throughput(bits).is_none_or(proper_rate));
        prop_assert!(errors.window_bits(bits).is_none_or(proper));
        prop_assert!(errors.retransmission_ratio(bits).is_none_or(proper));
        let advised = asymmetry::advised_segment(mtu, ByteSize::from_bytes(window), Some(&errors));
        prop_assert!(advised.is_none_or(|a| a.segment > 0 && a.fragments >= 1));
        let node = Bottleneck { arriving: downstream, leaving: upstream, queue };
        let meets = node.meet(packets);
        prop_assert!(meets.lost <= meets.waiting && meets.waiting <= packets);
        if let Some(fits) = node.largest_that_fits() {
            prop_assert!(!node.overflows(fits) && node.overflows(fits + 1));
        }
    }
}
