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

/// What many runs have in common: a single run is chaotic, because one loss decides which session
/// leaves its slow start first.
#[derive(Default)]
struct Means {
    fairness: f64,
    slowest: f64,
    mean: f64,
}

/// Means over runs in which sessions begin with different gaps, after these lessons.
fn means(
    key: &str,
    gaps: &[u64],
    lessons: &[Download<'static>],
    downloads: impl Fn(u64) -> Vec<Download<'static>>,
) -> Means {
    let mut means = Means::default();
    for gap in gaps {
        let all = [lessons, downloads(*gap).as_slice()].concat();
        let times = seconds(key, &all).split_off(lessons.len());
        let count = gaps.len() as f64;
        means.fairness += fairness(&times) / count;
        means.slowest += slowest(&times) / count;
        means.mean += times.iter().sum::<f64>() / times.len() as f64 / count;
    }
    means
}

fn compared(with: &Means, without: &Means) -> String {
    format!(
        "Jain's index {:.3}, without {:.3}; the slowest {:.2} s, without {:.2} s; mean {:.2} s, without {:.2} s",
        with.fairness, without.fairness, with.slowest, without.slowest, with.mean, without.mean
    )
}

/// Downloads after a lesson take about as long as without sending ahead. Without a bound for each session:
/// one that begins alone ends sooner, and those that come later find its data on the link.
fn assert_shared(
    what: &str,
    (gaps, most): (&[u64], f64),
    downloads: impl Fn(u64) -> Vec<Download<'static>>,
) {
    let [with, without] = [ON, OFF].map(|key| means(key, gaps, &[LESSON], &downloads));
    println!("{what}: {}", compared(&with, &without));
    assert!(with.mean <= without.mean * most);
}

/// The connections of a web page begin together, others one after the other.
const TOGETHER: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const SOON: [u64; 10] = [60, 70, 80, 90, 100, 110, 120, 130, 140, 150];
const LATE: [u64; 10] = [200, 220, 240, 260, 280, 300, 320, 340, 360, 380];

#[test]
fn sessions_of_one_client_share_its_link() {
    for (count, gaps, most) in [(6, TOGETHER, 1.0), (12, SOON, 1.08), (6, LATE, 1.0)] {
        let what = format!(
            "{count} downloads of one client, about {} ms apart",
            gaps[4]
        );
        assert_shared(&what, (&gaps, most), |gap| {
            let download = |number| (0, "2 MB", LATER + gap * number);
            (0..count).map(download).collect()
        });
    }
}

/// Only the first of these clients is known, and the network.
#[test]
fn clients_behind_one_link_share_it() {
    for (count, gaps, most) in [(6, TOGETHER, 1.0), (12, SOON, 1.08)] {
        let what = format!("{count} clients, about {} ms apart", gaps[4]);
        assert_shared(&what, (&gaps, most), |gap| {
            let download = |number| (number, "2 MB", LATER + gap * number as u64);
            (0..count).map(download).collect()
        });
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

/// The first clients of a network begin one after the other. At their SYNs, no leg of the network is known to be long, so the
/// handshake raises all their windows.
#[test]
fn first_clients_of_a_network_share_its_link() {
    for (count, gaps, size) in [
        (6, TOGETHER, "2 MB"),
        (12, SOON, "2 MB"),
        (20, SOON, "2 MB"),
        (6, LATE, "10 MB"),
    ] {
        let what = format!("{count} first clients, about {} ms apart, {size}", gaps[4]);
        let downloads = |gap| {
            let download = |number| (number, size, gap * number as u64);
            (0..count).map(download).collect()
        };
        let [with, without] = [ON, OFF].map(|key| means(key, &gaps, &[], downloads));
        println!("{what}: {}", compared(&with, &without));
        // The more fairly sessions share, the later the first ones end.
        assert!(with.mean <= without.mean * 1.04 && with.fairness >= without.fairness - 0.03);
    }
}
