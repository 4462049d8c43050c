//! The scenarios, as Midspan runs them. `flow.tcl` contains the same scenarios for ns-2, and `flow.cc`
//! the scenario `single` for ns-3.
//!
//! Links in a row: 10 Mbit/s each, together 40 ms one way, queues of 100 packets. Each packet has 1,000
//! bytes of data and 40 bytes of headers. There is an ACK for every packet, windows have up to 100
//! packets, and TCP's other settings are those of ns-2.
//!
//! - `single`: links of 5, 30 and 5 ms; the middle one loses data packets.
//! - `split`: links of 5, 15, 15 and 5 ms with a proxy in the middle that buffers without limit;
//!   the two links at the proxy lose data packets.

use midspan_link::{Configuration, QueueLimit, State};
use midspan_sim::proxy::RelayConfiguration;
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, Scenario, Simulation};
use midspan_units::TimeSpan;

use crate::Error;

/// The shape of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Single,
    Split,
}

impl Shape {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Split => "split",
        }
    }

    /// For each link its milliseconds, and whether it loses packets.
    const fn links(self) -> &'static [(u64, bool)] {
        match self {
            Self::Single => &[(5, false), (30, true), (5, false)],
            Self::Split => &[(5, false), (15, true), (15, true), (5, false)],
        }
    }
}

fn link(milliseconds: u64, loss: &str) -> Result<Configuration, Error> {
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

/// Number of packets that the last receiver has acknowledged after `seconds`, counted at their
/// sender.
pub fn packets(
    shape: Shape,
    variant: Variant,
    limited_transmit: bool,
    loss: &str,
    seed: u64,
    seconds: u64,
) -> Result<f64, Error> {
    let mut scenario = Scenario::new(seed, TimeSpan::from_seconds(seconds));
    let mut nodes = vec![scenario.add_node("node 0")];
    for (index, (milliseconds, lossy)) in shape.links().iter().enumerate() {
        let loss = if *lossy { loss } else { "0" };
        let node = scenario.add_node(&format!("node {}", index + 1));
        let (up, down) = (link(*milliseconds, loss)?, link(*milliseconds, "0")?);
        scenario.add_link(&format!("link {index}"), nodes[index], node, &up, &down);
        nodes.push(node);
    }
    let sender = SenderConfiguration {
        variant,
        segment_size: 1000,
        initial_window: 2,
        window_limit: 100_000,
        grow_only_when_limited: false,
        limited_transmit,
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
    let mut flow = Flow::bulk("ftp", nodes[0], nodes[nodes.len() - 1])
        .with_sender(sender)
        .with_receiver(receiver);
    if shape == Shape::Split {
        flow = flow.split_at(nodes[2], RelayConfiguration::default());
    }
    scenario.add_flow(flow);
    let results = Simulation::new(&scenario)?.run();
    let legs = &results.flows[0].legs;
    Ok((legs[legs.len() - 1].acknowledged / 1000) as f64)
}
