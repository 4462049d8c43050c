//! The scenario: three links in a row, 10 Mbit/s each, 5, 30 and 5 ms, queues of 100 packets; the
//! middle one loses 0.1 % of the data packets. NewReno, 1,000 bytes of data in each packet, an ACK
//! for every packet, windows up to 100 packets. The simulator has no observer.

use std::hint::black_box;

use midspan_link::{Configuration, QueueLimit, State};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, Results, Scenario, Simulation};
use midspan_units::{BitRate, Probability, TimeSpan};
use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Run};

fn hop(milliseconds: u64, loss: &str) -> Result<Configuration, Error> {
    Ok(Configuration {
        state: State {
            rate: BitRate::from_bits_per_second(10_000_000),
            delay: TimeSpan::from_milliseconds(milliseconds),
            loss: loss.parse::<Probability>()?,
        },
        queue: QueueLimit::Packets(100),
        ..Configuration::default()
    })
}

fn scenario(flows: u64, seconds: u64) -> Result<Scenario, Error> {
    let mut scenario = Scenario::new(1, TimeSpan::from_seconds(seconds));
    let nodes = ["server", "first", "second", "client"].map(|name| scenario.add_node(name));
    let (near, lossy, clean) = (hop(5, "0 %")?, hop(30, "0.1 %")?, hop(30, "0 %")?);
    scenario.add_link("first", nodes[0], nodes[1], &near, &near);
    scenario.add_link("middle", nodes[1], nodes[2], &lossy, &clean);
    scenario.add_link("last", nodes[2], nodes[3], &near, &near);
    let sender = SenderConfiguration {
        variant: Variant::NewReno,
        segment_size: 1000,
        window_limit: 100_000,
        minimum_timeout: TimeSpan::from_milliseconds(200),
        ..SenderConfiguration::default()
    };
    let receiver = ReceiverConfiguration {
        acknowledge: AckRule::Every,
        segment_size: 1000,
        ..ReceiverConfiguration::default()
    };
    for index in 0..flows {
        let flow = Flow::bulk(&format!("flow {index}"), nodes[0], nodes[3]);
        scenario.add_flow(Flow {
            start: TimeSpan::from_milliseconds(index),
            ..flow.with_sender(sender).with_receiver(receiver)
        });
    }
    Ok(scenario)
}

/// Makes one run; the time to set it up is not counted.
pub fn run(flows: u64, seconds: u64) -> Result<Run, Error> {
    let mut simulation = Simulation::new(&scenario(flows, seconds)?)?;
    let start = cpu_seconds();
    let results = black_box(simulation.run());
    let cpu = cpu_seconds() - start;
    Ok(Run {
        packets: data_packets(&results),
        cpu,
    })
}

/// The number of data packets of one run. Reads no clock, because some profilers do not support
/// that.
pub fn run_untimed(flows: u64, seconds: u64) -> Result<u64, Error> {
    let mut simulation = Simulation::new(&scenario(flows, seconds)?)?;
    Ok(data_packets(&simulation.run()))
}

fn data_packets(results: &Results) -> u64 {
    let legs = results.flows.iter().flat_map(|flow| &flow.legs);
    legs.map(|leg| leg.sender.segments).sum()
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
