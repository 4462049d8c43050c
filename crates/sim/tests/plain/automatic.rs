//! Compares a proxy that chooses its settings with the best hand-set values, on the built-in paths.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use midspan_document::Source;
use midspan_path::{NodeKind, Path, Workload, built_in};
use midspan_policy::{Buffer, LegSettings, PolicyName};
use midspan_sim::{PathScenario, Scenario, Simulation};
use midspan_units::{BitRate, ByteSize};

/// The path with the legs of all proxies changed.
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

/// How long each flow took; for a bulk flow, the time in which it would have moved 10 MB.
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

/// The different rates of the path's links.
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

/// The values that an operator might set by hand: all rates of the path, send buffers from small to
/// large, and both congestion controls.
fn hand_set(path: &Path) -> Vec<LegSettings> {
    let paced = rates(path).into_iter().map(|rate| LegSettings {
        pacing_rate: Some(rate),
        ..LegSettings::default()
    });
    let buffered = [64, 256, 1024].map(|kibibytes| LegSettings {
        send_buffer: Buffer::Fixed(ByteSize::from_bytes(kibibytes << 10)),
        ..LegSettings::default()
    });
    let alone = std::iter::once(LegSettings::default());
    let all: Vec<_> = alone.chain(paced).chain(buffered).collect();
    let controlled = |control: &str| {
        let control = control.to_owned();
        all.clone().into_iter().map(move |leg| LegSettings {
            congestion_control: Some(control.clone()),
            ..leg
        })
    };
    controlled("cubic").chain(controlled("reno")).collect()
}

/// The logarithm of each flow's time on a path, averaged over the seeds.
///
/// A flow of requests and responses is left out. The real proxy detects that its data goes in turns
/// and does not pace it; the simulator's proxy has a session for each direction and cannot detect
/// it.
fn logarithms(path: &Path, seeds: u64) -> Vec<f64> {
    let mut sums = vec![0.0; path.flows.len()];
    let mut path = path.clone();
    for seed in 1..=seeds {
        path.seed = seed;
        for (sum, time) in sums.iter_mut().zip(seconds(&path)) {
            *sum += libm::log(time) / seeds as f64;
        }
    }
    let flows = path.flows.iter().zip(sums).filter(|(flow, _)| {
        !matches!(
            flow.workload,
            Workload::Page { .. } | Workload::RequestResponse { .. }
        )
    });
    flows.map(|(_, sum)| sum).collect()
}

/// For each flow of a path, how long it takes through a proxy that chooses its settings, as a
/// multiple of the time with the best of the hand-set values.
///
/// Times are geometric means over seeds, for each value, because other timing loses other packets:
/// the value that is best in one run by chance is not the best value.
fn ratios(name: &str, seeds: u64) -> Vec<f64> {
    let path = Path::load(name).unwrap();
    let mut best = vec![f64::INFINITY; path.flows.len()];
    for hand in hand_set(&path) {
        let set = with_legs(&path, |leg| LegSettings {
            congestion_control: hand.congestion_control.clone(),
            send_buffer: hand.send_buffer,
            pacing_rate: hand.pacing_rate.or(leg.pacing_rate),
            ..leg
        });
        for (best, time) in best.iter_mut().zip(logarithms(&set, seeds)) {
            *best = best.min(time);
        }
    }
    let itself = with_legs(&path, |leg| {
        PolicyName::Auto.leg(LegSettings {
            congestion_control: Some("cubic".into()),
            ..leg
        })
    });
    let itself = logarithms(&itself, seeds);
    let ratios = itself.into_iter().zip(best);
    ratios
        .map(|(itself, best)| libm::exp(itself - best))
        .collect()
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
    check(["geo-clean", "geo", "hasegawa-ahead"].into_iter(), 1);
}

#[test]
#[ignore = "missed on some paths: docs/policies.md"]
fn it_is_within_a_twentieth_on_every_built_in_path() {
    // Hand-set values of one proxy are not those of several.
    let one = |name: &&str| Path::load(name).unwrap().proxies().count() == 1;
    check(built_in().iter().map(|path| path.name).filter(one), 10);
}

/// A page over a satellite link that loses 1 % of its packets.
const LOSSY_PAGE: &str = r#"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
policy = "auto"
[[host]]
name = "server"
congestion_control = "cubic"
[[link]]
name = "satellite"
between = ["client", "gateway"]
delay = "280 ms"
loss = "1 %"
queue = "1000 packets"
up = { rate = "2 Mbit/s" }
down = { rate = "20 Mbit/s" }
[[link]]
name = "terrestrial"
between = ["gateway", "server"]
rate = "1 Gbit/s"
delay = "20 ms"
queue = "1000 packets"
[[flow]]
name = "page"
from = "client"
to = "server"
workload = "page"
objects = 30
size = "20 KB"
parallel = 6
"#;

#[test]
fn bbr_does_not_begin_with_the_small_window_of_recovery() {
    let mut path = Path::read(&Source::new("page.toml", LOSSY_PAGE)).unwrap();
    let time = |seed| {
        path.seed = seed;
        seconds(&path)[0]
    };
    let mean = (1..=60).map(time).sum::<f64>() / 60.0;
    // If the change does not wait for the end of recovery: 5.6 s.
    assert!(mean < 5.2, "{mean} s");
}
