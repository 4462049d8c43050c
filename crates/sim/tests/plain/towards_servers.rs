//! Legs towards servers: a receive window that is open from the first ACK on, starts of uploads that are learned, and
//! uploads at a written rate.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use midspan_document::Source;
use midspan_path::Path;
use midspan_sim::{PathFlowParts, Scenario, Simulation};

/// Two transfers, one after the other.
fn path(workload: &str, size: &str, server_leg: &str, initial_window: u32, loss: &str) -> Path {
    let flow = |number: u32| {
        format!(
            "[[flow]]\nname = \"f{number}\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"{workload}\"\nsize = \"{size}\"\nstart = \"{} s\"\n",
            number * 100
        )
    };
    let flows = format!("{}{}", flow(0), flow(1));
    path_with(&flows, server_leg, initial_window, loss)
}

/// These flows between a client in a LAN and a server behind a satellite link of 20/2 Mbit/s and 560 ms.
fn path_with(flows: &str, server_leg: &str, initial_window: u32, loss: &str) -> Path {
    let text = format!(
        r#"
seed = 1
[[host]]
name = "client"
[[proxy]]
name = "terminal"
policy = "auto"
server_leg = {{ {server_leg} }}
[[host]]
name = "server"
congestion_control = "cubic"
initial_window = {initial_window}
[[link]]
name = "lan"
between = ["client", "terminal"]
rate = "1 Gbit/s"
delay = "0.1 ms"
queue = "1000 packets"
[[link]]
name = "satellite"
between = ["terminal", "server"]
delay = "280 ms"
queue = "1000 packets"
loss = "{loss}"
up = {{ rate = "2 Mbit/s" }}
down = {{ rate = "20 Mbit/s" }}
{flows}
[run]
flows = "together"
"#
    );
    Path::read(&Source::new("test", text)).unwrap()
}

/// The seconds of both transfers.
fn seconds(path: &Path) -> [f64; 2] {
    let made = Scenario::from_path(path, true).unwrap().remove(0);
    let results = Simulation::new(&made.scenario).unwrap().run();
    let of = |parts: &PathFlowParts| {
        let end = results.flows[parts.data[0].0].finished.unwrap();
        end.nanoseconds() as f64 / 1e9 - path.flows[parts.flow].start.as_seconds()
    };
    let all: Vec<f64> = made.flows.iter().map(of).collect();
    all.try_into().unwrap()
}

const OFF: &str = "receive_window = \"off\"";

#[test]
fn a_window_that_is_written_is_open_at_once() {
    let key = "receive_window = \"3 MiB\"";
    let [first, next] = seconds(&path("download", "1 MB", key, 600, "0"));
    let without = seconds(&path("download", "1 MB", OFF, 600, "0"));
    println!("{first:.2} s, then {next:.2} s; off: {without:.2?} s");
    assert!(first + 0.8 < without[0] && next + 0.8 < without[1]);
}

#[test]
fn an_upload_starts_by_what_the_last_one_has_shown() {
    for (loss, gain) in [("0", 0.5), ("1 %", 0.5)] {
        let [first, next] = seconds(&path("upload", "1 MB", "", 10, loss));
        println!("loss {loss}: {first:.2} s, then {next:.2} s");
        assert!(next + gain < first, "{loss}: {first} {next}");
    }
}

/// The bytes that each of this many uploads carries in 60 s, with BBR at a written rate and a loss of 1 %.
fn uploads_at_written_rate(count: usize) -> Vec<u64> {
    let key = "congestion_control = \"bbr\", initial_window = 103, pacing_rate = \"1.9 Mbit/s\"";
    let flow = |number: usize| {
        format!(
            "[[flow]]\nname = \"f{number}\"\nfrom = \"client\"\nto = \"server\"\n\
             workload = \"bulk-upload\"\nduration = \"60 s\"\n"
        )
    };
    let flows: String = (0..count).map(flow).collect();
    let path = path_with(&flows, key, 10, "1 %");
    let made = Scenario::from_path(&path, true).unwrap().remove(0);
    let results = Simulation::new(&made.scenario).unwrap().run();
    let delivered = |parts: &PathFlowParts| results.flows[parts.data[0].0].delivered;
    made.flows.iter().map(delivered).collect()
}

/// With ProbeRTT, hardly anything is sent for 1.2 s of each 10 s, and 12.7 MB arrive.
#[test]
fn an_upload_at_its_written_rate_does_not_stop_to_probe_the_round_trip() {
    let delivered = uploads_at_written_rate(1)[0];
    println!("{delivered} bytes");
    assert!(delivered > 13_300_000, "{delivered}");
}

/// None of them gets its written rate, so they probe, and the queue becomes empty again and again. If BBR began again on
/// such legs, one upload would have 0.43 of the other one's bytes.
#[test]
fn uploads_that_share_a_link_get_shares_of_it() {
    let delivered = uploads_at_written_rate(2);
    println!("{delivered:?} bytes");
    assert!(delivered.iter().sum::<u64>() > 12_000_000, "{delivered:?}");
    let least = *delivered.iter().min().unwrap();
    let most = *delivered.iter().max().unwrap();
    assert!(least > 3_000_000 && least * 10 > most * 6, "{delivered:?}");
}
