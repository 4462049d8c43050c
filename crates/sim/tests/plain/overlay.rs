//! Flows over overlay routes of a path file.

#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use midspan_document::{Override, Source};
use midspan_path::{OverlayRouteError, Path};
use midspan_sim::{HopStart, PathScenario, Scenario, ScenarioError, Simulation, StopReason};
use midspan_units::TimeSpan;

/// The triangle of [`Path::load`] with other links: without rates and losses.
fn triangle(workload: &str) -> Path {
    let mut text = String::new();
    for name in ["client", "server"] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
    }
    for (name, role) in [
        ("ams", ""),
        ("fra", "transit = true"),
        ("sin", "exit = true"),
    ] {
        text += &format!("[[proxy]]\nname = \"{name}\"\noverlay = {{ {role} }}\n");
    }
    for (first, second, delay) in [
        ("client", "ams", "1 ms"),
        ("ams", "sin", "80 ms"),
        ("ams", "fra", "30 ms"),
        ("fra", "sin", "35 ms"),
        ("sin", "server", "2 ms"),
    ] {
        text += &format!(
            "[[link]]\nname = \"{first}-{second}\"\nbetween = [\"{first}\", \"{second}\"]\n\
             delay = \"{delay}\"\n"
        );
    }
    text += &format!("[[flow]]\nname = \"f\"\nfrom = \"client\"\nto = \"server\"\n{workload}\n");
    Path::read(&Source::new("triangle.toml", text)).unwrap()
}

/// The time that the first flow of a path takes.
fn time(scenarios: Vec<PathScenario>) -> TimeSpan {
    let PathScenario { scenario, flows } = &scenarios[0];
    let results = Simulation::new(scenario).unwrap().run();
    assert_eq!(results.stop, StopReason::Finished);
    let id = flows[0].data[0].0;
    let finished = results.flows[id].finished.unwrap();
    finished.since(midspan_units::Time::ZERO + scenario.flows()[id].start)
}

fn over(path: &Path, route: &str, start: HopStart) -> TimeSpan {
    let route = path.find_overlay_route(route).unwrap();
    time(Scenario::over_route(path, &route, start).unwrap())
}

fn milliseconds(count: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(count)
}

#[test]
fn each_hop_but_the_first_takes_a_round_trip_for_its_request_and_another_for_its_handshake() {
    let path = triangle("workload = \"download\"\nsize = \"1 KB\"");
    // SYN and its answer, request and response.
    let direct = time(Scenario::from_path(&path, false).unwrap());
    assert_eq!(direct, milliseconds(2 * 166));
    // The ingress accepts at once; 1 ms later, it opens its next leg.
    assert_eq!(
        over(&path, "here", HopStart::Cold),
        milliseconds(1 + 164 + 164 + 1)
    );
    for (route, hops, server) in [("sin", vec![160], 4), ("fra/sin", vec![60, 70], 4)] {
        let all = hops.iter().sum::<u64>() + server;
        let warm = milliseconds(1 + all + all + 1);
        assert_eq!(over(&path, route, HopStart::Warm), warm, "{route}");
        // The first data leaves the ingress with the request of the hop.
        let handshakes = hops.iter().skip(1).copied().map(milliseconds);
        let cold = handshakes.fold(warm, |sum, hop| sum + hop);
        assert_eq!(over(&path, route, HopStart::Cold), cold, "{route}");
    }
}

#[test]
fn uploads_and_endless_flows_pass_an_overlay_route() {
    let path = triangle("workload = \"upload\"\nsize = \"1 KB\"");
    let all = 60 + 70 + 4;
    // The data waits at the ingress for the answer, and then takes half a round trip.
    assert_eq!(
        over(&path, "fra/sin", HopStart::Warm),
        milliseconds(1 + all + all / 2)
    );
    for workload in ["bulk-upload", "bulk-download"] {
        let path = triangle(&format!("workload = \"{workload}\"\nduration = \"2 s\""));
        let route = path.find_overlay_route("fra/sin").unwrap();
        for start in [HopStart::Warm, HopStart::Cold] {
            let made = Scenario::over_route(&path, &route, start)
                .unwrap()
                .remove(0);
            let results = Simulation::new(&made.scenario).unwrap().run();
            let delivered = results.flows[made.flows[0].data[0].0].delivered;
            assert!(delivered > 1_000_000, "{workload}: {delivered}");
        }
    }
}

#[test]
fn packets_of_a_leg_pass_nodes_between_its_ends() {
    // Without the link between ams and fra, their packets pass sin.
    let mut path = triangle("workload = \"download\"\nsize = \"1 KB\"");
    path.links.remove(2);
    let all = 160 + 70 + 70 + 4;
    let fra_and_back = over(&path, "fra/sin", HopStart::Warm);
    assert_eq!(fra_and_back, milliseconds(1 + all + all + 1));
}

/// Reno would reach 0.9 Mbit/s on the direct link and 6 over the third site, by the square root of the loss.
#[test]
fn a_third_site_helps_where_the_direct_link_loses_packets() {
    let set = |change: &str| {
        let change = Override::parse("--set", change).unwrap();
        let mut path = Path::load_with("triangle", &[change]).unwrap();
        path.flows.retain(|flow| flow.name == "10 MB");
        path
    };
    let lossy = set("seed=1");
    let direct = time(Scenario::from_path(&lossy, false).unwrap());
    let over_fra = over(&lossy, "fra/sin", HopStart::Cold);
    assert!(
        direct.as_seconds() > 3.0 * over_fra.as_seconds(),
        "{direct} against {over_fra}"
    );
    // The overlay has all the losses of its legs.
    let clean = set("link.second.loss=0 %");
    assert!(over(&clean, "fra/sin", HopStart::Cold) < over_fra);
}

/// Chosen routes: for each flow that was carried, its index, its route, and the seconds after its start at which it ended.
fn chosen(path: &Path) -> Vec<(usize, String, f64)> {
    let mut carried = Vec::new();
    for PathScenario { scenario, flows } in
        Scenario::over_chosen_routes(path, HopStart::Cold).unwrap()
    {
        let results = Simulation::new(&scenario).unwrap().run();
        assert_eq!(results.stop, StopReason::Finished);
        for parts in &flows {
            let flow = &results.flows[parts.data[0].0];
            assert!(flow.unused || flow.finished.is_some());
            if let Some(finished) = flow.finished {
                let route = path.overlay_route_text(parts.route.as_ref().unwrap());
                let start = midspan_units::Time::ZERO + path.flows[parts.flow].start;
                carried.push((parts.flow, route, finished.since(start).as_seconds()));
            }
        }
    }
    carried
}

#[test]
fn the_ingress_chooses_the_shorter_route() {
    let path = triangle("workload = \"download\"\nsize = \"1 KB\"");
    let carried = chosen(&path);
    let [(0, route, seconds)] = &carried[..] else {
        panic!("{carried:?}")
    };
    assert_eq!(route, "fra/sin");
    let fixed = over(&path, "fra/sin", HopStart::Cold);
    assert!((seconds - fixed.as_seconds()).abs() < 1e-9, "{seconds}");
}

#[test]
fn after_an_outage_begins_sessions_go_elsewhere() {
    let mut path = triangle("workload = \"download\"\nsize = \"1 KB\"");
    let mut text = path.to_text().unwrap();
    let later = "[[flow]]\nname = \"later\"\nfrom = \"client\"\nto = \"server\"\n\
                 workload = \"download\"\nsize = \"1 KB\"\n";
    for start in ["21 s", "40 s"] {
        text += &later.replace("later", start);
        text += &format!("start = \"{start}\"\n");
    }
    text += "[run]\nflows = \"together\"\n";
    path = Path::read(&Source::new("triangle.toml", text)).unwrap();
    // The direct link is the best one, until nothing passes it.
    let direct = &mut path.links[1];
    for direction in [&mut direct.up, &mut direct.down] {
        direction.state.delay = milliseconds(10);
        direction.schedule.steps = vec![midspan_link::Step {
            at: TimeSpan::from_seconds(20),
            loss: Some("100 %".parse().unwrap()),
            ..Default::default()
        }];
    }
    let carried = chosen(&path);
    let routes: Vec<(usize, &str)> = carried
        .iter()
        .map(|(flow, route, _)| (*flow, route.as_str()))
        .collect();
    assert_eq!(routes, [(0, "sin"), (1, "fra/sin"), (2, "fra/sin")]);
    // The first one after the outage waits for the time limit of the failing route.
    assert!(carried[1].2 < 4.0 && carried[2].2 < 1.0, "{carried:?}");
}

#[test]
fn a_route_that_the_path_does_not_have_is_refused() {
    let path = triangle("workload = \"download\"\nsize = \"1 KB\"");
    let route = path.find_overlay_route("fra").unwrap();
    let error = Scenario::over_route(&path, &route, HopStart::Warm).unwrap_err();
    let role = OverlayRouteError::Role {
        node: "fra".to_owned(),
        role: "exit",
    };
    assert_eq!(error, ScenarioError::Route(role));
    let geo = Path::load("geo").unwrap();
    let here = geo.find_overlay_route("here").unwrap();
    assert!(Scenario::over_route(&geo, &here, HopStart::Warm).is_err());
}
