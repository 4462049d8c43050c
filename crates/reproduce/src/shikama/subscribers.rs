//! Many subscribers of one GEO link: how goodput is shared, how the downloads delay a dialogue, and
//! how one heavy user delays the pages of others.

use std::fmt::Write as _;

use midspan_path::Path;

use crate::laboratory::point::{read, repetitions};
use crate::laboratory::{Case, Extent, LaboratoryError, Metric, Point, Statement};

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
    let (bytes, requests) = match extent {
        Extent::Quick => (500_000_u32, 5),
        _ => (2_500_000, 20),
    };
    let mut flows = String::new();
    for subscriber in 1..=SUBSCRIBERS {
        // Clients start one after another. A common start would load the emulator, not the path.
        let start = 100 * (subscriber - 1);
        // Writing to a string cannot fail.
        let _ = write!(
            flows,
            r#"
[[flow]]
name = "download {subscriber}"
from = "subscriber-{subscriber}"
to = "server"
workload = "download"
size = "{bytes} B"
start = "{start} ms"
"#
        );
    }
    let asking = SUBSCRIBERS + 1;
    let _ = write!(
        flows,
        r#"
[[flow]]
name = "dialogue"
from = "subscriber-{asking}"
to = "server"
workload = "request-response"
count = {requests}
size = "2 KB"
start = "3 s"
"#
    );
    // The link carries 19 Mbit/s of data.
    let all = u32::try_from(SUBSCRIBERS).unwrap_or(u32::MAX);
    let seconds = f64::from(all) * f64::from(bytes) * 8.0 / 19e6;
    Ok(Point {
        item: ITEM,
        name: "GEO, 20 subscribers download, one asks".to_owned(),
        cases: cases(asking, &flows, seconds + 4.0)?,
        repetitions: repetitions(false, extent),
        statements: vec![
            Statement::new(Metric::Fairness(SUBSCRIBERS), AUTO, &[]).at_least(FAIR),
            Statement::new(Metric::Fairness(SUBSCRIBERS), DIRECT, &[]),
            Statement::new(Metric::Responses(SUBSCRIBERS), AUTO, &[DIRECT]).at_most(1.0),
            Statement::new(Metric::Responses(SUBSCRIBERS), AUTO, &[]),
            Statement::new(Metric::CompletionOf(u64::from(bytes)), AUTO, &[DIRECT]),
        ],
        ..Point::default()
    })
}

/// One subscriber downloads without an end, others load a page each.
fn heavy(extent: Extent) -> Result<Point, LaboratoryError> {
    let seconds = 20;
    let mut flows = format!(
        r#"
[[flow]]
name = "heavy"
from = "subscriber-1"
to = "server"
workload = "bulk-download"
duration = "{seconds} s"
"#
    );
    for (subscriber, start) in [(2, 4), (3, 8), (4, 12)] {
        let _ = write!(
            flows,
            r#"
[[flow]]
name = "page {subscriber}"
from = "subscriber-{subscriber}"
to = "server"
workload = "page"
objects = 30
size = "20 KB"
start = "{start} s"
"#
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
        cases: cases(4, &flows, f64::from(seconds))?,
        repetitions: repetitions(false, extent),
        statements,
        ..Point::default()
    })
}

fn cases(subscribers: usize, flows: &str, seconds: f64) -> Result<Vec<Case>, LaboratoryError> {
    let path = path(subscribers, flows)?;
    Ok(vec![
        Case::direct(DIRECT, path.clone(), seconds),
        Case::midspan(AUTO, path, seconds),
    ])
}

/// The link of the built-in path `geo-clean`. Each subscriber has an address of its own.
fn path(subscribers: usize, flows: &str) -> Result<Path, LaboratoryError> {
    let mut text = String::new();
    for subscriber in 1..=subscribers {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#"
[[host]]
name = "subscriber-{subscriber}"
[[link]]
name = "subscriber-{subscriber}"
between = ["subscriber-{subscriber}", "terminal"]
rate = "100 Mbit/s"
"#
        );
    }
    let _ = write!(
        text,
        r#"
[[router]]
name = "terminal"
[[proxy]]
name = "gateway"
policy = "auto"
[[host]]
name = "server"
congestion_control = "cubic"
[[link]]
name = "satellite"
between = ["terminal", "gateway"]
delay = "280 ms"
queue = "1000 packets"
up = {{ rate = "2 Mbit/s" }}
down = {{ rate = "20 Mbit/s" }}
[[link]]
name = "internet"
between = ["gateway", "server"]
rate = "100 Mbit/s"
delay = "20 ms"
{flows}
[run]
flows = "together"
"#
    );
    read("subscribers", &text)
}
