//! Compares queues that are managed by CoDel and FQ-CoDel in Midspan's simulator with those of ns-3:
//! goodput, and the 95th percentile of the packets' waiting times, as a Markdown table.
//!
//! `cargo run --release -p simulator-cross-check --bin managed-queues`
//!
//! One or four flows (SACK, 1,000 bytes of data in a packet) over 10 Mbit/s, 25 ms one way, for 100
//! virtual seconds, with 10 seeds: 40 runs in each simulator, a few seconds each in ns-3. Each flow
//! starts within the first second, at random. A row is ok if the means differ by at most 5 %, or by at
//! most the half width of the difference's 95 % interval. The exit status is 1 if any row is not ok.
//!
//! Needs ns-3 (`apt-get install libns3-dev g++`).

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Parser;
use midspan_link::{
    Configuration, Direction, DropReason, Management, QueueManagement, State, stream,
};
use midspan_records::statistics::{Mean, mean, quantile};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Data, Flow, LinkId, Observer, Packet, Scenario, Segment, Simulation};
use midspan_units::{BitRate, Time, TimeSpan};
use rand_pcg::rand_core::Rng;
use simulator_cross_check::{Compiled, ns3};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A relative difference that is always permitted.
const TOLERANCE: f64 = 0.05;
/// Bytes of a packet, and bytes of its data.
const PACKET: (u32, u32) = (1040, 1000);
/// Propagation one way.
const DELAY: TimeSpan = TimeSpan::from_milliseconds(25);

/// Compare managed queues in Midspan's simulator with those of ns-3
#[derive(Debug, Parser)]
struct Arguments {
    /// Runs of each scenario
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Virtual seconds of each run
    #[arg(long, default_value_t = 100)]
    seconds: u64,
}

fn main() -> Result<ExitCode, Error> {
    let arguments = Arguments::parse();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("queue.cc");
    let compiled = ns3(&source)?.ok_or("no ns-3: apt-get install libns3-dev g++")?;
    println!("| method | flows | | Midspan | ns-3 | deviation | |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut failed = false;
    for method in [Management::CoDel, Management::FqCoDel] {
        for flows in [1, 4] {
            let mut columns: [Vec<f64>; 4] = Default::default();
            for seed in 1..=arguments.seeds {
                let ours = run(method, flows, seed, arguments.seconds)?;
                let theirs = run_ns3(&compiled, method, flows, seed, arguments.seconds)?;
                for (column, value) in columns.iter_mut().zip([ours.0, theirs.0, ours.1, theirs.1])
                {
                    column.push(value);
                }
            }
            let [packets, other_packets, wait, other_wait] = columns.map(|column| mean(&column));
            let goodput = 8.0 * f64::from(PACKET.1) / arguments.seconds as f64 / 1e6;
            for (what, scale, ours, theirs) in [
                ("goodput (Mbit/s)", goodput, packets, other_packets),
                ("p95 of the wait (ms)", 1e3, wait, other_wait),
            ] {
                let (ours, theirs) = (ours.ok_or("no run")?, theirs.ok_or("no run")?);
                failed |= !print(
                    &format!("| {method} | {flows} | {what}"),
                    scale,
                    &ours,
                    &theirs,
                );
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Prints one line of the table. Returns whether it is ok.
fn print(start: &str, scale: f64, ours: &Mean, theirs: &Mean) -> bool {
    let half = |mean: &Mean| mean.half_width.unwrap_or(0.0);
    let deviation = ours.value / theirs.value - 1.0;
    let within = half(ours).hypot(half(theirs));
    let ok = deviation.abs() <= TOLERANCE || (ours.value - theirs.value).abs() <= within;
    println!(
        "{start} | {:.3} ± {:.3} | {:.3} ± {:.3} | {:+.1} % | {} |",
        scale * ours.value,
        scale * half(ours),
        scale * theirs.value,
        scale * half(theirs),
        100.0 * deviation,
        if ok { "ok" } else { "not ok" },
    );
    ok
}

/// The number of packets that arrived in order, and the 95th percentile of the waits in seconds.
fn run(method: Management, flows: usize, seed: u64, seconds: u64) -> Result<(f64, f64), Error> {
    let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(seconds));
    let [source, sink] = ["source", "sink"].map(|name| scenario.add_node(name));
    let rate: BitRate = "10 Mbit/s".parse()?;
    let plain = Configuration {
        state: State {
            rate: Some(rate),
            delay: DELAY,
            ..State::default()
        },
        ..Configuration::default()
    };
    let managed = Configuration {
        queue_management: Some(QueueManagement::new(method)),
        ..plain.clone()
    };
    scenario.add_link("link", source, sink, &managed, &plain);
    let sender = SenderConfiguration {
        variant: Variant::Sack,
        segment_size: PACKET.1,
        initial_window: 2,
        window_limit: 1_000_000,
        grow_only_when_limited: false,
        limited_transmit: true,
        clock_granularity: TimeSpan::from_milliseconds(10),
        initial_timeout: TimeSpan::from_seconds(3),
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        acknowledge: AckRule::Every,
        segment_size: PACKET.1,
        ..ReceiverConfiguration::default()
    };
    let mut starts = stream(seed, "starts", Direction::Up);
    for number in 0..flows {
        let start = TimeSpan::from_nanoseconds(starts.next_u64() % 1_000_000_000);
        let mut flow = Flow::bulk(&format!("flow {number}"), source, sink)
            .with_sender(sender)
            .with_receiver(receiver);
        flow.start = start;
        scenario.add_flow(flow);
    }
    let waits = Waits {
        unavoidable: rate.transmission_time(PACKET.0.into()) + DELAY,
        ..Waits::default()
    };
    let mut simulation = Simulation::observed(&scenario, waits)?;
    let results = simulation.run();
    let acknowledged = |flow: &midspan_sim::FlowResults| flow.delivered / u64::from(PACKET.1);
    let packets: u64 = results.flows.iter().map(acknowledged).sum();
    let p95 = quantile(&simulation.observer().waits, 0.95).ok_or("no packet arrived")?;
    Ok((packets as f64, p95))
}

/// How long packets with data wait at the link.
#[derive(Debug, Default)]
struct Waits {
    /// Transmission and propagation.
    unavoidable: TimeSpan,
    /// When each segment was sent, once for each transmission, by connection and sequence number.
    sent: BTreeMap<(u32, u64), VecDeque<Time>>,
    /// In seconds.
    waits: Vec<f64>,
}

impl Waits {
    /// When a packet of the size that is measured was sent.
    fn leave(&mut self, packet: &Packet) -> Option<Time> {
        self.sent.get_mut(&key(packet)?)?.pop_front()
    }
}

/// What identifies the segment of a full packet.
fn key(packet: &Packet) -> Option<(u32, u64)> {
    match packet.segment {
        Segment::Data(Data { sequence, .. }) if packet.size == PACKET.0 => {
            Some((packet.connection, sequence))
        }
        _ => None,
    }
}

impl Observer for Waits {
    fn sent(&mut self, now: Time, packet: &Packet) {
        if let Some(key) = key(packet) {
            self.sent.entry(key).or_default().push_back(now);
        }
    }

    fn delivered(&mut self, now: Time, packet: &Packet) {
        if let Some(sent) = self.leave(packet) {
            self.waits
                .push((now.since(sent) - self.unavoidable).as_seconds());
        }
    }

    fn dropped(&mut self, _: Time, _: LinkId, _: bool, packet: &Packet, _: DropReason) {
        self.leave(packet);
    }
}

/// The same in ns-3.
fn run_ns3(
    compiled: &Compiled,
    method: Management,
    flows: usize,
    seed: u64,
    seconds: u64,
) -> Result<(f64, f64), Error> {
    let output = Command::new(&compiled.program)
        .arg(method.to_string())
        .args([flows.to_string(), seed.to_string(), seconds.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let values: Vec<f64> = text
        .split_whitespace()
        .filter_map(|value| value.parse().ok())
        .collect();
    let [packets, p95] = values[..] else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("ns-3 printed {text}{errors}").into());
    };
    Ok((packets, p95))
}
