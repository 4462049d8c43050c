//! Sending ahead of a client's window, chosen by the policy on long legs, and bounded starts there: what
//! they gain, and that they cost nothing where data is lost.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{PathFlowParts, Scenario, Simulation};

/// A client, the size of its download, and when it begins, in milliseconds.
type Download<'a> = (&'a str, &'a str, u64);

/// Time between two downloads of which one follows the other, in milliseconds.
const LATER: u64 = 60_000;

/// A satellite link of 20/2 Mbit/s with this one-way `delay` and this `loss`, and downloads of one client. With
/// "280 ms" and "0", the link is that of the path file `geo-clean`. Each download begins a minute after the
/// one before.
fn path(key: &str, delay: &str, loss: &str, seed: u64, sizes: &[&str]) -> Path {
    let starts = (0..).map(|number| number * LATER);
    let downloads: Vec<Download> = (sizes.iter().zip(starts))
        .map(|(size, start)| ("client", *size, start))
        .collect();
    path_of(key, delay, loss, seed, &downloads)
}

/// The same with a neighbour of this client, behind a link of the same kind.
fn path_of(key: &str, delay: &str, loss: &str, seed: u64, downloads: &[Download]) -> Path {
    let flows: Vec<String> = (downloads.iter().enumerate())
        .map(|(number, (client, size, start))| {
            format!(
                "[[flow]]\nname = \"f{number}\"\nfrom = \"{client}\"\nto = \"server\"\n\
                 workload = \"download\"\nsize = \"{size}\"\nstart = \"{start} ms\"\n"
            )
        })
        .collect();
    let text = format!(
        r#"
seed = {seed}
[[host]]
name = "client"
[[proxy]]
name = "gateway"
policy = "auto"
client_leg = {{ {key} }}
[[host]]
name = "server"
congestion_control = "cubic"
[[link]]
name = "satellite"
between = ["client", "gateway"]
delay = "{delay}"
queue = "1000 packets"
loss = "{loss}"
up = {{ rate = "2 Mbit/s" }}
down = {{ rate = "20 Mbit/s" }}
[[host]]
name = "neighbour"
[[link]]
name = "other"
between = ["neighbour", "gateway"]
delay = "{delay}"
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
[run]
flows = "together"
"#,
        flows.concat()
    );
    Path::read(&Source::new("test", text)).unwrap()
}

const ON: &str = "";
const OFF: &str = "sending_ahead = \"off\"";

/// The seconds that each download takes.
fn seconds(path: &Path) -> Vec<f64> {
    let made = Scenario::from_path(path, true).unwrap().remove(0);
    let results = Simulation::new(&made.scenario).unwrap().run();
    let of = |parts: &PathFlowParts| {
        let end = results.flows[parts.data[0].0].finished.unwrap();
        end.nanoseconds() as f64 / 1e9 - path.flows[parts.flow].start.as_seconds()
    };
    made.flows.iter().map(of).collect()
}

/// The seconds of a download to an unknown client, and of the same to a client that is known since.
fn cold_and_learned(key: &str, loss: &str, seed: u64, size: &str) -> [f64; 2] {
    let times = seconds(&path(key, "280 ms", loss, seed, &[size, size]));
    [times[0], times[1]]
}

#[test]
fn it_saves_round_trips_over_a_satellite_without_loss() {
    for (size, cold_gain, learned_gain) in [
        ("100 KB", 0.0, 0.5),
        ("1 MB", 1.2, 0.9),
        ("10 MB", 1.2, 0.9),
    ] {
        let [cold, learned] = cold_and_learned(ON, "0", 1, size);
        let [cold_without, learned_without] = cold_and_learned(OFF, "0", 1, size);
        println!(
            "{size}: cold {cold_without:.2} s becomes {cold:.2} s, learned {learned_without:.2} s \
             becomes {learned:.2} s"
        );
        assert!(
            cold + cold_gain <= cold_without,
            "{size}: {cold} {cold_without}"
        );
        assert!(
            learned + learned_gain <= learned_without,
            "{size}: {learned} {learned_without}"
        );
    }
}

#[test]
fn a_lesson_of_one_megabyte_is_enough() {
    let learned = |size| seconds(&path(ON, "280 ms", "0", 1, &["1 MB", size]))[1];
    let times = ["100 KB", "1 MB", "10 MB"].map(learned);
    println!("without loss, 100 KB, 1 MB, 10 MB: {times:.2?} s");
    for (time, most) in times.into_iter().zip([1.35, 2.0, 5.8]) {
        assert!(time <= most, "{times:?}");
    }
}

/// The handshake shows that a leg is long, so the very first client of a network has a bounded start.
#[test]
fn the_first_client_of_a_network_has_a_bounded_start() {
    for (size, most) in [("1 MB", 2.25), ("10 MB", 6.1)] {
        let [first, _] = cold_and_learned(ON, "0", 1, size);
        println!("{size}: {first:.2} s");
        assert!(first <= most, "{size}: {first}");
    }
}

/// Seconds of a download to an unknown client of a network whose legs are known to be long.
fn in_a_known_network(key: &str, loss: &str, seed: u64, size: &str) -> f64 {
    let downloads = [("neighbour", "20 KB", 0), ("client", size, LATER)];
    seconds(&path_of(key, "280 ms", loss, seed, &downloads))[1]
}

#[test]
fn one_session_of_a_neighbour_shows_that_legs_are_long() {
    for (size, most) in [("1 MB", 2.25), ("10 MB", 6.1)] {
        let time = in_a_known_network(ON, "0", 1, size);
        let without = in_a_known_network(OFF, "0", 1, size);
        println!("{size}: {time:.2} s, without {without:.2} s");
        assert!(time <= most, "{size}: {time}");
        assert!(without > most, "{size}: {without}");
    }
}

/// The median over seeds. With fifteen seeds, medians of the same build differ by half a second.
fn median(of: impl Fn(u64) -> f64) -> f64 {
    let mut times: Vec<f64> = (1..=45).map(of).collect();
    times.sort_unstable_by(f64::total_cmp);
    times[22]
}

/// On a path that loses one packet in a thousand.
#[test]
fn a_little_loss_leaves_most_of_the_gain() {
    let loss = "0.1 %";
    for (size, known, cold) in [
        ("100 KB", 1.35, 1.85),
        ("1 MB", 2.2, 2.45),
        ("10 MB", 6.6, 7.2),
    ] {
        let of = |key, place: usize| median(|seed| cold_and_learned(key, loss, seed, size)[place]);
        let (with, without) = (of(ON, 1), of(OFF, 1));
        let (with_cold, without_cold) = (of(ON, 0), of(OFF, 0));
        println!(
            "0.1 % lost, {size}: learned {with:.2} s, without {without:.2} s; cold {with_cold:.2} s, \
             without {without_cold:.2} s"
        );
        assert!(
            with <= known && with <= without * 1.02,
            "{size}: {with} {without}"
        );
        assert!(
            with_cold <= cold && with_cold <= without_cold * 1.02,
            "{size}: {with_cold} {without_cold}"
        );
    }
}

#[test]
fn a_short_leg_is_left_as_it_is() {
    let of = |key| seconds(&path(key, "70 ms", "0", 1, &["1 MB", "1 MB"]));
    assert_eq!(of(ON), of(OFF));
}

/// The geometric mean over seeds: other timing loses other packets.
fn mean_ratio(loss: &str, size: &str, seeds: u64) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for seed in 1..=seeds {
        let with = cold_and_learned(ON, loss, seed, size);
        let without = cold_and_learned(OFF, loss, seed, size);
        for (sum, (with, without)) in sums.iter_mut().zip(with.into_iter().zip(without)) {
            *sum += libm::log(with / without) / seeds as f64;
        }
    }
    sums.map(f64::exp)
}

#[test]
fn it_costs_nothing_where_data_is_lost() {
    for loss in ["0.1 %", "1 %"] {
        for (size, seeds) in [("100 KB", 400), ("1 MB", 100), ("10 MB", 120)] {
            let [cold, learned] = mean_ratio(loss, size, seeds);
            println!("{loss}, {size}: cold {cold:.3}, learned {learned:.3} times as long");
            assert!(
                cold <= 1.02 && learned <= 1.02,
                "{loss} {size}: {cold} {learned}"
            );
        }
    }
}
