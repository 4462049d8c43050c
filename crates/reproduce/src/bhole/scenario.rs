//! The scenario of all tables: one FTP over a row of equal links with PTS nodes between them, and
//! TCP as in ns-2. `docs/papers/bhole.md` gives the reasons for these parameters.

use midspan_path::{Path, Traffic};
use midspan_sim::proxy::{Buffers, LocalAck, RelayConfiguration, Service, ServiceTime};
use midspan_sim::tcp::{AckRule, ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Flow, NoObserver, Results, Scenario};
use midspan_units::{ByteSize, Time, TimeSpan};

use super::conditions::Row;
use crate::Error;
use crate::run::{CwndWatch, Points, number, run};

const PACKET: u64 = 1000;

/// The values that a table varies.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) row: Row,
    /// Links between the source and each PTS node.
    pub(super) nodes: Vec<u32>,
    /// `T_s`, the mean service time.
    pub(super) service: TimeSpan,
    pub(super) local_ack: LocalAck,
    /// `C_max`, in packets.
    pub(super) buffer: u64,
    pub(super) duration: TimeSpan,
    pub(super) seed: u64,
    /// Cross traffic that fills a link for a time.
    pub(super) congestion: Option<Congestion>,
}

/// Momentary congestion: cross traffic at the link's rate, for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Congestion {
    /// Links between the source and the congested link.
    pub(super) hop: usize,
    pub(super) start: TimeSpan,
    pub(super) duration: TimeSpan,
}

/// The result of a case. The SYN counts as the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Packets that the source had sent.
    pub(super) sent: u64,
    /// Packets that the receiver had received.
    pub(super) got: u64,
    /// Retransmissions of all legs.
    pub(super) retransmissions: u64,
    /// Bytes that arrived at any receiver beyond its window, and were dropped.
    pub(super) bytes_beyond_window: u64,
}

impl Case {
    /// A row for `duration`, with PTS nodes after these numbers of links.
    pub(super) fn new(row: Row, duration: TimeSpan, nodes: &[u32]) -> Self {
        Self {
            row,
            nodes: nodes.to_vec(),
            service: TimeSpan::from_nanoseconds(100_000),
            local_ack: LocalAck::BeforeService,
            buffer: 1024,
            duration,
            seed: 1,
            congestion: None,
        }
    }

    fn scenario(&self) -> Result<Scenario, Error> {
        let mut path = self.row.path(&self.nodes, &[])?;
        if let Some(congestion) = self.congestion {
            congestion.add(&mut path);
        }
        let mut scenario = Scenario::network(&path, true);
        scenario.seed = self.seed;
        scenario.duration = self.duration;
        for flow in &path.flows {
            let mut flow = Flow::of_path(&path, flow, true)?
                .with_sender(sender())
                .with_receiver(receiver());
            flow.start = TimeSpan::from_milliseconds(100);
            for split in &mut flow.splits {
                split.relay = self.relay();
            }
            scenario.add_flow(flow);
        }
        Ok(scenario)
    }

    fn relay(&self) -> RelayConfiguration {
        RelayConfiguration {
            buffers: Buffers::Granted {
                size: self.buffer * PACKET,
            },
            service: Some(Service {
                time: ServiceTime::Exponential(self.service),
                local_ack: self.local_ack,
            }),
            pacing: None,
            ..RelayConfiguration::default()
        }
    }

    pub(super) fn run(&self) -> Result<Outcome, Error> {
        let (results, NoObserver) = run(&self.scenario()?, NoObserver)?;
        Ok(Outcome::of(&results))
    }

    /// Like [`run`](Self::run), and also returns cwnd in packets against time for each connection.
    pub(super) fn watch(&self) -> Result<(Outcome, Vec<Points>), Error> {
        let watch = CwndWatch::new(self.nodes.len() + 1, number(PACKET), Time::ZERO);
        let (results, watch) = run(&self.scenario()?, watch)?;
        Ok((Outcome::of(&results), watch.into_points()))
    }
}

impl Congestion {
    fn add(self, path: &mut Path) {
        let Some(link) = path.links.get(self.hop) else {
            return;
        };
        let ([from, to], Some(rate)) = (link.between, link.up.state.rate) else {
            return;
        };
        path.traffic.push(Traffic {
            name: "congestion".to_owned(),
            from,
            to,
            rate,
            packet_size: ByteSize::from_bytes(1040),
            sources: 1,
            on_off: None,
            start: self.start,
            duration: Some(self.duration),
        });
    }
}

impl Outcome {
    fn of(results: &Results) -> Self {
        let flow = &results.flows[0];
        Self {
            sent: flow.legs[0].sent / PACKET + 1,
            got: flow.delivered / PACKET + 1,
            retransmissions: flow.legs.iter().map(|leg| leg.sender.retransmissions).sum(),
            bytes_beyond_window: flow
                .legs
                .iter()
                .map(|leg| leg.receiver.bytes_beyond_window)
                .sum(),
        }
    }
}

fn sender() -> SenderConfiguration {
    SenderConfiguration {
        variant: Variant::Tahoe,
        segment_size: 1000,
        header_size: 40,
        initial_window: 2,
        window_limit: 20 * PACKET,
        grow_only_when_limited: false,
        ..SenderConfiguration::default()
    }
}

fn receiver() -> ReceiverConfiguration {
    ReceiverConfiguration {
        acknowledge: AckRule::Every,
        segment_size: 1000,
        header_size: 40,
        ..ReceiverConfiguration::default()
    }
}
