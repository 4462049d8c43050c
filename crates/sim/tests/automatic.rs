//! A proxy that sets itself against the best of the values that one would set by hand, on the
//! built-in paths.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use midspan_path::{NodeKind, Path, Workload, built_in};
use midspan_policy::{Buffer, LegSettings, PolicyName};
use midspan_sim::{PathScenario, Scenario, Simulation};
use midspan_units::{BitRate, ByteSize};

/// The legs of all proxies changed.
fn with_legs(path: &Path, change: impl Fn(LegSettings) -> LegSettings) -> Path {
    let mut path = path.clone();
    for node in &mut path.nodes {
        if let NodeKind::Proxy(settings) = &mut node.kind {
            for leg in [&mut settings.client_leg, &mut settings.server_leg] {
                *leg = change(leg.clone());
            }
        }
    }
    path
}

/// How long each flow took, or for a bulk flow the time in which it would have moved 10 MB.
fn seconds(path: &Path) -> Vec<f64> {
    let made = Scenario::from_path(path, true).unwrap();
    let of = |PathScenario { scenario, flows }: &PathScenario| {
        let results = Simulation::new(scenario).unwrap().run();
        let time = |parts: &midspan_sim::PathFlowParts| {
            let flow = &path.flows[parts.flow];
            let ends = parts.data.iter().map(|id| &results.flows[id.0]);
            match flow.workload {
                Workload::BulkDownload { duration } | Workload::BulkUpload { duration } => {
                    let bytes: u64 = ends.map(|end| end.delivered).sum();
                    1e7 * duration.as_seconds() / bytes as f64
                }
                _ => {
                    let last = ends.map(|end| end.finished.unwrap()).max().unwrap();
                    last.nanoseconds() as f64 / 1e9 - flow.start.as_seconds()
                }
            }
        };
        flows.iter().map(time).collect::<Vec<_>>()
    };
    made.iter().flat_map(of).collect()
}

/// The rates of the links that the path has.
fn rates(path: &Path) -> Vec<BitRate> {
    let mut rates: Vec<BitRate> = path
        .links
        .iter()
        .flat_map(|link| [link.up.state.rate, link.down.state.rate])
        .flatten()
        .collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

/// For each flow of a path: the best of the hand-set values, and what the proxy itself reaches.
fn compare(path: &Path) -> Vec<(f64, f64)> {
    let cubic = |leg: LegSettings| LegSettings {
        congestion_control: Some("cubic".into()),
        ..leg
    };
    let path = with_legs(path, cubic);
    let mut best = seconds(&path);
    let mut hand_set = vec![LegSettings {
        send_buffer: Buffer::Fixed(ByteSize::from_bytes(256 << 10)),
        ..LegSettings::default()
    }];
    hand_set.extend(rates(&path).into_iter().map(|rate| LegSettings {
        pacing_rate: Some(rate),
        ..LegSettings::default()
    }));
    for hand in hand_set {
        let set = with_legs(&path, |leg| LegSettings {
            send_buffer: hand.send_buffer,
            pacing_rate: hand.pacing_rate,
            ..leg
        });
        for (best, time) in best.iter_mut().zip(seconds(&set)) {
            *best = best.min(time);
        }
    }
    let itself = seconds(&with_legs(&path, |leg| PolicyName::Auto.leg(leg)));
    best.into_iter().zip(itself).collect()
}

/// The geometric mean over seeds, since with other timing other packets are lost.
///
/// A flow of requests and answers is left out: the real proxy sees that its data takes turns and
/// does not pace it, the simulator's has a session for each direction and cannot see it.
fn ratios(name: &str, seeds: u64) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for seed in 1..=seeds {
        let mut path = Path::load(name).unwrap();
        path.seed = seed;
        let logarithms = compare(&path)
            .into_iter()
            .zip(&path.flows)
            .filter(|(_, flow)| {
                let workload = flow.workload;
                !matches!(
                    workload,
                    Workload::Page { .. } | Workload::RequestResponse { .. }
                )
            })
            .map(|(times, _)| times)
            .map(|(best, itself)| (itself / best).ln());
        let logarithms: Vec<f64> = logarithms.collect();
        sums.resize(logarithms.len(), 0.0);
        for (sum, logarithm) in sums.iter_mut().zip(logarithms) {
            *sum += logarithm;
        }
    }
    sums.iter().map(|sum| (sum / seeds as f64).exp()).collect()
}

fn check(names: impl Iterator<Item = &'static str>, seeds: u64) {
    let mut worse = Vec::new();
    for name in names {
        let ratios = ratios(name, seeds);
        println!("{name}: {ratios:.3?}");
        if ratios.iter().any(|ratio| *ratio > 1.05) {
            worse.push((name, ratios));
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
}

#[test]
fn it_is_within_a_twentieth_of_the_best_hand_set_value() {
    check(["geo-clean", "transatlantic"].into_iter(), 1);
}

#[test]
#[ignore = "missed on some paths: docs/policies.md"]
fn it_is_within_a_twentieth_on_every_built_in_path() {
    check(built_in().iter().map(|path| path.name), 3);
}
