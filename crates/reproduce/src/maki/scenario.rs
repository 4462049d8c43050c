//! The scenarios of §III C and §IV: networks in a row, proxies between some of them.
//! `docs/papers/maki.md` says why these parameters.

use midspan_model::papers::maki_figures::Network;
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, LinkId, NodeId, Scenario, Simulation, StopReason};
use midspan_units::TimeSpan;

use super::networks;
use crate::Error;
use crate::run::number;

/// Bytes of data in a packet.
const PACKET: u32 = 1000;
/// No bound, in bytes.
pub(super) const UNBOUNDED: u64 = 1 << 40;

/// A bulk flow over some of the networks.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// Loss and delay one way of each.
    networks: Vec<Network>,
    /// The routers between which it flows; 0 stands before the first network.
    ends: [usize; 2],
    /// The routers with a proxy.
    proxies: Vec<usize>,
    /// Of all receivers, in bytes.
    receive_buffer: u64,
    /// Of the proxies, in bytes; also holds what is under way.
    send_buffer: u64,
    /// Of the first sender, in bytes.
    window_limit: u64,
}

impl Case {
    /// From end to end, without a proxy; buffers bound nothing.
    pub(super) fn new(networks: &[Network]) -> Self {
        Self {
            networks: networks.to_vec(),
            ends: [0, networks.len()],
            proxies: Vec::new(),
            receive_buffer: UNBOUNDED,
            send_buffer: UNBOUNDED,
            window_limit: u64::MAX,
        }
    }

    /// With proxies on these routers.
    pub(super) fn split_at(mut self, routers: &[usize]) -> Self {
        self.proxies = routers.to_vec();
        self
    }

    /// With buffers of so many bytes.
    pub(super) const fn with_buffers(mut self, receive: u64, send: u64) -> Self {
        self.receive_buffer = receive;
        self.send_buffer = send;
        self
    }

    /// Over one network alone, as a leg that never waits for another: where a proxy would send,
    /// with its send buffer.
    pub(super) fn alone(mut self, network: usize) -> Self {
        self.ends = [network, network + 1];
        self.proxies.clear();
        self.window_limit = if network > 0 {
            self.send_buffer
        } else {
            u64::MAX
        };
        self
    }

    /// Throughput in bit/s of user data between the times `warm_up` and `end`.
    pub(super) fn throughput(
        &self,
        seed: u64,
        warm_up: TimeSpan,
        end: TimeSpan,
    ) -> Result<f64, Error> {
        let mut simulation = Simulation::new(&self.scenario(seed, end)?)?;
        let before = simulation.run_until(warm_up);
        let results = simulation.run();
        if results.stop != StopReason::TimeIsUp {
            return Err(Error::Ended {
                until: results.until,
                reason: results.stop,
            });
        }
        let delivered = results.flows[0].delivered - before.flows[0].delivered;
        Ok(number(delivered) * 8.0 / (end - warm_up).as_seconds())
    }

    /// Packets delivered in each whole `window` between the times `warm_up` and `end`.
    pub(super) fn packets(
        &self,
        seed: u64,
        warm_up: TimeSpan,
        end: TimeSpan,
        window: TimeSpan,
    ) -> Result<Vec<f64>, Error> {
        let mut simulation = Simulation::new(&self.scenario(seed, end)?)?;
        let mut before = simulation.run_until(warm_up).flows[0].delivered;
        let mut counts = Vec::new();
        let mut until = warm_up + window;
        while until <= end {
            let delivered = simulation.run_until(until).flows[0].delivered;
            counts.push(number(delivered - before) / f64::from(PACKET));
            before = delivered;
            until = until + window;
        }
        Ok(counts)
    }

    /// A network's losses depend on the seed only, so that a flow with proxies, one without and
    /// one over a network alone meet the same draws.
    fn scenario(&self, seed: u64, duration: TimeSpan) -> Result<Scenario, Error> {
        let path = networks::path(&self.networks)?;
        let mut scenario = Scenario::network(&path, true);
        scenario.seed = seed;
        scenario.duration = duration;
        for number in 0..path.links.len() {
            // The name chooses the random numbers with which the documented results were made.
            scenario.rename_link(LinkId(number), &format!("network {}", number + 1));
        }
        let router = |number: usize| {
            let node = path.find_node(&format!("R{number}"));
            NodeId(node.map_or(0, |node| node.0))
        };
        let [from, to] = self.ends.map(router);
        let mut flow = Flow::bulk("file", from, to)
            .with_sender(sender())
            .with_receiver(receiver(self.receive_buffer));
        let relay = RelayConfiguration {
            buffers: Buffers::Separate {
                send: self.send_buffer,
            },
            ..RelayConfiguration::default()
        };
        for number in &self.proxies {
            flow = flow.split_at(router(*number), relay);
        }
        flow.sender.window_limit = self.window_limit;
        scenario.add_flow(flow);
        Ok(scenario)
    }
}

fn sender() -> SenderConfiguration {
    SenderConfiguration {
        variant: Variant::Reno,
        segment_size: PACKET,
        initial_window: 2,
        ..SenderConfiguration::default()
    }
}

fn receiver(buffer: u64) -> ReceiverConfiguration {
    ReceiverConfiguration {
        buffer,
        acknowledge: AckRule::Every,
        segment_size: PACKET,
        ..ReceiverConfiguration::default()
    }
}
