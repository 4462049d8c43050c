//! Properties of any text and any links.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_link::Configuration;
use midspan_path::{
    Direction, Flow, HostSettings, Link, Node, NodeIndex, NodeKind, Path, Workload, built_in,
};
use midspan_units::{ByteSize, TimeSpan};
use proptest::prelude::*;
use proptest::sample::Index;

/// A node connected to one of the nodes before it, and whether the link is turned around.
type Branch = (Index, bool);

fn tree(branches: &[Branch]) -> Path {
    let node = |index| Node {
        name: format!("n{index}"),
        kind: if index == 0 {
            NodeKind::Host(HostSettings::default())
        } else {
            NodeKind::Router
        },
    };
    let link = |(index, (joined, turned)): (usize, &Branch)| {
        let mut between = [NodeIndex(joined.index(index + 1)), NodeIndex(index + 1)];
        if *turned {
            between.reverse();
        }
        Link {
            name: format!("l{index}"),
            between,
            up: Configuration::default(),
            down: Configuration::default(),
        }
    };
    Path {
        name: "tree".to_owned(),
        description: String::new(),
        seed: 1,
        family: Default::default(),
        nodes: (0..=branches.len()).map(node).collect(),
        links: branches.iter().enumerate().map(link).collect(),
        flows: Vec::new(),
        traffic: Vec::new(),
        cables: Vec::new(),
        order: Default::default(),
    }
}

fn branches() -> impl Strategy<Value = Vec<Branch>> {
    proptest::collection::vec(any::<Branch>(), 1..40)
}

/// A tree with further links between its nodes.
fn graph(branches: &[Branch], more: &[(Index, Index)]) -> Path {
    let mut path = tree(branches);
    for (first, second) in more {
        let between = [first, second].map(|end| NodeIndex(end.index(path.nodes.len())));
        if between[0] != between[1] {
            path.links.push(Link {
                name: format!("m{}", path.links.len()),
                between,
                up: Configuration::default(),
                down: Configuration::default(),
            });
        }
    }
    path
}

fn more() -> impl Strategy<Value = Vec<(Index, Index)>> {
    proptest::collection::vec(any::<(Index, Index)>(), 0..40)
}

/// The number of links from each node to `to`, by trying all links until nothing changes.
fn distances(path: &Path, to: NodeIndex) -> Vec<usize> {
    let mut least = vec![usize::MAX; path.nodes.len()];
    least[to.0] = 0;
    for _ in &path.nodes {
        for link in &path.links {
            let [first, second] = link.between.map(|end| end.0);
            least[first] = least[first].min(least[second].saturating_add(1));
            least[second] = least[second].min(least[first].saturating_add(1));
        }
    }
    least
}

fn flow(from: NodeIndex, to: NodeIndex) -> Flow {
    let size = ByteSize::from_bytes(1);
    Flow {
        name: "f".to_owned(),
        from,
        to,
        workload: Workload::Upload { size },
        start: TimeSpan::ZERO,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_way_crosses_joined_links_and_no_node_twice(
        branches in branches(), more in more(), from: Index, to: Index,
    ) {
        let path = graph(&branches, &more);
        let from = NodeIndex(from.index(path.nodes.len()));
        let to = NodeIndex(to.index(path.nodes.len()));
        let way = path.way(from, to);
        prop_assert_eq!(way.is_empty(), from == to);
        let mut at = from;
        let mut seen = vec![from];
        for hop in &way {
            let [first, second] = path.link(hop.link).between;
            let ends = match hop.direction {
                Direction::Up => (first, second),
                Direction::Down => (second, first),
            };
            prop_assert_eq!(ends, (at, hop.node));
            prop_assert_eq!(path.next_hop(at, to), Some(*hop));
            prop_assert!(!seen.contains(&hop.node));
            seen.push(hop.node);
            at = hop.node;
        }
        prop_assert_eq!(at, to);
        prop_assert_eq!(way.len(), distances(&path, to)[from.0]);
    }

    #[test]
    fn the_way_back_is_the_way_reversed(
        branches in branches(), more in more(), from: Index, to: Index,
    ) {
        let path = graph(&branches, &more);
        let from = NodeIndex(from.index(path.nodes.len()));
        let to = NodeIndex(to.index(path.nodes.len()));
        let mut back: Vec<_> = path.way(to, from).iter()
            .map(|hop| (hop.link, hop.direction.other())).collect();
        back.reverse();
        let there: Vec<_> = path.way(from, to).iter()
            .map(|hop| (hop.link, hop.direction)).collect();
        prop_assert_eq!(there, back);

        let mut between = path.nodes_between(to, from);
        between.reverse();
        prop_assert_eq!(path.nodes_between(from, to), between);

        let mut flow = flow(from, to);
        prop_assert_eq!(path.data_way(&flow), path.way(from, to));
        flow.workload = Workload::Download { size: ByteSize::from_bytes(1) };
        prop_assert_eq!(path.data_way(&flow), path.way(to, from));
    }

    /// A path built in code may have any links: nothing may loop or panic.
    #[test]
    fn any_graph_is_walked_in_finite_time(
        branches in proptest::collection::vec(any::<Branch>(), 7),
        links in proptest::collection::vec((0..12_usize, 0..12_usize), 0..30),
        from in 0..12_usize, to in 0..12_usize,
    ) {
        let mut path = tree(&branches);
        path.links = links.iter().map(|(first, second)| Link {
            name: String::new(),
            between: [NodeIndex(*first), NodeIndex(*second)],
            up: Configuration::default(),
            down: Configuration::default(),
        }).collect();
        let flow = flow(NodeIndex(from), NodeIndex(to));
        let way = path.way(flow.from, flow.to);
        prop_assert!(way.len() < path.nodes.len());
        prop_assert!(way.is_empty() || to < path.nodes.len());
        let _ = path.bottleneck(&flow);
        let _ = path.round_trip_time(&flow);
    }

    #[test]
    fn any_text_is_refused_with_a_place(text: String) {
        if let Err(error) = Path::read(&Source::new("any.toml", text)) {
            prop_assert!(error.line() >= 1 && error.column() >= 1);
        }
    }

    /// Lines dropped, doubled and swapped, and words replaced: similar enough to a path to reach
    /// every check.
    #[test]
    fn a_mutated_path_is_read_or_refused_with_a_place(
        which: Index,
        changes in proptest::collection::vec((any::<Index>(), any::<Index>(), 0..5_u8), 1..6),
    ) {
        let texts = built_in();
        let mut text = texts[which.index(texts.len())].text.to_owned();
        for (here, there, change) in changes {
            text = mutate(&text, here, there, change);
        }
        match Path::read(&Source::new("mutated.toml", text)) {
            Ok(path) => {
                for flow in &path.flows {
                    prop_assert!(!path.way(flow.from, flow.to).is_empty());
                }
            }
            Err(error) => {
                let start = format!("mutated.toml:{}:{}: ", error.line(), error.column());
                prop_assert!(error.to_string().starts_with(&start));
                prop_assert!(error.line() >= 1 && error.column() >= 1);
            }
        }
    }
}

/// Values that break rules rather than syntax.
const VALUES: [&str; 16] = [
    "\"client\"",
    "\"gateway\"",
    "\"\"",
    "\"0 B\"",
    "\"1 MB\"",
    "\"99 GB\"",
    "\"0 s\"",
    "\"70 s\"",
    "\"100 %\"",
    "\"0 packets\"",
    "-1",
    "1e400",
    "[]",
    "{}",
    "\"upload\"",
    "\"1 bit/s\"",
];

fn mutate(text: &str, here: Index, there: Index, change: u8) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return String::new();
    }
    let (first, second) = (here.index(lines.len()), there.index(lines.len()));
    match change {
        0 => drop(lines.remove(first)),
        1 => lines.swap(first, second),
        2 => lines.insert(second, lines[first].clone()),
        3 => {
            if let Some((key, _)) = lines[first].split_once('=') {
                lines[first] = format!("{key}= {}", VALUES[there.index(VALUES.len())]);
            }
        }
        _ => {
            let characters: Vec<char> = lines[first].chars().collect();
            if !characters.is_empty() {
                let gone = there.index(characters.len());
                lines[first] = characters
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| *index != gone)
                    .map(|(_, character)| character)
                    .collect();
            }
        }
    }
    lines.join("\n")
}
