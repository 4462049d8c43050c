//! Scenarios from path files.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_document::Source as Text;
use midspan_path::{Path, built_in};
use midspan_sim::{
    Flow, LinkId, PathScenario, Scenario, ScenarioError, Simulation, Source, StopReason,
};

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
fn every_built_in_path_is_simulated_or_needs_other_congestion_control() {
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
fn a_proxy_helps_where_the_loss_is_on_the_short_hop() {
    let path = built_in_path("wifi");
    let (direct, split) = (seconds(&path, false), seconds(&path, true));
    let large = path.flows.iter().position(|flow| flow.name == "10 MB");
    let large = large.unwrap();
    assert!(
        split[large] < direct[large] / 2.0,
        "{split:?} against {direct:?}"
    );
}

#[test]
fn a_flow_of_a_path_has_its_tcp_and_needs_no_request() {
    let path = built_in_path("wifi");
    let made = Scenario::from_path(&path, true).unwrap().remove(0);
    let answers = &made.scenario.flows()[made.flows[0].data[0].0];
    let flow = Flow::of_path(&path, &path.flows[0], true).unwrap();
    assert_eq!(flow.receiver, answers.receiver);
    assert_eq!(flow.splits.len(), answers.splits.len());
    assert_eq!(flow.splits[0].relay, answers.splits[0].relay);
    assert!(matches!(flow.source, Source::Fixed(_)));
    let mut scenario = Scenario::network(&path, true);
    scenario.duration = made.scenario.duration;
    assert!(scenario.flows().is_empty());
    scenario.add_flow(flow);
    let results = Simulation::new(&scenario).unwrap().run();
    assert_eq!(results.stop, StopReason::Finished);
}

#[test]
fn another_name_of_a_link_gives_other_losses() {
    let delivered = |name: Option<&str>| {
        let path = built_in_path("wifi");
        let mut scenario = Scenario::network(&path, false);
        scenario.duration = "20 s".parse().unwrap();
        scenario.add_flow(Flow::of_path(&path, &path.flows[0], false).unwrap());
        for link in 0..path.links.len() {
            if let Some(name) = name {
                scenario.rename_link(LinkId(link), &format!("{name} {link}"));
            }
        }
        let results = Simulation::new(&scenario).unwrap().run();
        results.flows[0].finished
    };
    assert_eq!(delivered(None), delivered(None));
    assert_ne!(delivered(None), delivered(Some("another")));
}

/// Three paths lead from `a` to `d`: over `b` and over `c` with two links each, and a longer one. As in
/// the path file, the earliest link decides.
#[test]
fn a_flow_crosses_the_fewest_links_and_its_acknowledgements_the_same() {
    let mut text = String::new();
    for name in ["client", "server"] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
    }
    for name in ["a", "b", "c", "d", "e"] {
        text += &format!("[[router]]\nname = \"{name}\"\n");
    }
    let links = [
        ["client", "a"],
        ["a", "e"],
        ["e", "c"],
        ["b", "d"],
        ["a", "c"],
        ["c", "d"],
        ["a", "b"],
        ["d", "server"],
    ];
    for (number, [first, second]) in links.iter().enumerate() {
        text += &format!(
            "[[link]]\nname = \"{number}\"\nbetween = [\"{first}\", \"{second}\"]\n\
             rate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n"
        );
    }
    text += "[[flow]]\nname = \"file\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"download\"\nsize = \"100 KB\"\n";
    let path = Path::read(&Text::new("graph.toml", text)).unwrap();
    let made = Scenario::from_path(&path, false).unwrap().remove(0);
    let results = Simulation::new(&made.scenario).unwrap().run();
    assert_eq!(results.stop, StopReason::Finished);
    let crossed: Vec<usize> = (results.links.iter().enumerate())
        .filter(|(_, link)| link.down.delivered.packets > 0 && link.up.delivered.packets > 0)
        .map(|(number, _)| number)
        .collect();
    assert_eq!(crossed, [0, 3, 6, 7]);
    let used: usize = (results.links.iter())
        .filter(|link| link.down.delivered.packets + link.up.delivered.packets > 0)
        .count();
    assert_eq!(used, 4);
}
