//! The window as a Markov chain: monotonicity, degenerate input, and comparison with related
//! models.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU32;

use crate::common::{config, log_uniform};
use midspan_model::pftk::{self, Conditions};
use midspan_model::window::{Recovery, WindowModel};
use midspan_units::{Probability, TimeSpan};
use proptest::prelude::*;

/// Relative size of the grid's steps: see the module.
const GRID: f64 = 0.02;

fn any_model() -> impl Strategy<Value = WindowModel> {
    (
        (
            prop_oneof![Just(Recovery::Reno), Just(Recovery::NewReno)],
            1u32..4,
        ),
        log_uniform(1e-3, 1.0),
        log_uniform(10.0, 1e5),
        log_uniform(1e-6, 0.2),
        prop::option::of(log_uniform(3.0, 1e4)),
        prop::option::of(log_uniform(3.0, 1e4)),
        log_uniform(0.2, 3.0),
    )
        .prop_map(
            |((recovery, b), round_trip, bandwidth, loss, window, queue, time_out)| WindowModel {
                recovery,
                round_trip,
                bandwidth,
                loss,
                packets_per_ack: f64::from(b),
                growth: f64::from(b),
                window,
                queue,
                time_out,
            },
        )
}

fn rate(model: &WindowModel) -> f64 {
    model.solve().unwrap().rate
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn more_loss_is_never_faster(model in any_model(), factor in 1.0..30.0f64) {
        let worse = WindowModel { loss: (model.loss * factor).min(0.99), ..model };
        prop_assert!(rate(&worse) <= rate(&model) * (1.0 + GRID), "{} {}", rate(&model), rate(&worse));
    }

    #[test]
    fn a_longer_path_is_never_faster(model in any_model(), factor in 1.0..30.0f64) {
        let worse = WindowModel { round_trip: model.round_trip * factor, ..model };
        prop_assert!(rate(&worse) <= rate(&model) * (1.0 + GRID), "{} {}", rate(&model), rate(&worse));
    }

    #[test]
    fn a_faster_link_is_never_slower(model in any_model(), factor in 1.0..30.0f64) {
        let better = WindowModel { bandwidth: model.bandwidth * factor, ..model };
        prop_assert!(rate(&better) >= rate(&model) * (1.0 - GRID), "{} {}", rate(&model), rate(&better));
    }

    #[test]
    fn a_longer_time_out_is_never_faster(model in any_model(), factor in 1.0..30.0f64) {
        let worse = WindowModel { time_out: model.time_out * factor, ..model };
        prop_assert!(rate(&worse) <= rate(&model) * (1.0 + 1e-6));
    }

    #[test]
    fn new_reno_is_never_slower_than_reno(model in any_model()) {
        let [reno, new_reno] = [Recovery::Reno, Recovery::NewReno]
            .map(|recovery| rate(&WindowModel { recovery, ..model }));
        prop_assert!(new_reno >= reno * (1.0 - GRID), "{reno} {new_reno}");
    }

    #[test]
    fn everything_is_a_number_within_its_bounds(model in any_model(), loss in 0.0..1.0f64) {
        for loss in [loss, 0.0, 1e-300, 1.0 - 1e-15] {
            let Some(outcome) = (WindowModel { loss, ..model }).solve() else { continue };
            prop_assert!(outcome.rate >= 0.0 && outcome.rate <= model.bandwidth);
            prop_assert!((0.0..=1.0).contains(&outcome.time_out_probability));
            for value in [outcome.stall, outcome.losses, outcome.in_flight] {
                prop_assert!(value >= 0.0 && value.is_finite(), "{outcome:?}");
            }
            if let Some(window) = model.window {
                let most = window.floor().max(1.0) / model.round_trip;
                prop_assert!(outcome.rate <= most * (1.0 + 1e-9), "{} {most}", outcome.rate);
            }
        }
    }
}

fn model() -> WindowModel {
    WindowModel {
        recovery: Recovery::NewReno,
        round_trip: 0.1,
        bandwidth: 1e6,
        loss: 1e-4,
        packets_per_ack: 1.0,
        growth: 1.0,
        window: None,
        queue: None,
        time_out: 1.0,
    }
}

#[test]
fn a_long_path_with_a_small_loss_is_that_of_pftk() {
    for loss in [1e-6, 1e-5, 1e-4, 1e-3] {
        let chain = rate(&WindowModel { loss, ..model() });
        let conditions = Conditions::new(
            TimeSpan::from_milliseconds(100),
            Probability::from_f64(loss).unwrap(),
            TimeSpan::from_seconds(1),
            NonZeroU32::MIN,
        );
        let root = pftk::square_root(&conditions).unwrap().packets_per_second();
        // The square-root formula assumes a fixed window; random losses give it 7 % more.
        assert!((chain / root - 1.06).abs() < 0.06, "{loss}: {chain} {root}");
    }
}

/// With delayed ACKs, a sender that counts bytes is nearly as fast as one with an ACK for each packet; one
/// that counts ACKs is slower by about the square root of two.
#[test]
fn a_sender_that_counts_bytes_grows_as_with_an_ack_for_each_packet() {
    for loss in [1e-5, 1e-4, 1e-3] {
        let with = |packets_per_ack, growth| {
            rate(&WindowModel {
                loss,
                packets_per_ack,
                growth,
                ..model()
            })
        };
        let (each, bytes, acks) = (with(1.0, 1.0), with(2.0, 1.0), with(2.0, 2.0));
        assert!((bytes / each - 1.0).abs() < 0.02, "{loss}: {bytes} {each}");
        let root = 2f64.sqrt();
        assert!(
            (bytes / acks / root - 1.0).abs() < 0.06,
            "{loss}: {bytes} {acks}"
        );
    }
}

#[test]
fn degenerate_input_has_an_answer() {
    let endless = WindowModel {
        loss: 0.0,
        ..model()
    };
    assert_eq!(endless.solve(), None);
    assert_eq!(
        WindowModel {
            loss: 1.0,
            ..model()
        }
        .solve(),
        None
    );
    assert_eq!(
        WindowModel {
            bandwidth: 0.0,
            ..model()
        }
        .solve(),
        None
    );
    // A window of less than a packet counts as one: one packet in each round trip.
    let tiny = WindowModel {
        window: Some(0.01),
        ..endless
    };
    assert!((rate(&tiny) - 10.0).abs() < 0.01, "{}", rate(&tiny));
    let dead = WindowModel {
        round_trip: 0.0,
        queue: Some(0.0),
        ..model()
    };
    assert!(rate(&dead).is_finite());
    // Without random loss, a queue of one bandwidth-delay product keeps the link full.
    let full = WindowModel {
        bandwidth: 1000.0,
        queue: Some(100.0),
        loss: 0.0,
        ..model()
    };
    assert!(rate(&full) > 960.0, "{}", rate(&full));
    // Without a queue, the window varies between one half and the whole of it.
    let none = WindowModel {
        queue: Some(0.0),
        ..full
    };
    assert!(
        (rate(&none) / 1000.0 - 0.75).abs() < 0.03,
        "{}",
        rate(&none)
    );
}
