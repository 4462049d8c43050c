//! The simulation of a drawn path.

use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration};
use midspan_sim::{Flow, Scenario, Simulation, Split};
use midspan_units::TimeSpan;

use super::draw::{Draw, DrawnLeg};
use crate::Error;
use crate::run::number;

/// The approximate number of packets of a simulation.
const PACKETS: f64 = 4e6;
/// Shortest and longest measured time, in seconds.
const SHORTEST: f64 = 100.0;
const LONGEST: f64 = 40_000.0;

impl Draw {
    /// End-to-end throughput in bit/s of user data, in the long run: a bulk flow of default TCP
    /// (RFC 5681, 6298, 6928; delayed ACKs), without its beginning.
    ///
    /// # Errors
    /// None for a drawn path.
    pub fn simulate(&self) -> Result<f64, Error> {
        let span = self.duration();
        let start = span / 4 + TimeSpan::from_seconds(5);
        let scenario = self.scenario(start + span);
        let mut simulation = Simulation::new(&scenario)?;
        let delivered =
            |results: &midspan_sim::Results| results.flows.first().map_or(0, |flow| flow.delivered);
        let before = delivered(&simulation.run_until(start));
        let after = delivered(&simulation.run());
        Ok(number(after - before) * 8.0 / span.as_seconds())
    }

    /// The measured time. It depends only on the path, so stored simulations remain usable when the
    /// analysis changes.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Bounded.
    fn duration(&self) -> TimeSpan {
        let slowest = self.legs.iter().map(crude_rate).fold(f64::MAX, f64::min);
        let seconds = (PACKETS / slowest).clamp(SHORTEST, LONGEST);
        TimeSpan::from_seconds(seconds as u64)
    }

    fn scenario(&self, duration: TimeSpan) -> Scenario {
        let mut scenario = Scenario::new(self.seed, duration);
        let first = scenario.add_node("sender");
        let mut nodes = vec![first];
        for (index, leg) in self.legs.iter().enumerate() {
            let node = scenario.add_node(&format!("node {}", index + 1));
            let [forward, back] = leg.link();
            let name = format!("leg {}", index + 1);
            scenario.add_link(&name, nodes[index], node, &forward, &back);
            nodes.push(node);
        }
        let mut flow = Flow::bulk("bulk", first, nodes[self.legs.len()]);
        let receiver = |leg: &DrawnLeg| ReceiverConfiguration {
            buffer: leg.receive_buffer.bytes(),
            ..ReceiverConfiguration::default()
        };
        let sender = |window_limit| SenderConfiguration {
            variant: self.variant,
            window_limit,
            ..SenderConfiguration::default()
        };
        flow.sender = sender(self.legs[0].send_buffer.bytes());
        for (index, pair) in self.legs.windows(2).enumerate() {
            flow.splits.push(Split {
                node: nodes[index + 1],
                inbound: receiver(&pair[0]),
                outbound: sender(u64::MAX),
                relay: RelayConfiguration {
                    buffers: Buffers::Separate {
                        send: pair[1].send_buffer.bytes(),
                    },
                    ..RelayConfiguration::default()
                },
            });
        }
        if let Some(last) = self.legs.last() {
            flow.receiver = receiver(last);
        }
        scenario.add_flow(flow);
        scenario
    }
}

/// A rough upper bound of the packets per second on a leg.
fn crude_rate(leg: &DrawnLeg) -> f64 {
    let round_trip = leg.round_trip.as_seconds();
    let link = number(leg.rate.bits_per_second()) / 12_000.0;
    let window = number(leg.send_buffer.bytes().min(leg.receive_buffer.bytes())) / 1460.0;
    let congestion = (0.75 / leg.loss.as_f64()).sqrt();
    link.min(window.min(congestion) / round_trip)
}
