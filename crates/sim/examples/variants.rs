//! What each TCP variant carries over a lossy path: to be laid beside ns-2.
//!
//! `cargo run --release -p midspan-sim --example variants`, and `crates/sim/cross-check/ns2.sh`.
//!
//! Three hops in a row: 10 Mbit/s each, 5, 30 and 5 ms, queues of 100 packets; the middle one
//! loses data packets. 1,000 bytes of data in each packet, an ACK for every packet, windows up to
//! 100 packets, TCP's other settings as ns-2 has them. 200 s, 20 seeds.

use midspan_link::{Configuration, QueueLimit, State};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, Scenario, Simulation};
use midspan_units::TimeSpan;

const SEEDS: u64 = 20;
/// Student's t for 19 degrees of freedom, 95 %.
const STUDENT: f64 = 2.093;

fn hop(milliseconds: u64, loss: &str) -> Result<Configuration, Box<dyn std::error::Error>> {
    Ok(Configuration {
        state: State {
            rate: Some("10 Mbit/s".parse()?),
            delay: TimeSpan::from_milliseconds(milliseconds),
            loss: loss.parse()?,
        },
        queue: QueueLimit::Packets(100),
        ..Configuration::default()
    })
}

/// Packets acknowledged in 200 s.
fn packets(variant: Variant, loss: &str, seed: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(200));
    let nodes = ["server", "first", "second", "client"].map(|name| scenario.add_node(name));
    let (near, lossy, clean) = (hop(5, "0 %")?, hop(30, loss)?, hop(30, "0 %")?);
    scenario.add_link("first", nodes[0], nodes[1], &near, &near);
    scenario.add_link("middle", nodes[1], nodes[2], &lossy, &clean);
    scenario.add_link("last", nodes[2], nodes[3], &near, &near);
    let sender = SenderConfiguration {
        variant,
        segment_size: 1000,
        initial_window: 2,
        window_limit: 100_000,
        grow_only_when_limited: false,
        clock_granularity: TimeSpan::from_milliseconds(10),
        initial_timeout: TimeSpan::from_seconds(3),
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        acknowledge: AckRule::Every,
        segment_size: 1000,
        ..ReceiverConfiguration::default()
    };
    let flow = Flow::bulk("ftp", nodes[0], nodes[3]);
    scenario.add_flow(flow.with_sender(sender).with_receiver(receiver));
    let results = Simulation::new(&scenario)?.run();
    Ok(results.flows[0].legs[0].acknowledged / 1000)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for variant in [
        Variant::Tahoe,
        Variant::Reno,
        Variant::NewReno,
        Variant::Sack,
        Variant::Cubic,
    ] {
        for loss in [
            "0", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05",
        ] {
            let runs: Vec<f64> = (1..=SEEDS)
                .map(|seed| packets(variant, loss, seed).map(|packets| packets as f64))
                .collect::<Result<_, _>>()?;
            let count = runs.len() as f64;
            let mean = runs.iter().sum::<f64>() / count;
            let squares: f64 = runs.iter().map(|run| (run - mean).powi(2)).sum();
            let half = STUDENT * (squares / (count - 1.0) / count).sqrt();
            let name = format!("{variant:?}");
            println!("{name:<8} {loss:<7} {mean:>9.0} packets ± {half:.0}");
        }
    }
    Ok(())
}
