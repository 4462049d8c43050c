//! The scenarios of §III C and §IV: networks in a row, with proxies between some of them.
//! `docs/papers/maki.md` gives the reasons for these parameters.

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
/// A number of bytes that does not limit.
pub(super) const UNBOUNDED: u64 = 1 << 40;

/// A bulk flow over some of the networks.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// Loss and one-way delay of each network.
    networks: Vec<Network>,
    /// The routers between which data flows; router 0 is before the first network.
    ends: [usize; 2],
    /// The routers with a proxy.
    proxies: Vec<usize>,
    /// The receive buffer of all receivers, in bytes.
    receive_buffer: u64,
    /// The send buffer of the proxies, in bytes; it also holds the data in flight.
    send_buffer: u64,
    /// The window limit of the first sender, in bytes.
    window_limit: u64,
}

impl Case {
    /// A flow from end to end, without a proxy; buffers do not limit.
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

    /// The case with proxies on these routers.
    pub(super) fn split_at(mut self, routers: &[usize]) -> Self {
        self.proxies = routers.to_vec();
        self
    }

    /// The case with buffers of these sizes in bytes.
    pub(super) const fn with_buffers(mut self, receive: u64, send: u64) -> Self {
        self.receive_buffer = receive;
        self.send_buffer = send;
        self
    }

    /// The flow over one network alone, as a leg that never waits for another. If a proxy is the
    /// sender in the path, the flow has the proxy's send buffer.
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

    /// A network's losses depend on the seed only. Therefore a flow with proxies, a flow without
    /// proxies and a flow over one network alone have the same losses.
    fn scenario(&self, seed: u64, duration: TimeSpan) -> Result<Scenario, Error> {
        let path = networks::path(&self.networks)?;
        let mut scenario = Scenario::network(&path, true);
        scenario.seed = seed;
        scenario.duration = duration;
        for number in 0..path.links.len() {
            // The link's name determines its random numbers; the documented results were made with
            // this name.
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
