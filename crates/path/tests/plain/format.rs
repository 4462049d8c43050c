//! The effects of a path file's keys.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_link::{Configuration, QueueLimit};
use midspan_path::{Direction, Family, Hop, LinkIndex, NodeIndex, Order, Path, Workload};
use midspan_units::{ByteSize, TimeSpan};

/// A server named before the client, three flows of different kinds, and keys for both directions
/// and for one.
const TEXT: &str = r#"
seed = 9
family = "ipv6"
[[proxy]]
name = "middle"
[[host]]
name = "server"
[[router]]
name = "edge"
[[host]]
name = "client"
[[link]]
name = "near"
between = ["client", "edge"]
delay = "5 ms"
queue = "64 KiB"
overhead = "18 B"
loss = "1 %"
up = { rate = "1 Mbit/s", delay = "7 ms", loss = "0" }
down = { queue = "3 packets" }
[[link]]
name = "bare"
between = ["edge", "middle"]
[[link]]
name = "turned"
between = ["server", "middle"]
up = { rate = "4 Mbit/s" }
down = { rate = "2 Mbit/s" }
[[flow]]
name = "page"
from = "client"
to = "server"
workload = "page"
objects = 30
size = "10 KB"
[[flow]]
name = "push"
from = "client"
to = "server"
workload = "bulk-upload"
duration = "2 min"
start = "1.5 s"
[[flow]]
name = "ask"
from = "server"
to = "client"
workload = "request-response"
count = 4
size = "1 KB"
[run]
flows = "together"
"#;

fn path() -> Path {
    Path::read(&Source::new("format.toml", TEXT)).unwrap()
}

#[test]
fn nodes_stand_in_the_order_of_the_file_whatever_their_kind() {
    let path = path();
    let names: Vec<&str> = path.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["middle", "server", "edge", "client"]);
    assert_eq!((path.seed, path.family), (9, Family::Ipv6));
    assert_eq!(path.description, "");
    assert_eq!(path.order, Order::Together);
}

#[test]
fn a_direction_overrides_the_keys_of_its_link() {
    let path = path();
    let near = &path.links[0];
    assert_eq!(near.up.state.rate, Some("1 Mbit/s".parse().unwrap()));
    assert_eq!(near.up.state.delay, TimeSpan::from_milliseconds(7));
    assert_eq!(near.up.state.loss, "0 %".parse().unwrap());
    let bytes = ByteSize::from_bytes(65_536);
    assert_eq!(near.up.queue, QueueLimit::Bytes(bytes));
    assert_eq!(near.down.state.rate, None);
    assert_eq!(near.down.state.delay, TimeSpan::from_milliseconds(5));
    assert_eq!(near.down.state.loss, "1 %".parse().unwrap());
    assert_eq!(near.down.queue, QueueLimit::Packets(3));
    assert_eq!((near.up.overhead, near.down.overhead), (18, 18));
    let bare = path.link(LinkIndex(1));
    assert_eq!(*bare.direction(Direction::Up), Configuration::default());
    assert_eq!(bare.down, Configuration::default());
}

#[test]
fn a_command_is_a_list_of_words() {
    let text = |flow: &str| {
        format!(
            "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nname = \"wire\"\n\
             between = [\"a\", \"b\"]\n[[flow]]\nname = \"run\"\nfrom = \"a\"\nto = \"b\"\n\
             workload = \"command\"\n{flow}\n"
        )
    };
    let read = |flow: &str| Path::read(&Source::new("test", text(flow)));
    let path = read("command = [\"sh\", \"-c\", \"a \\\"b\\\"\"]\nsize = \"1 KB\"").unwrap();
    let expected = Workload::Command {
        command: ["sh", "-c", "a \"b\""].map(str::to_owned).into(),
        size: Some(ByteSize::from_bytes(1000)),
    };
    assert_eq!(path.flows[0].workload, expected);
    assert_eq!(expected.total_size(), None);
    assert_eq!(expected.file_size(), Some(ByteSize::from_bytes(1000)));
    // What is written is what was read.
    let again = Path::read(&Source::new("test.toml", path.to_text().unwrap())).unwrap();
    assert_eq!(again.flows, path.flows);
    let long = format!("command = [\"{}\"]", "x".repeat(5000));
    let many = format!("command = [{}]", "\"x\", ".repeat(257));
    for (flow, reason) in [
        ("", "a command flow needs `command`"),
        ("command = []", "1 to 256 words"),
        ("command = [\"\"]", "is the program"),
        ("command = [\"a\", \"\\u0000\"]", "no zero byte"),
        (long.as_str(), "at most 4096 bytes"),
        (many.as_str(), "1 to 256 words"),
        (
            "command = [\"ls\"]\ncount = 3",
            "a command flow has no `count`",
        ),
    ] {
        let error = read(flow).unwrap_err().to_string();
        assert!(error.contains(reason), "{flow}: {error}");
    }
}

#[test]
fn workloads_have_their_options_and_defaults() {
    let path = path();
    let kinds: Vec<Workload> = path
        .flows
        .iter()
        .map(|flow| flow.workload.clone())
        .collect();
    let size = |bytes| ByteSize::from_bytes(bytes);
    assert_eq!(
        kinds,
        [
            Workload::Page {
                objects: 30,
                size: size(10_000),
                parallel: 6
            },
            Workload::BulkUpload {
                duration: TimeSpan::from_seconds(120)
            },
            Workload::RequestResponse {
                count: 4,
                size: size(1000)
            },
        ]
    );
    let totals: Vec<_> = kinds.iter().map(Workload::total_size).collect();
    assert_eq!(totals, [Some(size(300_000)), None, Some(size(4000))]);
    assert_eq!(path.flows[0].start, TimeSpan::ZERO);
    assert_eq!(path.flows[1].start, TimeSpan::from_milliseconds(1500));
}

#[test]
fn data_goes_the_way_of_its_workload() {
    let path = path();
    let [middle, server, edge, client] = [0, 1, 2, 3].map(NodeIndex);
    let hop = |link, direction, node| Hop {
        link: LinkIndex(link),
        direction,
        node,
    };
    let [page, push, ask] = &path.flows[..] else {
        panic!("three flows")
    };
    let to_client = [
        hop(2, Direction::Up, middle),
        hop(1, Direction::Down, edge),
        hop(0, Direction::Down, client),
    ];
    let to_server = [
        hop(0, Direction::Up, edge),
        hop(1, Direction::Up, middle),
        hop(2, Direction::Down, server),
    ];
    assert_eq!(path.data_way(page), to_client);
    assert_eq!(path.data_way(push), to_server);
    assert_eq!(path.data_way(ask), to_server);
    assert_eq!(path.nodes_between(client, server), [edge, middle]);
    assert_eq!(path.next_hop(edge, server), Some(to_server[1]));
    assert_eq!(path.next_hop(edge, edge), None);
}

/// Between `a` and `d`: one way over three links, and three over two links each, two of which
/// differ only in the link from `a` to `c`.
#[test]
fn packets_cross_the_fewest_links_and_of_equal_ways_the_links_that_are_first_in_the_file() {
    let mut text = String::new();
    for name in ["a", "b", "c", "d", "e"] {
        text += &format!("[[router]]\nname = \"{name}\"\n");
    }
    for (number, ends) in ["a e", "e b", "b d", "a c", "a c", "c d", "a b"]
        .into_iter()
        .enumerate()
    {
        let (first, second) = ends.split_once(' ').unwrap();
        text += &format!("[[link]]\nname = \"{number}\"\nbetween = [\"{first}\", \"{second}\"]\n");
    }
    let path = Path::read(&Source::new("graph.toml", text)).unwrap();
    let way = |from, to| -> Vec<usize> {
        let ends = [from, to].map(|name| path.find_node(name).unwrap());
        let hops = path.way(ends[0], ends[1]);
        hops.iter().map(|hop| hop.link.0).collect()
    };
    // Links 6 and 2 are taken instead of 3 and 5, since link 2 is the earliest of these.
    assert_eq!(way("a", "d"), [6, 2]);
    assert_eq!(way("d", "a"), [2, 6]);
    assert_eq!(way("a", "c"), [3]);
    assert_eq!(way("b", "a"), [6]);
    // Over a and over d: the earliest of the links 2, 3, 5 and 6 decides.
    assert_eq!(way("b", "c"), [2, 5]);
    assert_eq!(way("c", "b"), [5, 2]);
    let text = path.to_text().unwrap();
    let again = Path::read(&Source::new("graph.toml", text)).unwrap();
    assert_eq!(again, path);
}

#[test]
fn the_bottleneck_is_the_least_rate_each_way() {
    let path = path();
    let rate = |text: &str| Some(text.parse().unwrap());
    let rates = path.bottleneck(&path.flows[0]);
    assert_eq!((rates.down, rates.up), (rate("4 Mbit/s"), rate("1 Mbit/s")));
    // The third flow is opened from the other side: its "down" is the first flow's "up".
    let rates = path.bottleneck(&path.flows[2]);
    assert_eq!((rates.down, rates.up), (rate("1 Mbit/s"), rate("4 Mbit/s")));
    assert_eq!(path.data_rate(&path.flows[2]), rate("1 Mbit/s"));
    assert_eq!(
        path.round_trip_time(&path.flows[0]),
        TimeSpan::from_milliseconds(12)
    );
}

#[test]
fn proxies_that_are_not_kept_forward_only() {
    let mut path = Path::load("wifi").unwrap();
    let proxies: Vec<String> = path
        .proxies()
        .map(|(index, _)| path.node(index).name.clone())
        .collect();
    let before = path.clone();
    let names: Vec<&str> = proxies.iter().map(String::as_str).collect();
    path.keep_proxies(&names);
    assert_eq!(path, before);
    path.keep_proxies(&["another"]);
    assert_eq!(path.proxies().count(), 0);
    assert_eq!(path.nodes.len(), before.nodes.len());
    let first = path.links[0].name.clone();
    assert_eq!(path.find_link(&first), Some(LinkIndex(0)));
    assert_eq!(path.find_link("another"), None);
}
