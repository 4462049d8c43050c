//! The testbed of §5.1: a web server, the gateway, and one of three clients with 8 Mbit/s
//! downstream and 128, 64 or 32 kbit/s upstream.

use midspan_path::{Path, Workload};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::sending_ahead::PAPER_WINDOW;
use midspan_sim::proxy::{Buffers, RelayConfiguration};
use midspan_sim::tcp::{
    AckRule, ReceiverConfiguration, SenderConfiguration, Variant, WindowGrowth,
};
use midspan_sim::{Flow, LinkId, Observer, Results, Scenario, Simulation};
use midspan_units::{ByteSize, Probability, Time, TimeSpan};

use super::network;
use crate::Error;
use crate::run::number;

/// The MTU of all links.
const MTU: u32 = 1500;
/// The link between the gateway and the client's premises.
const ACCESS: LinkId = LinkId(0);
/// The key with the gateway's description of the client's access.
const PROFILE: &str = "proxy.gateway.access";
/// The leg from the gateway to the client.
pub(super) const CLIENT_LEG: u32 = 1;
/// A download that takes longer counts as broken.
const LONGEST: TimeSpan = TimeSpan::from_seconds(3600);

/// The clients of §5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// FreeBSD 4.5: timestamps; it sends a window update at once when reading opens the window by
    /// two segments.
    One,
    /// Linux 2.4: timestamps, a window that grows (Fig. 12).
    Two,
    /// Windows 2000: no timestamps, and a window that does not grow.
    Three,
}

impl Client {
    pub(super) const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::One => "client 1",
            Self::Two => "client 2",
            Self::Three => "client 3",
        }
    }

    /// Bytes of the IP and TCP header.
    const fn header(self) -> u32 {
        match self {
            Self::One | Self::Two => 52,
            Self::Three => 40,
        }
    }

    /// Data bytes of a segment that fills this number of fragments of 1,500 bytes.
    pub(super) const fn segment(self, fragments: u32) -> u32 {
        (MTU - 20) * fragments + 20 - self.header()
    }

    /// The window in Table 2.
    const fn window(self, windows: Windows) -> u64 {
        match (windows, self) {
            (Windows::Wso, Self::One | Self::Three) => 524_140,
            (Windows::Wso, Self::Two) => 520_144,
            (_, Self::One) => 66_608,
            (_, Self::Two) => 63_712,
            (_, Self::Three) => 17_520,
        }
    }

    const fn acknowledge(self) -> AckRule {
        match self {
            Self::One => AckRule::Bsd {
                timeout: TimeSpan::from_milliseconds(100),
            },
            Self::Two => AckRule::Delayed {
                segments: 2,
                timeout: TimeSpan::from_milliseconds(40),
            },
            Self::Three => AckRule::Delayed {
                segments: 2,
                timeout: TimeSpan::from_milliseconds(200),
            },
        }
    }
}

/// Windows and buffers of Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    Default,
    Wso,
    Tgw,
}

impl Windows {
    const fn send_buffer(self) -> u64 {
        match self {
            Self::Default => 65_535,
            Self::Wso | Self::Tgw => 700_000,
        }
    }
}

/// A download over the testbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Testbed {
    pub(super) client: Client,
    /// Upstream rate in bit/s.
    pub(super) up: u64,
    /// Propagation delay of the round trip.
    pub(super) round_trip: TimeSpan,
    pub(super) windows: Windows,
    /// How oversized segments of 3 fragments begin; `None` for normal segments.
    pub(super) way: Option<OversizedStart>,
    pub(super) size: u64,
    /// Loss of each packet and each fragment downstream.
    pub(super) loss: Probability,
    /// Whether fragments are dropped before the client's premises.
    pub(super) drops_fragments: bool,
    pub(super) seed: u64,
}

/// The result of a download.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    /// From the SYN to the last byte, in seconds; `None` if the last byte did not arrive.
    pub(super) time: Option<f64>,
    /// The number of the client's ACKs.
    pub(super) acks: u64,
    /// The bytes of the client's ACKs, IP headers included.
    pub(super) ack_bytes: u64,
    /// Data bytes that were sent more than once.
    pub(super) again: u64,
}

impl Measured {
    /// Throughput in bit/s; zero for a download that did not end.
    pub(super) fn throughput(&self, size: u64) -> f64 {
        self.time.map_or(0.0, |time| number(8 * size) / time)
    }
}

impl Testbed {
    /// A download of 10 MB with normal segments and without loss.
    pub(super) const fn new(client: Client, up: u64, windows: Windows) -> Self {
        Self {
            client,
            up,
            round_trip: match windows {
                Windows::Default => TimeSpan::ZERO,
                Windows::Wso | Windows::Tgw => TimeSpan::from_milliseconds(500),
            },
            windows,
            way: None,
            size: 10_000_000,
            loss: Probability::ZERO,
            drops_fragments: false,
            seed: 1,
        }
    }

    /// With oversized segments that begin in this way.
    pub(super) const fn oversized(mut self, way: OversizedStart) -> Self {
        self.way = Some(way);
        self
    }

    pub(super) fn run(&self) -> Result<Measured, Error> {
        Ok(self.watched(midspan_sim::NoObserver)?.0)
    }

    pub(super) fn watched<O: Observer>(&self, observer: O) -> Result<(Measured, O), Error> {
        let mut simulation = Simulation::observed(&self.scenario()?, observer)?;
        let results = simulation.run();
        Ok((measured(&results), simulation.into_observer()))
    }

    /// The network of this case.
    fn path(&self) -> Result<Path, Error> {
        let mut changes = vec![
            format!("link.access.up.rate={} bit/s", self.up),
            format!("link.access.delay={} ns", self.round_trip.nanoseconds() / 2),
            format!("link.access.down.loss={}", self.loss),
            // The device that drops fragments is where the network of the premises begins.
            format!("link.premises.drop_fragments={}", self.drops_fragments),
            format!("{PROFILE}.upstream={} bit/s", self.up),
        ];
        if self.way.is_some() {
            let size = self.client.segment(3);
            changes.push(format!("{PROFILE}.oversized_segments={size} B"));
        }
        let mut path = network::TESTBED.path(&changes)?;
        for flow in &mut path.flows {
            flow.workload = Workload::Download {
                size: ByteSize::from_bytes(self.size),
            };
        }
        Ok(path)
    }

    fn scenario(&self) -> Result<Scenario, Error> {
        let path = self.path()?;
        let mut scenario = Scenario::network(&path, true);
        scenario.seed = self.seed;
        scenario.duration = LONGEST;
        for flow in &path.flows {
            let flow = scenario.add_flow(self.flow(&path, flow)?);
            // The policy crate decides about oversized segments, as in the real proxy.
            for (_, proxy) in path.proxies() {
                if let (Some(access), Some(way)) = (proxy.access, self.way) {
                    scenario.set_access(flow, 0, access, way);
                }
            }
        }
        Ok(scenario)
    }

    fn flow(&self, path: &Path, flow: &midspan_path::Flow) -> Result<Flow, Error> {
        let mut flow = Flow::of_path(path, flow, true)?.with_sender(self.sender());
        flow.receiver = self.receiver();
        for split in &mut flow.splits {
            // The inbound leg, over the switch, never limits.
            split.inbound = ReceiverConfiguration {
                buffer: 1 << 20,
                ..ReceiverConfiguration::default()
            };
            split.relay = RelayConfiguration {
                buffers: Buffers::Separate {
                    send: self.windows.send_buffer(),
                },
                ..RelayConfiguration::default()
            };
            if self.windows == Windows::Tgw {
                split.outbound.assumed_window = Some(PAPER_WINDOW.bytes());
            }
        }
        Ok(flow)
    }

    /// Linux 2.4, whose initial window is 3 segments of up to 1,460 bytes, or 2 larger ones.
    fn sender(&self) -> SenderConfiguration {
        let at_once = self.way.is_some_and(|way| way != OversizedStart::Probe);
        SenderConfiguration {
            variant: Variant::Sack,
            segment_size: self.client.segment(1),
            header_size: self.client.header(),
            initial_window: if at_once { 2 } else { 3 },
            threshold_from_cwnd: true,
            minimum_timeout: TimeSpan::from_milliseconds(200),
            give_up_after: 15,
            ..SenderConfiguration::default()
        }
    }

    fn receiver(&self) -> ReceiverConfiguration {
        ReceiverConfiguration {
            buffer: self.client.window(self.windows),
            window_growth: match self.client {
                Client::Two => WindowGrowth::Linux24,
                Client::One | Client::Three => WindowGrowth::Fixed,
            },
            acknowledge: self.client.acknowledge(),
            header_size: self.client.header(),
            segment_size: match self.client {
                // A BSD counts windows in segments, without the options.
                Client::One => self.client.segment(1),
                Client::Two | Client::Three => MTU - 40,
            },
            // Fig. 12: the first two flights are acknowledged segment by segment.
            quick_acks: match self.client {
                Client::Two => 6,
                Client::One | Client::Three => 0,
            },
            selective: true,
        }
    }
}

fn measured(results: &Results) -> Measured {
    let flow = &results.flows[0];
    let leg = &flow.legs[CLIENT_LEG as usize];
    Measured {
        time: flow.finished.map(|at| at.since(Time::ZERO).as_seconds()),
        acks: leg.receiver.acknowledgements,
        ack_bytes: results.links[ACCESS.0].up.delivered.bytes,
        again: leg.sender.bytes_retransmitted,
    }
}
