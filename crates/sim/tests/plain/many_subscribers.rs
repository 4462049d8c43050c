//! Many downloads on one satellite link, through a proxy that chooses its settings: measures the
//! queue and the delay of other traffic.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use std::fmt::Write as _;

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{Scenario, Simulation};

const DOWNLOADS: usize = 20;
const BYTES: u64 = 5_000_000;

/// Twenty downloads, and one dialogue that begins after they have filled the link. `proxy` are the
/// keys of the proxy.
fn text(proxy: &str) -> String {
    let mut text = format!(
        r#"
[[host]]
name = "client"
[[proxy]]
name = "gateway"
{proxy}
[[host]]
name = "server"
congestion_control = "cubic"
[[link]]
name = "satellite"
between = ["client", "gateway"]
delay = "280 ms"
queue = "1000 packets"
up = {{ rate = "2 Mbit/s" }}
down = {{ rate = "20 Mbit/s" }}
[[link]]
name = "internet"
between = ["gateway", "server"]
rate = "1 Gbit/s"
delay = "20 ms"
[run]
flows = "together"
[[flow]]
name = "dialogue"
from = "client"
to = "server"
workload = "request-response"
count = 20
size = "2 KB"
start = "8 s"
"#
    );
    for number in 0..DOWNLOADS {
        write!(
            text,
            r#"
[[flow]]
name = "download {number}"
from = "client"
to = "server"
workload = "download"
size = "{BYTES} B"
start = "{} ms"
"#,
            100 * number
        )
        .unwrap();
    }
    text
}

struct Measured {
    /// Mean time for one request and its response, in seconds.
    answer: f64,
    /// Jain's index of the downloads' rates.
    fairness: f64,
    /// Seconds until all downloads were complete.
    all: f64,
}

fn run(proxy: &str) -> Measured {
    let path = Path::read(&Source::new("subscribers", text(proxy))).unwrap();
    let made = Scenario::from_path(&path, true).unwrap();
    assert_eq!(made.len(), 1);
    let results = Simulation::new(&made[0].scenario).unwrap().run();
    let finished = |flow: usize| {
        let parts = made[0].flows.iter().find(|parts| parts.flow == flow);
        let ends = parts.unwrap().data.iter().map(|id| &results.flows[id.0]);
        let last = ends.map(|end| end.finished.unwrap()).max().unwrap();
        last.nanoseconds() as f64 / 1e9
    };
    let place = |name: &str| {
        path.flows
            .iter()
            .position(|flow| flow.name == name)
            .unwrap()
    };
    let ends: Vec<f64> = (0..DOWNLOADS)
        .map(|number| finished(place(&format!("download {number}"))))
        .collect();
    let rates: Vec<f64> = (ends.iter().enumerate())
        .map(|(number, end)| BYTES as f64 / (end - 0.1 * number as f64))
        .collect();
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    Measured {
        answer: (finished(place("dialogue")) - 8.0) / 20.0,
        fairness: sum * sum / (rates.len() as f64 * squares),
        all: ends.iter().copied().fold(0.0, f64::max),
    }
}

#[test]
fn sessions_that_share_a_link_leave_its_queue_short_and_the_link_busy() {
    let alone = run("policy = \"configured\"");
    let shared = run("policy = \"auto\"");
    let cubic = run("policy = \"auto\"\nclient_leg = { congestion_control = \"cubic\" }");
    let all = [
        ("configured", &alone),
        ("auto", &shared),
        ("auto, cubic", &cubic),
    ];
    for (name, it) in all {
        let Measured {
            answer,
            fairness,
            all,
        } = it;
        println!("{name}: answer {answer:.3} s, Jain's index {fairness:.3}, all in {all:.1} s");
    }
    for it in [&shared, &cubic] {
        assert!(it.answer < 0.6 * alone.answer);
        assert!(it.all < alone.all);
        assert!(it.fairness >= 0.98);
    }
}
