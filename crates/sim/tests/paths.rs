//! Scenarios from path files.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_path::{Path, built_in};
use midspan_sim::{PathScenario, Scenario, ScenarioError, Simulation, StopReason};

fn built_in_path(name: &str) -> Path {
    Path::load(name).unwrap()
}

fn seconds(path: &Path, proxies: bool) -> Vec<f64> {
    Scenario::from_path(path, proxies)
        .unwrap()
        .iter()
        .map(|PathScenario { scenario, flows }| {
            let results = Simulation::new(scenario).unwrap().run();
            assert_eq!(results.stop, StopReason::Finished);
            let start = scenario.flows()[0].start;
            let finished = results.flows[flows[0].data[0].0].finished.unwrap();
            (finished.nanoseconds() - start.nanoseconds()) as f64 / 1e9
        })
        .collect()
}

#[test]
fn every_built_in_path_is_simulated_or_says_what_is_missing() {
    for entry in built_in() {
        for proxies in [false, true] {
            match Scenario::from_path(&built_in_path(entry.name), proxies) {
                Ok(scenarios) => {
                    for made in &scenarios {
                        Simulation::new(&made.scenario).unwrap();
                    }
                }
                Err(error @ ScenarioError::CongestionControl { .. }) => {
                    println!("{}: {error}", entry.name)
                }
                Err(error) => panic!("{}: {error}", entry.name),
            }
        }
    }
}

#[test]
fn a_proxy_helps_on_a_lossy_satellite_path() {
    let source = midspan_document::Source::new(
        "satellite.toml",
        r#"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
[[host]]
name = "server"
[[link]]
name = "satellite"
between = ["client", "gateway"]
rate = "20 Mbit/s"
delay = "10 ms"
loss = "0.5 %"
[[link]]
name = "internet"
between = ["gateway", "server"]
rate = "100 Mbit/s"
delay = "100 ms"
[[flow]]
name = "download"
from = "client"
to = "server"
workload = "download"
size = "5 MB"
"#,
    );
    let path = Path::read(&source).unwrap();
    let (direct, split) = (seconds(&path, false), seconds(&path, true));
    assert!(split[0] < direct[0] / 2.0, "{split:?} against {direct:?}");
}
