//! `midspan plan agreement` measures the agreement itself; these tests check it on a few short
//! paths.

use super::{Agreement, Compared, Draw};

#[test]
fn predictions_are_near_simulations() {
    // Seeds of paths on which the analysis may be fitted, with the shortest simulations.
    let compared: Vec<Compared> = [43, 52, 29, 31, 67, 98]
        .into_iter()
        .map(|seed| {
            let draw = Draw::new(seed);
            Compared {
                seed,
                predicted: draw.predict().unwrap().throughput.bits_per_second(),
                simulated: draw.simulate().unwrap(),
            }
        })
        .collect();
    let found = Agreement::of(&compared).unwrap();
    assert!(found.median < 0.25, "{found:?} {compared:?}");
}

#[test]
fn a_simulation_is_the_same_twice() {
    let draw = Draw::new(31);
    assert_eq!(draw.simulate().unwrap(), draw.simulate().unwrap());
}

#[test]
fn predictions_are_numbers_and_no_better_than_their_slowest_leg() {
    for seed in 1..=300 {
        let outcome = Draw::new(seed).predict().unwrap();
        let (found, most) = (outcome.throughput, outcome.expected);
        assert!(found.bits_per_second() > 0.0, "{seed}");
        assert!(found <= most, "{seed}: {found} {most}");
    }
}

#[test]
fn an_agreement_is_that_of_the_errors() {
    let compared = |predicted| Compared {
        seed: 1,
        predicted,
        simulated: 100.0,
    };
    let found = Agreement::of(&[compared(90.0), compared(105.0), compared(120.0)]).unwrap();
    assert!((found.median - 0.10).abs() < 1e-12 && (found.bias - 0.05).abs() < 1e-12);
    assert_eq!(Agreement::of(&[]), None);
}
