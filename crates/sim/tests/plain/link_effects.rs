//! Recorded traces, managed queues and reordering below simulated TCP.

#![allow(clippy::unwrap_used)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{FlowResults, LinkResults, Scenario, Simulation};

/// The flows of a path without its proxies, and its links. The flows run together.
fn run(path: &Path) -> (Vec<FlowResults>, Vec<LinkResults>) {
    let made = Scenario::from_path(path, false).unwrap();
    let results = Simulation::new(&made[0].scenario).unwrap().run();
    let flows = made[0].flows.iter().map(|parts| {
        let data: Vec<_> = parts.data.iter().map(|id| &results.flows[id.0]).collect();
        data.last().copied().unwrap().clone()
    });
    (flows.collect(), results.links.clone())
}

fn seconds(flow: &FlowResults) -> f64 {
    flow.finished.unwrap().nanoseconds() as f64 / 1e9
}

#[test]
fn a_download_takes_as_long_as_its_recorded_trace_lets_it() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/traces/drive.toml");
    let path = Path::load(file).unwrap();
    let (flows, links) = run(&path);
    // 5 MB in segments of 1,448 bytes take 3,454 opportunities; they propagate in 50 ms.
    let trace = include_str!("../../../../docs/traces/sine.down");
    let times: Vec<f64> = trace.lines().map(|line| line.parse().unwrap()).collect();
    let (whole, rest) = (3454 / times.len(), 3454 % times.len());
    let milliseconds = whole as f64 * times[times.len() - 1] + times[rest - 1];
    let least = milliseconds / 1e3 + 0.05;
    let took = seconds(&flows[0]);
    assert!(
        (least..least * 1.2).contains(&took),
        "{took} s, at least {least} s"
    );
    // The same again: the trace has no random numbers of its own.
    let again = run(&Path::load(file).unwrap());
    assert_eq!((seconds(&again.0[0]), &again.1), (took, &links));
}

/// A download of 20 s, and requests from 5 s on, over 10 Mbit/s with these keys.
fn shared(keys: &str) -> (f64, f64, u64) {
    let text = format!(
        r#"
[[host]]
name = "client"
[[host]]
name = "server"
congestion_control = "cubic"
[[link]]
name = "line"
between = ["client", "server"]
delay = "20 ms"
up = {{ rate = "10 Mbit/s" }}
down = {{ rate = "10 Mbit/s", {keys} }}
[[flow]]
name = "bulk"
from = "client"
to = "server"
workload = "bulk-download"
duration = "20 s"
[[flow]]
name = "dialogue"
from = "client"
to = "server"
workload = "request-response"
count = 20
size = "1 KB"
start = "5 s"
[run]
flows = "together"
"#
    );
    let path = Path::read(&Source::new("test", text.as_str())).unwrap();
    let (flows, links) = run(&path);
    let answer = (seconds(&flows[1]) - 5.0) / 20.0;
    let goodput = flows[0].delivered as f64 * 8.0 / 20.0 / 10e6;
    let early = links[0].down.early.packets;
    println!("{keys}: answer {answer:.4} s, goodput {goodput:.3} of the rate, {early} early drops");
    (answer, goodput, early)
}

#[test]
fn a_managed_queue_is_short_and_the_link_stays_busy() {
    let (tail, _, early) = shared("queue = \"1000 packets\"");
    assert!(tail > 0.2 && early == 0, "{tail}");
    let (codel, goodput, early) = shared("aqm = \"codel\"");
    assert!(
        codel < 0.1 && goodput > 0.85 && early > 10,
        "{codel}, {goodput}, {early}"
    );
    // Requests do not wait behind the download at all.
    let (fair, goodput, early) = shared("aqm = \"fq_codel\"");
    assert!(
        fair < 0.05 && goodput > 0.85 && early > 10,
        "{fair}, {goodput}, {early}"
    );
}

#[test]
fn reordering_delays_a_download_that_arrives_nevertheless() {
    let path = |keys: &str| {
        let text = format!(
            "[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\n[[link]]\nname = \"line\"\n\
             between = [\"client\", \"server\"]\nrate = \"20 Mbit/s\"\ndelay = \"40 ms\"\n{keys}\n\
             [[flow]]\nname = \"file\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"download\"\nsize = \"5 MB\"\n"
        );
        Path::read(&Source::new("test", text.as_str())).unwrap()
    };
    let plain = seconds(&run(&path("")).0[0]);
    let reordered = path("down = { reorder = { share = \"1 %\", earlier = \"20 ms\" } }");
    let (flows, links) = run(&reordered);
    assert!(
        seconds(&flows[0]) > plain,
        "{} s after {plain} s",
        seconds(&flows[0])
    );
    assert_eq!(flows[0].delivered, 5_000_000);
    assert_eq!(links[0].down.lost.packets, 0);
}
