//! Shared by the property tests; each test uses a part of it.

#![allow(dead_code)]

use midspan_model::response::Response;
use midspan_model::window::Recovery;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// At least `cases` cases from a fixed seed: the same ones on every run and machine.
/// `PROPTEST_CASES` and `PROPTEST_RNG_SEED` select more cases and other ones.
pub fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let usual = 256;
    ProptestConfig {
        cases: if default.cases == usual {
            cases
        } else {
            default.cases
        },
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(1),
            given => given,
        },
        // A failure prints its input, so no file is needed.
        failure_persistence: None,
        ..default
    }
}

/// A number between `low` and `high`, with a uniform logarithm.
pub fn log_uniform(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (libm::log(low)..libm::log(high)).prop_map(libm::exp)
}

pub fn any_response() -> impl Strategy<Value = Response> {
    prop_oneof![
        Just(Response::Reno),
        Just(Response::RenoFull),
        Just(Response::Cubic),
        Just(Response::Bbr),
    ]
}

/// Whether `better` is at least `worse`, except for the rounding errors of a long computation.
pub fn at_least(better: f64, worse: f64) -> bool {
    better >= worse * (1.0 - 2e-7)
}

/// [`any_response`], and the responses that are computed on a grid.
pub fn any_formula() -> impl Strategy<Value = Response> {
    prop_oneof![
        4 => any_response(),
        1 => Just(Response::Window(Recovery::Reno)),
        1 => Just(Response::Window(Recovery::NewReno)),
    ]
}
