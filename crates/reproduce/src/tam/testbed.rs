//! The testbed of §5: a server, three routers and terminals; 4 Mbit/s downstream, a much slower
//! upstream, FIFOs of 20 packets.

use midspan_path::{NodeIndex, Path};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, LinkId, NodeId, Scenario, Simulation};
use midspan_sweep::in_parallel;
use midspan_units::TimeSpan;

use super::network;
use super::scheme::Scheme;
use crate::run::number;
use crate::{Effort, Error};

/// Data bytes of a packet of 1,500 bytes with timestamps, and bytes of its headers.
pub(super) const SEGMENT: u32 = 1448;
const HEADER: u32 = 52;
/// Bytes of framing: a full packet has 1,523 bytes on the link, as printed.
const FRAMING: u32 = 23;
/// Downstream rate in bit/s.
const DOWN: u64 = 4_000_000;
/// The largest window that Linux 2.2 advertises, and its initial window, in segments.
const WINDOW: u64 = 22;
const INITIAL_WINDOW: u32 = 2;
/// ATO: less than the sender's least time-out of 200 ms. Linux 2.2 adapts ATO to the packets' gaps.
const TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(100);
/// Bytes of the timestamps option, with its padding.
const TIMESTAMPS: u32 = 12;

/// The links between router 1 and router 2, and between router 2 and router 3.
const ASYMMETRIC: LinkId = LinkId(0);
const BACKBONE: LinkId = LinkId(1);
/// Packets that each queue holds, as printed.
pub(super) const QUEUE: u32 = 20;

/// The transfers of one terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfers {
    Down,
    DownAndUp,
}

/// A run of the testbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Testbed {
    pub(super) scheme: Scheme,
    /// Upstream rate in bit/s.
    pub(super) up: u64,
    /// The number of terminals that share the upstream.
    pub(super) terminals: usize,
    /// Packets that the queue in front of the upstream holds.
    pub(super) queue_up: u32,
    /// Packets that each of the two queues in front of 4 Mbit/s downstream holds.
    pub(super) queue_down: u32,
    pub(super) transfers: Transfers,
    /// Whether ACKs go before data.
    pub(super) acks_first: bool,
    /// Whether upstream headers are compressed, and have no timestamps.
    pub(super) compression: bool,
    pub(super) duration: TimeSpan,
}

/// The result of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// Goodput of the downloads in bit/s, the sum over all terminals.
    pub(super) down: f64,
    /// The same of the uploads.
    pub(super) up: f64,
    /// Mean size of upstream packets, in bytes without framing.
    pub(super) packet_up: f64,
    /// Downstream packets that found a queue full.
    pub(super) dropped_down: u64,
    /// Upstream packets that found the queue full.
    pub(super) dropped_up: u64,
    /// Retransmission time-outs of all senders.
    pub(super) timeouts: u64,
}

/// How long a run takes.
pub(super) const fn duration(effort: &Effort) -> TimeSpan {
    TimeSpan::from_seconds(if effort.quick { 100 } else { 1000 })
}

/// Runs all of these, in their order.
pub(super) fn run(testbeds: &[Testbed], effort: &Effort) -> Result<Vec<Outcome>, Error> {
    in_parallel(
        testbeds.len(),
        effort.threads,
        |index| testbeds[index].run(),
        |_| (),
    )
}

/// The goodput of a download that fills the link.
pub(super) fn full() -> f64 {
    number(DOWN) * f64::from(SEGMENT) / f64::from(SEGMENT + HEADER + FRAMING)
}

impl Testbed {
    pub(super) const fn new(scheme: Scheme, up: u64, duration: TimeSpan) -> Self {
        Self {
            scheme,
            up,
            terminals: 1,
            queue_up: QUEUE,
            queue_down: QUEUE,
            transfers: Transfers::Down,
            acks_first: false,
            compression: false,
            duration,
        }
    }

    /// The testbed with this upstream.
    fn path(&self) -> Result<Path, Error> {
        let (network, _) = network::testbed(self.terminals);
        let acks = if self.acks_first {
            "first"
        } else {
            self.scheme.ack_queue()
        };
        Ok(network.path(&[
            format!("link.asymmetric.up.rate={} bit/s", self.up),
            format!("link.asymmetric.up.queue={} packets", self.queue_up),
            format!("link.asymmetric.down.queue={} packets", self.queue_down),
            format!("link.backbone.down.queue={} packets", self.queue_down),
            format!("link.asymmetric.up.ack_queue={acks}"),
            format!("link.asymmetric.up.header_compression={}", self.compression),
        ])?)
    }

    pub(super) fn run(&self) -> Result<Outcome, Error> {
        let path = self.path()?;
        let mut scenario = Scenario::network(&path, false);
        scenario.seed = 1;
        scenario.duration = self.duration;
        let node = |name: &str| NodeId(path.find_node(name).unwrap_or(NodeIndex(0)).0);
        let server = node("server");
        let (_, terminals) = network::testbed(self.terminals);
        let mut flows = Vec::new();
        for (terminal, name) in terminals.iter().enumerate() {
            let host = node(name);
            // The transfers do not start at the same instant.
            let start = TimeSpan::from_milliseconds(137 * terminal as u64);
            flows.push(self.flow(&format!("download {terminal}"), server, host, start));
            if self.transfers == Transfers::DownAndUp {
                let mut upload = self.flow(&format!("upload {terminal}"), host, server, start);
                // The paper does not change the server; therefore it acknowledges like Reno.
                upload.receiver.acknowledge = Scheme::Reno.receiver(INITIAL_WINDOW, TIMEOUT);
                flows.push(upload);
            }
        }
        for flow in flows {
            scenario.add_flow(flow);
        }
        let results = Simulation::new(&scenario)?.run();
        let seconds = self.duration.as_seconds();
        let [asymmetric, backbone] = [ASYMMETRIC, BACKBONE].map(|link| results.links[link.0]);
        let upstream = asymmetric.up.delivered;
        let legs = results.flows.iter().flat_map(|flow| &flow.legs);
        let mut outcome = Outcome {
            down: 0.0,
            up: 0.0,
            packet_up: number(upstream.bytes) / number(upstream.packets.max(1)),
            dropped_down: asymmetric.down.queue_full.packets + backbone.down.queue_full.packets,
            dropped_up: asymmetric.up.queue_full.packets,
            timeouts: legs.map(|leg| leg.sender.timeouts).sum(),
        };
        for (flow, results) in scenario.flows().iter().zip(&results.flows) {
            let rate = number(results.delivered * 8) / seconds;
            if flow.from == server {
                outcome.down += rate;
            } else {
                outcome.up += rate;
            }
        }
        Ok(outcome)
    }

    fn flow(&self, name: &str, from: NodeId, to: NodeId, start: TimeSpan) -> Flow {
        let mut flow = Flow::bulk(name, from, to)
            .with_sender(self.sender())
            .with_receiver(self.receiver());
        flow.start = start;
        flow.regenerate_acks = self.scheme.regeneration();
        flow
    }

    /// Bytes of data and of headers of a segment.
    const fn sizes(&self) -> (u32, u32) {
        if self.compression {
            (SEGMENT + TIMESTAMPS, HEADER - TIMESTAMPS)
        } else {
            (SEGMENT, HEADER)
        }
    }

    fn sender(&self) -> SenderConfiguration {
        let (segment_size, header_size) = self.sizes();
        SenderConfiguration {
            variant: Variant::Reno,
            segment_size,
            header_size,
            initial_window: INITIAL_WINDOW,
            minimum_timeout: TimeSpan::from_milliseconds(200),
            ..SenderConfiguration::default()
        }
    }

    fn receiver(&self) -> ReceiverConfiguration {
        let (segment_size, header_size) = self.sizes();
        ReceiverConfiguration {
            buffer: WINDOW * u64::from(segment_size),
            acknowledge: self.scheme.receiver(INITIAL_WINDOW, TIMEOUT),
            header_size,
            segment_size,
            ..ReceiverConfiguration::default()
        }
    }
}
