//! The gain by splitting, the cost of the legs' interaction, and the completeness of the results.

use midspan_model::papers::maki::figure_10_network;
use midspan_records::By;
use midspan_units::TimeSpan;

use super::measure::{Measured, Runs, measure};
use super::points::PROXIES;
use super::scenario::Case;
use super::*;
use crate::Effort;
use crate::figure::simulate;

/// Three equal networks with these buffers, in KB.
fn equal(receive: u64, send: u64) -> Case {
    Case::new(&[figure_10_network(); 3]).with_buffers(receive * 1000, send * 1000)
}

fn means(cases: &[Case], effort: &Effort) -> Vec<f64> {
    let measured = measure(cases, Runs::of(effort, 2000), |_| ()).unwrap();
    measured.iter().map(Measured::mean).collect()
}

#[test]
fn splitting_wins_and_a_large_send_buffer_restores_what_the_interaction_costs() {
    let split = |send| equal(64, send).split_at(&PROXIES);
    let cases = [
        equal(64, 32),
        equal(64, 32).alone(0),
        split(32),
        split(1024),
    ];
    let [unsplit, alone, small, large] = means(&cases, &Effort::quick())[..] else {
        panic!("four cases");
    };
    assert!(small > 2.0 * unsplit, "{small} {unsplit}");
    assert!((0.5..0.75).contains(&(small / alone)), "{small} {alone}");
    assert!(large > 0.9 * alone, "{large} {alone}");
}

#[test]
fn a_leg_alone_meets_the_same_losses_as_within_the_chain() {
    // One network: the case `alone` and the case from end to end are the same.
    let case = Case::new(&[figure_10_network()]).with_buffers(64_000, 64_000);
    let [warm_up, end] = [10, 100].map(TimeSpan::from_seconds);
    let of = |case: &Case| case.throughput(7, warm_up, end).unwrap();
    assert_eq!(of(&case), of(&case.clone().alone(0)));
    // The first leg of a chain whose proxies never hold data back.
    let chain = equal(64, 1 << 30).alone(0);
    assert_eq!(of(&case), of(&chain));
}

#[test]
fn one_item_may_be_asked_for_and_stands_beside_the_analysis() {
    let effort = Effort {
        item: Some("figure 10".into()),
        ..Effort::quick()
    };
    let out = simulate(FIGURES, &effort, &mut |_| {}).unwrap();
    assert!(out.records.iter().all(|record| record.item == "figure 10"));
    let count = |by| out.records.iter().filter(|record| record.by == by).count();
    // 36 points in two readings; the claims have analysis records of their own elsewhere.
    assert_eq!(count(By::Analysis), 72);
    assert_eq!(count(By::Simulation), 36 + 2);
    assert_eq!(out.figures.len(), 1);
    assert_eq!(out.figures[0].plot.series.len(), 4);
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let [one, many] = [1, 4].map(|threads| {
        let effort = Effort {
            threads,
            ..Effort::quick()
        };
        means(&[equal(64, 32).split_at(&PROXIES), equal(64, 32)], &effort)
    });
    assert_eq!(one, many);
}

#[test]
fn the_analysis_has_the_networks_of_the_path_files() {
    use midspan_model::papers::maki::{Network, table_2_networks};
    let alike = [figure_10_network(); 3];
    for conditions in [
        &alike[..1],
        &alike[..],
        &table_2_networks(Network::Homogeneous)[..],
    ] {
        let path = networks::row(conditions.len(), &[]).unwrap();
        assert_eq!(path.links.len(), conditions.len());
        assert_eq!(path, networks::path(conditions).unwrap());
    }
}
