//! The paths that are part of Midspan.
#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_link::QueueLimit;
use midspan_path::{
    BuiltIn, Direction, Family, NodeKind, Order, Path, Workload, built_in, mean_rate,
};
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

fn path(name: &str) -> Path {
    Path::load(name).unwrap()
}

fn rate(text: &str) -> Option<BitRate> {
    Some(text.parse().unwrap())
}

fn milliseconds(count: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(count)
}

#[test]
fn every_built_in_path_is_good() {
    for BuiltIn {
        name, description, ..
    } in built_in()
    {
        let path = path(name);
        assert_eq!(path.name, *name);
        assert_eq!(path.description, *description, "of {name}");
        let proxies = match *name {
            "two-sided-geo" | "two-sided-geo-clean" => vec!["terminal", "hub"],
            "triangle" | "no-gain" | "brownout" | "outage" => vec!["ams", "sin"],
            "mesh5" => vec!["cpt", "syd"],
            "mesh10" => vec!["cpt", "hnd"],
            "two-uplinks" => vec!["ship", "teleport", "port"],
            _ => vec!["gateway"],
        };
        let proxies = proxies
            .into_iter()
            .map(|name| path.find_node(name).unwrap());
        let proxies: Vec<_> = proxies.collect();
        assert!(!path.flows.is_empty(), "{name} has no flow");
        for flow in &path.flows {
            assert_eq!(path.proxies_of(flow), proxies, "flow of {name}");
            assert!(path.data_rate(flow).is_some(), "{name} has no bottleneck");
        }
        for (_, host) in path.hosts() {
            let known = [None, Some("cubic"), Some("reno")];
            assert!(known.contains(&host.congestion_control.as_deref()));
        }
    }
}

#[test]
fn every_path_file_in_the_folder_is_built_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../paths");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    let mut names: Vec<&str> = built_in().iter().map(|path| path.name).collect();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn the_descriptions_give_the_round_trip_of_the_links() {
    // The exceptions name the round trip of the satellite link alone, or none at all.
    let named = |path: &Path| {
        let words: Vec<&str> = path.description.split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == "ms")?;
        words[at - 1].parse().ok().map(milliseconds)
    };
    for built_in in built_in() {
        let path = path(built_in.name);
        let whole = path.round_trip_time(&path.flows[0]);
        match built_in.name {
            "geo" | "geo-clean" | "two-sided-geo" | "two-sided-geo-clean" => {
                assert_eq!(named(&path), Some(milliseconds(560)))
            }
            "hasegawa" | "hasegawa-oversized" | "tam" => assert_eq!(whole, TimeSpan::ZERO),
            name => assert_eq!(named(&path), Some(whole), "{name}"),
        }
    }
}

#[test]
fn geo_is_the_path_of_the_demonstration() {
    let geo = path("geo");
    assert_eq!(geo.order, Order::InTurn);
    assert_eq!(geo.family, Family::Ipv4);
    let [satellite, terrestrial] = &geo.links[..] else {
        panic!("two links")
    };
    for direction in [Direction::Up, Direction::Down] {
        let link = satellite.direction(direction);
        assert_eq!(link.state.delay, milliseconds(280));
        assert_eq!(link.state.loss, "0.1 %".parse().unwrap());
        assert_eq!(link.queue, QueueLimit::Packets(1000));
        assert_eq!(link.overhead, 0);
        let link = terrestrial.direction(direction);
        assert_eq!(link.state.delay, milliseconds(20));
        assert_eq!(link.state.loss, Probability::ZERO);
    }
    let rates = geo.bottleneck(&geo.flows[0]);
    assert_eq!(rates.down, rate("20 Mbit/s"));
    assert_eq!(rates.up, rate("2 Mbit/s"));
    assert_eq!(geo.round_trip_time(&geo.flows[0]), milliseconds(600));

    let sizes: Vec<Workload> = geo.flows.iter().map(|flow| flow.workload.clone()).collect();
    let download = |bytes| Workload::Download {
        size: ByteSize::from_bytes(bytes),
    };
    assert_eq!(
        sizes,
        [download(100_000), download(1_000_000), download(10_000_000)]
    );
    let (_, gateway) = geo.proxies().next().unwrap();
    assert_eq!(
        gateway.client_leg.congestion_control.as_deref(),
        Some("bbr")
    );
    assert_eq!(gateway.client_leg.initial_window, Some(200));
    assert!(gateway.server_leg.congestion_control.is_none());
    let server = geo.node(geo.find_node("server").unwrap());
    let NodeKind::Host(settings) = &server.kind else {
        panic!("a host")
    };
    assert_eq!(settings.congestion_control.as_deref(), Some("cubic"));
}

#[test]
fn geo_clean_differs_from_geo_in_loss_and_congestion_control_only() {
    let mut geo = path("geo");
    let clean = path("geo-clean");
    geo.name.clone_from(&clean.name);
    geo.description.clone_from(&clean.description);
    geo.links[0].up.state.loss = Probability::ZERO;
    geo.links[0].down.state.loss = Probability::ZERO;
    for node in &mut geo.nodes {
        if let NodeKind::Proxy(settings) = &mut node.kind {
            settings.client_leg.congestion_control = Some("cubic".to_owned());
        }
    }
    assert_eq!(geo, clean);
}

#[test]
fn the_mean_of_a_schedule_weighs_its_rates_by_time() {
    let lte = path("lte");
    // 25·0.8 + 40·1.2 + 30·1.1 + 15·0.9 + 10·1.3 + 20·1.7 Mbit in 7 s.
    let down = mean_rate(&lte.links[0].down).unwrap().bits_per_second();
    assert_eq!(down, 161_500_000 / 7);
    // LEO's first rate is in force from 57.06 s of one repetition to 12.04 s of the next.
    let leo = path("leo");
    let down = mean_rate(&leo.links[0].down).unwrap().bits_per_second();
    let bits = 120_000 * (60_000 - 57_060 + 12_040)
        + 70_000 * (27_080 - 12_040)
        + 160_000 * (42_040 - 27_080)
        + 90_000 * (57_060 - 42_040_u64);
    assert_eq!(down, bits / 60);
}

#[test]
fn tam_has_the_printed_packets_and_bandwidth_ratio() {
    let tam = path("tam");
    let asymmetric = &tam.links[1];
    assert_eq!(asymmetric.down.overhead + 1500, 1523);
    let rates = tam.bottleneck(&tam.flows[0]);
    assert_eq!(rates.down, rate("4 Mbit/s"));
    assert_eq!(rates.up, rate("100 kbit/s"));
    // k = (4000 / 100) / (1523 / 73) = 1.9, as printed in section 5.2.
    let ratio = |down: Option<BitRate>, up: Option<BitRate>| {
        down.unwrap().bits_per_second() * 10 * 73 / (up.unwrap().bits_per_second() * 1523)
    };
    assert_eq!(ratio(rates.down, rates.up), 19);
    assert_eq!(asymmetric.up.queue, QueueLimit::Packets(20));
    assert_eq!(asymmetric.down.queue, QueueLimit::Packets(20));
}

#[test]
fn the_text_of_a_built_in_path_is_a_path_file_like_any_other() {
    for built_in in built_in() {
        let source = Source::new("copy.toml", built_in.text);
        let mut copy = Path::read(&source).unwrap();
        assert_eq!(copy.name, "copy");
        built_in.name.clone_into(&mut copy.name);
        assert_eq!(copy, path(built_in.name));
    }
}
