//! Plans of networks.

#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_plan::{Answer, DataPath, NetworkPlan, at, plan_network};
use midspan_units::ByteSize;
use proptest::prelude::*;

const SIZE: ByteSize = ByteSize::from_bytes(10_000_000);

fn plan(path: &str, nodes: usize) -> NetworkPlan {
    plan_network(&Path::load(path).unwrap(), nodes, SIZE).unwrap()
}

fn time(answer: &Answer) -> f64 {
    answer.completion_time(SIZE).unwrap()
}

#[test]
fn a_triangle_with_a_bad_direct_link_gives_the_detour() {
    let plan = plan("triangle", 3);
    assert_eq!(plan.nodes, ["ams", "fra", "sin"]);
    assert!(plan.is_exact);
    assert_eq!(plan.longest, None);
    for pair in &plan.pairs {
        assert_eq!(pair.route, ["ams", "fra", "sin"]);
        assert!(pair.gain(SIZE).unwrap() > 3.0, "{:?}", pair.gain(SIZE));
    }
    assert!(
        plan.text().contains("Put overlay nodes at ams, fra, sin"),
        "{}",
        plan.text()
    );
}

#[test]
fn a_good_direct_link_needs_no_third_site() {
    let plan = plan("no-gain", 3);
    assert!(
        plan.pairs
            .iter()
            .all(|pair| !pair.route.contains(&"fra".to_owned()))
    );
}

#[test]
fn a_line_is_divided_where_the_transfer_is_the_fastest() {
    for name in ["geo", "transatlantic", "maritime"] {
        let path = Path::load(name).unwrap();
        let plan = plan(name, 1);
        for (pair, line) in plan.pairs.iter().zip(DataPath::of_path(&path).unwrap()) {
            let direct = Answer::new(&line, &[]).unwrap();
            assert_eq!(time(&pair.direct), time(&direct), "{name}");
            let split = (1..line.nodes.len() - 1)
                .map(|position| time(&Answer::new(&line, &at(&line, &[position])).unwrap()));
            let fastest = split.fold(time(&direct), f64::min);
            assert!((time(&pair.best) - fastest).abs() < 1e-9, "{name}");
        }
    }
}

#[test]
fn more_nodes_are_never_slower() {
    for name in ["triangle", "mesh5", "two-uplinks"] {
        let mut last = 1.0 - 1e-12;
        for nodes in 1..=5 {
            let gain = plan(name, nodes).gain().unwrap();
            assert!(gain >= last, "{name}, {nodes} nodes: {gain} after {last}");
            last = gain - 1e-12;
        }
    }
}

/// A network of routers, each with some links; a server behind the last one, and clients behind others.
fn network(delays: &[u16], losses: &[u16], size: usize) -> Path {
    let mut text = String::from("[[host]]\nname = \"server\"\n");
    let mut links = String::new();
    let mut link = |ends: [&str; 2], delay: u16, loss: f64| {
        links.push_str(&format!(
            "[[link]]\nname = \"{}-{}\"\nbetween = [\"{0}\", \"{1}\"]\nrate = \"20 Mbit/s\"\n\
             delay = \"{delay} ms\"\nloss = \"{loss} %\"\n",
            ends[0], ends[1]
        ));
    };
    let name = |index: usize| format!("r{index}");
    for index in 0..size {
        text.push_str(&format!("[[router]]\nname = \"{}\"\n", name(index)));
    }
    let mut next = 0;
    for one in 0..size {
        for other in one + 1..size {
            let (delay, loss) = (1 + delays[next % delays.len()], losses[next % losses.len()]);
            next += 1;
            link([&name(one), &name(other)], delay, f64::from(loss) / 100.0);
        }
    }
    link([&name(size - 1), "server"], 1, 0.0);
    let mut flows = String::new();
    for client in 0..2 {
        let host = format!("client{client}");
        text.push_str(&format!("[[host]]\nname = \"{host}\"\n"));
        link([&host, &name(client)], 1, 0.0);
        flows.push_str(&format!(
            "[[flow]]\nname = \"{host}\"\nfrom = \"{host}\"\nto = \"server\"\nworkload = \"download\"\n\
             size = \"1 MB\"\n"
        ));
    }
    Path::read(&Source::new("random", (text + &links + &flows).as_str())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No route is slower than the direct connection, and each uses chosen nodes only.
    #[test]
    fn every_pair_is_at_least_as_fast_as_directly(
        delays in proptest::collection::vec(1_u16..150, 6),
        losses in proptest::collection::vec(0_u16..300, 6),
        nodes in 1_usize..4,
    ) {
        let plan = plan_network(&network(&delays, &losses, 4), nodes, SIZE).unwrap();
        prop_assert!(plan.nodes.len() <= nodes);
        for pair in &plan.pairs {
            prop_assert!(time(&pair.best) <= time(&pair.direct) + 1e-9);
            prop_assert!(pair.route.iter().all(|node| plan.nodes.contains(node)));
        }
    }
}
