//! Many subscribers of one GEO link: how goodput is shared, how the downloads delay a dialogue, and
//! how one heavy user delays the pages of others.

use midspan_path::{Error, Flow, NodeIndex, Order, Path, Workload};
use midspan_units::{ByteSize, TimeSpan};

use crate::laboratory::point::repetitions;
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Point, Statement};
use crate::network::Network;
use crate::run::number;

const NETWORK: Network = Network::new("subscribers", include_str!("subscribers.toml"));

const ITEM: &str = "many subscribers";
const DIRECT: &str = "no proxy, CUBIC";
const AUTO: &str = "proxy, auto";
/// The number of subscribers that download.
const SUBSCRIBERS: usize = 20;
/// The lower bound of Jain's index.
const FAIR: f64 = 0.9;

/// The points of the item.
pub(super) fn points(extent: Extent) -> Result<Vec<Point>, LaboratoryError> {
    Ok(match extent {
        Extent::Quick => vec![twenty(extent)?],
        Extent::Normal | Extent::Full => vec![twenty(extent)?, heavy(extent)?],
    })
}

/// Twenty subscribers download at once, and one sends small requests again and again.
fn twenty(extent: Extent) -> Result<Point, LaboratoryError> {
    let (bytes, count) = match extent {
        Extent::Quick => (500_000, 5),
        _ => (2_500_000, 20),
    };
    let path = downloads(bytes, count, TimeSpan::from_seconds(3))?;
    // The link carries 19 Mbit/s of data.
    let seconds = number(SUBSCRIBERS as u64 * bytes) * 8.0 / 19e6;
    Ok(Point {
        item: ITEM,
        name: "GEO, 20 subscribers download, one asks".to_owned(),
        cases: cases(path, seconds + 4.0),
        repetitions: repetitions(false, extent),
        statements: vec![
            Statement::new(Metric::Fairness(SUBSCRIBERS), AUTO, &[]).at_least(FAIR),
            Statement::new(Metric::Fairness(SUBSCRIBERS), DIRECT, &[]),
            Statement::new(Metric::Responses(SUBSCRIBERS), AUTO, &[DIRECT]).at_most(1.0),
            Statement::new(Metric::Responses(SUBSCRIBERS), AUTO, &[]),
            Statement::new(Metric::CompletionOf(bytes), AUTO, &[DIRECT]),
        ],
        ..Point::default()
    })
}

/// One subscriber downloads without an end, others load a page each.
fn heavy(extent: Extent) -> Result<Point, LaboratoryError> {
    let duration = TimeSpan::from_seconds(20);
    let page = Workload::Page {
        objects: 30,
        size: ByteSize::from_bytes(20_000),
        parallel: 6,
    };
    let mut path = network(4)?;
    let endless = Workload::BulkDownload { duration };
    add(&mut path, "heavy", 1, endless, TimeSpan::ZERO);
    for (subscriber, start) in [(2, 4), (3, 8), (4, 12)] {
        let name = format!("page {subscriber}");
        add(
            &mut path,
            &name,
            subscriber,
            page.clone(),
            TimeSpan::from_seconds(start),
        );
    }
    let mut statements = Vec::new();
    for page in 1..=3 {
        let ratio = Statement::new(Metric::CompletionAt(page), AUTO, &[DIRECT]);
        statements.push(ratio.at_most(1.0));
        statements.push(Statement::new(Metric::CompletionAt(page), AUTO, &[]));
    }
    statements.push(Statement::new(Metric::GoodputOf(0), AUTO, &[DIRECT]));
    Ok(Point {
        item: ITEM,
        name: "GEO, one downloads, three load pages".to_owned(),
        cases: cases(path, duration.as_seconds()),
        repetitions: repetitions(false, extent),
        statements,
        ..Point::default()
    })
}

fn cases(path: Path, seconds: f64) -> Vec<Case> {
    vec![
        Case::direct(DIRECT, path.clone(), seconds),
        Case::midspan(AUTO, path, seconds),
    ]
}

/// Twenty subscribers, each of which downloads `bytes`, and one that sends `count` requests, the
/// first after `pause`.
fn downloads(bytes: u64, count: u32, pause: TimeSpan) -> Result<Path, Error> {
    let asking = SUBSCRIBERS + 1;
    let mut path = network(asking)?;
    let file = Workload::Download {
        size: ByteSize::from_bytes(bytes),
    };
    for subscriber in 1..asking {
        // Clients start one after another. A common start would load the emulator, not the path.
        let start = TimeSpan::from_milliseconds(100 * (subscriber as u64 - 1));
        let name = format!("download {subscriber}");
        add(&mut path, &name, subscriber, file.clone(), start);
    }
    let dialogue = Workload::RequestResponse {
        count,
        size: ByteSize::from_bytes(2000),
    };
    add(&mut path, "dialogue", asking, dialogue, pause);
    Ok(path)
}

/// Adds a flow of a subscriber, counted from 1.
fn add(path: &mut Path, name: &str, subscriber: usize, workload: Workload, start: TimeSpan) {
    let node = |name: &str| path.find_node(name).unwrap_or(NodeIndex(0));
    let flow = Flow {
        name: name.to_owned(),
        from: node(&format!("subscriber-{subscriber}")),
        to: node("server"),
        workload,
        start,
    };
    path.flows.push(flow);
}

/// The network with this number of subscribers, and without flows. The path file has one
/// subscriber: the first node, on the first link. The others get copies of both.
fn network(subscribers: usize) -> Result<Path, Error> {
    let mut path = NETWORK.path(&[])?;
    path.order = Order::Together;
    let moved = |node: NodeIndex| match node.0 {
        0 => node,
        later => NodeIndex(later + subscribers - 1),
    };
    for link in &mut path.links {
        link.between = link.between.map(moved);
    }
    let (node, link) = (path.nodes[0].clone(), path.links[0].clone());
    for index in 1..subscribers {
        let name = format!("subscriber-{}", index + 1);
        let mut own = node.clone();
        own.name.clone_from(&name);
        path.nodes.insert(index, own);
        let mut own = link.clone();
        own.name = name;
        own.between[0] = NodeIndex(index);
        path.links.insert(index, own);
    }
    Ok(path)
}
