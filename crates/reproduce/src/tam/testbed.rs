//! The testbed of §5: a server, three routers, terminals; 4 Mbit/s down, far less up, FIFOs of 20
//! packets.

use midspan_path::{NodeIndex, Path};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, LinkId, NodeId, Scenario, Simulation};
use midspan_units::TimeSpan;

use super::network;
use super::scheme::Scheme;
use crate::Error;
use crate::run::number;

/// Data of a packet of 1,500 bytes with timestamps, and its headers.
pub(super) const SEGMENT: u32 = 1448;
const HEADER: u32 = 52;
/// A full packet is 1,523 bytes on the wire, as printed.
const FRAMING: u32 = 23;
/// Rate downstream, bit/s.
const DOWN: u64 = 4_000_000;
/// What Linux 2.2 advertises at most, in segments, and what it starts with.
const WINDOW: u64 = 22;
const INITIAL_WINDOW: u32 = 2;
/// ATO: less than the sender's least time-out of 200 ms (Linux 2.2 adapts it to the packets' gaps).
const TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(100);
/// The option of timestamps, padded.
const TIMESTAMPS: u32 = 12;

/// Router 1 is here, router 2 beyond.
const ASYMMETRIC: LinkId = LinkId(0);

/// What one terminal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transfers {
    Down,
    DownAndUp,
}

/// A run of the testbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Testbed {
    pub(super) scheme: Scheme,
    /// Rate upstream, bit/s.
    pub(super) up: u64,
    /// Terminals that share it.
    pub(super) terminals: usize,
    pub(super) transfers: Transfers,
    /// ACKs go before data.
    pub(super) acks_first: bool,
    /// Headers are compressed upstream, and have no timestamps.
    pub(super) compression: bool,
    pub(super) duration: TimeSpan,
}

/// What came of it, in bit/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goodput {
    /// All terminals together.
    pub(super) down: f64,
    pub(super) up: f64,
    /// Mean size of what went upstream, bytes without framing.
    pub(super) packet_up: f64,
}

/// What a download gets that fills the link.
pub(super) fn full() -> f64 {
    number(DOWN) * f64::from(SEGMENT) / f64::from(SEGMENT + HEADER + FRAMING)
}

impl Testbed {
    pub(super) const fn new(scheme: Scheme, up: u64, duration: TimeSpan) -> Self {
        Self {
            scheme,
            up,
            terminals: 1,
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
            format!("link.asymmetric.up.ack_queue={acks}"),
            format!("link.asymmetric.up.header_compression={}", self.compression),
        ])?)
    }

    pub(super) fn run(&self) -> Result<Goodput, Error> {
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
            // Nobody presses a key at the very same time.
            let start = TimeSpan::from_milliseconds(137 * terminal as u64);
            flows.push(self.flow(&format!("download {terminal}"), server, host, start));
            if self.transfers == Transfers::DownAndUp {
                let mut upload = self.flow(&format!("upload {terminal}"), host, server, start);
                // The server is no one's to change.
                upload.receiver.acknowledge = Scheme::Reno.receiver(INITIAL_WINDOW, TIMEOUT);
                flows.push(upload);
            }
        }
        for flow in flows {
            scenario.add_flow(flow);
        }
        let results = Simulation::new(&scenario)?.run();
        let seconds = self.duration.as_seconds();
        let upstream = results.links[ASYMMETRIC.0].up.delivered;
        let mut goodput = Goodput {
            down: 0.0,
            up: 0.0,
            packet_up: number(upstream.bytes) / number(upstream.packets.max(1)),
        };
        for (flow, results) in scenario.flows().iter().zip(&results.flows) {
            let rate = number(results.delivered * 8) / seconds;
            if flow.from == server {
                goodput.down += rate;
            } else {
                goodput.up += rate;
            }
        }
        Ok(goodput)
    }

    fn flow(&self, name: &str, from: NodeId, to: NodeId, start: TimeSpan) -> Flow {
        let mut flow = Flow::bulk(name, from, to)
            .with_sender(self.sender())
            .with_receiver(self.receiver());
        flow.start = start;
        flow.regenerate_acks = self.scheme.regeneration();
        flow
    }

    /// Of a segment: its data, and its header.
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
