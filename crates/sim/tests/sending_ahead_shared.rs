//! Sending ahead of a client's window next to other sessions: those of one client, and those of other
//! clients behind the same satellite link.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{PathFlowParts, Scenario, Simulation};

/// The number of a client, the size of its download, and when it begins, in milliseconds.
type Download<'a> = (usize, &'a str, u64);

/// When downloads begin after a lesson, in milliseconds.
const LATER: u64 = 60_000;
/// A first download, from which the proxy learns that the client takes data ahead of its window.
const LESSON: Download = (0, "1 MB", 0);
const ON: &str = "";
const OFF: &str = ", sending_ahead = \"off\"";

/// The seconds of each download. All clients share a satellite link of 20/2 Mbit/s and 560 ms.
fn seconds(key: &str, downloads: &[Download]) -> Vec<f64> {
    let clients = downloads
        .iter()
        .map(|(client, ..)| client + 1)
        .max()
        .unwrap();
    let clients = (0..clients).map(|number| {
        format!(
            "[[host]]\nname = \"c{number}\"\n[[link]]\nname = \"l{number}\"\n\
             between = [\"c{number}\", \"terminal\"]\nrate = \"1 Gbit/s\"\n"
        )
    });
    let flows = downloads.iter().enumerate();
    let flows = flows.map(|(number, (client, size, start))| {
        format!(
            "[[flow]]\nname = \"f{number}\"\nfrom = \"c{client}\"\nto = \"server\"\n\
             workload = \"download\"\nsize = \"{size}\"\nstart = \"{start} ms\"\n"
        )
    });
    let text = format!(
        r#"
[run]
flows = "together"
[[router]]
name = "terminal"
[[proxy]]
name = "gateway"
policy = "auto"
client_leg = {{ congestion_control = "cubic"{key} }}
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
name = "terrestrial"
between = ["gateway", "server"]
rate = "1 Gbit/s"
delay = "20 ms"
queue = "1000 packets"
{}
{}
"#,
        clients.collect::<String>(),
        flows.collect::<String>()
    );
    let path = Path::read(&Source::new("test", text)).unwrap();
    let made = Scenario::from_path(&path, true).unwrap().remove(0);
    let results = Simulation::new(&made.scenario).unwrap().run();
    let of = |parts: &PathFlowParts| {
        let end = results.flows[parts.data[0].0].finished.unwrap();
        end.nanoseconds() as f64 / 1e9 - path.flows[parts.flow].start.as_seconds()
    };
    made.flows.iter().map(of).collect()
}

/// Jain's index of the rates of downloads of one size.
fn fairness(seconds: &[f64]) -> f64 {
    let rates: Vec<f64> = seconds.iter().map(|seconds| 1.0 / seconds).collect();
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

fn slowest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}

/// Downloads after a lesson are as fair as without sending ahead, and the last one ends as soon.
fn assert_shared(what: &str, downloads: &[Download]) {
    let all = [&[LESSON], downloads].concat();
    let of = |key| seconds(key, &all).split_off(1);
    let (with, without) = (of(ON), of(OFF));
    println!(
        "{what}: Jain's index {:.3}, without {:.3}; the slowest {:.2} s, without {:.2} s",
        fairness(&with),
        fairness(&without),
        slowest(&with),
        slowest(&without)
    );
    assert!(
        fairness(&with) >= (fairness(&without) - 0.05).min(0.9),
        "{with:.2?} {without:.2?}"
    );
    assert!(
        slowest(&with) <= slowest(&without) * 1.02,
        "{with:.2?} {without:.2?}"
    );
}

/// The connections of a web page begin together, others one after the other.
#[test]
fn sessions_of_one_client_share_its_link() {
    for (count, gap) in [(6, 0), (6, 300), (12, 100)] {
        let downloads: Vec<Download> = (0..count)
            .map(|number| (0, "2 MB", LATER + gap * number))
            .collect();
        assert_shared(
            &format!("{count} downloads of one client, {gap} ms apart"),
            &downloads,
        );
    }
}

/// Only the first of these clients is known, and the network.
#[test]
fn clients_behind_one_link_share_it() {
    for (count, gap) in [(6, 0), (12, 100)] {
        let downloads: Vec<Download> = (0..count)
            .map(|number| (number, "2 MB", LATER + gap * number as u64))
            .collect();
        assert_shared(&format!("{count} clients, {gap} ms apart"), &downloads);
    }
}

/// A session that is alone again goes ahead again.
#[test]
fn a_long_download_next_to_a_short_one_gains_later() {
    let downloads = [LESSON, (1, "60 KB", LATER), (0, "10 MB", LATER + 200)];
    let of = |key| seconds(key, &downloads)[2];
    let (with, without) = (of(ON), of(OFF));
    println!("10 MB next to 60 KB: {with:.2} s, without {without:.2} s");
    assert!(with + 0.3 <= without, "{with} {without}");
}
