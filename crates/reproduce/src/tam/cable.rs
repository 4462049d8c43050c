//! The cable network of §4: modems with 768 kbit/s upstream, by polls or by contention; 27 Mbit/s
//! downstream, shared by all; and the Internet beyond the cable router. It is the built-in path
//! `tam-cable`.

use midspan_path::{NodeIndex, Path};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Distribution, Flow, LinkId, NodeId, Pattern, Scenario, Source, Traffic};
use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::scheme::Scheme;
use crate::Error;
use crate::network::Network;

const NETWORK: Network = Network::new(
    "tam-cable",
    include_str!("../../../../paths/tam-cable.toml"),
);

/// Data bytes of a segment, and bytes of its headers.
pub(super) const SEGMENT: u32 = 1460;
const HEADER: u32 = 40;
/// The receive buffer: 20 packets.
pub(super) const WINDOW: u64 = 20 * SEGMENT as u64;
/// Users that send upstream, or download in Fig. 7.
pub(super) const USERS: usize = 19;
/// The time for which cross traffic runs before the download, so that the queues are in a steady
/// state.
pub(super) const WARM_UP: TimeSpan = TimeSpan::from_seconds(60);
/// The time limit of a download.
const LONGEST: TimeSpan = TimeSpan::from_seconds(1_800);
/// ATO. The paper prints none; this is BSD's.
const TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(200);
/// The queue of the downstream channel (enough for the windows of all users), and the queue of the
/// Internet's routers, in packets. The paper does not print them.
const CHANNEL: u32 = 500;
const ROUTER: u32 = 50;

/// The traffic on the network apart from the download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Scenario 1: the users send UDP upstream.
    Upstream,
    /// Scenario 2: the router towards the server forwards 100 packets a second. Half of them are
    /// cross traffic.
    Internet,
    /// Fig. 7: the users download too, with the same scheme.
    Downloads,
}

/// A download over the cable network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Download {
    pub(super) scheme: Scheme,
    pub(super) load: Load,
    /// Bytes of the download.
    pub(super) size: u64,
}

impl Download {
    /// Scenario 1: 300 KB, while users send UDP upstream.
    pub(super) const fn scenario_1(scheme: Scheme) -> Self {
        Self {
            scheme,
            load: Load::Upstream,
            size: 300_000,
        }
    }

    /// Scenario 2: 100 KB through a slow router on the Internet.
    pub(super) const fn scenario_2(scheme: Scheme) -> Self {
        Self {
            scheme,
            load: Load::Internet,
            size: 100_000,
        }
    }

    /// Fig. 7: all 19 users download without end.
    pub(super) const fn figure_7(scheme: Scheme) -> Self {
        Self {
            scheme,
            load: Load::Downloads,
            size: u64::MAX,
        }
    }

    /// The network under this load.
    pub(super) fn path(&self) -> Result<Path, Error> {
        let mut changes = vec![
            format!("link.channel.up.queue={ROUTER} packets"),
            format!("link.channel.down.queue={CHANNEL} packets"),
            format!("link.internet.queue={ROUTER} packets"),
        ];
        if self.load == Load::Internet {
            // Each direction carries 100 packets a second. All packets of one direction have the
            // same size.
            for (direction, packet) in [("down", SEGMENT + HEADER), ("up", HEADER)] {
                let rate = 100 * 8 * packet;
                changes.push(format!("link.internet.{direction}.rate={rate} bit/s"));
            }
        }
        let thinned = match self.load {
            Load::Downloads => 0..=USERS,
            Load::Upstream | Load::Internet => 0..=0,
        };
        for user in thinned {
            let (modem, acks) = (of_user("modem", user), self.scheme.ack_queue());
            changes.push(format!("link.{modem}.up.ack_queue={acks}"));
        }
        let mut path = NETWORK.path(&changes)?;
        if self.load != Load::Upstream {
            path.traffic.clear();
        }
        Ok(path)
    }

    /// The scenario on [its path](Self::path); the download is its first flow.
    pub(super) fn scenario(&self, path: &Path, seed: u64) -> Scenario {
        let mut scenario = Scenario::network(path, false);
        scenario.seed = seed;
        scenario.duration = WARM_UP + LONGEST;
        let node = |name: &str| NodeId(path.find_node(name).unwrap_or(NodeIndex(0)).0);
        let [gateway, server] = ["gateway", "server"].map(node);
        let mut users = vec![node("client")];
        users.extend((1..=USERS).map(|user| node(&of_user("user", user))));
        for user in 0..=USERS {
            // The link's name determines its random numbers; the documented results were made with
            // this name.
            if let Some(modem) = path.find_link(&of_user("modem", user)) {
                scenario.rename_link(LinkId(modem.0), &format!("modem {user}"));
            }
        }
        let mut download = self.flow("download", server, users[0]);
        if self.load == Load::Downloads {
            download.start = TimeSpan::ZERO;
        } else {
            download.source = Source::Fixed(ByteSize::from_bytes(self.size));
            download.start = WARM_UP;
        }
        scenario.add_flow(download);
        self.add_load(&mut scenario, &users, gateway, server);
        scenario
    }

    fn add_load(&self, scenario: &mut Scenario, users: &[NodeId], gateway: NodeId, server: NodeId) {
        match self.load {
            // The traffic is part of the path.
            Load::Upstream => {}
            Load::Internet => {
                scenario.add_traffic(cross("down", server, gateway, SEGMENT + HEADER));
                scenario.add_traffic(cross("up", gateway, server, HEADER));
            }
            Load::Downloads => {
                for (user, node) in users.iter().enumerate().skip(1).take(USERS - 1) {
                    let mut flow = self.flow(&format!("user {user}"), server, *node);
                    // The downloads start one after another within the warm-up, at different times
                    // in each run.
                    let step = 500 + 61 * (scenario.seed % 16);
                    flow.start = TimeSpan::from_milliseconds(step * user as u64);
                    scenario.add_flow(flow);
                }
            }
        }
    }

    fn flow(&self, name: &str, from: NodeId, to: NodeId) -> Flow {
        let sender = SenderConfiguration {
            variant: Variant::Reno,
            segment_size: SEGMENT,
            header_size: HEADER,
            initial_window: 1,
            minimum_timeout: TimeSpan::from_seconds(1),
            initial_timeout: TimeSpan::from_seconds(3),
            limited_transmit: false,
            ..SenderConfiguration::default()
        };
        let receiver = ReceiverConfiguration {
            buffer: WINDOW,
            acknowledge: self.scheme.receiver(1, TIMEOUT),
            header_size: HEADER,
            segment_size: SEGMENT,
            ..ReceiverConfiguration::default()
        };
        let mut flow = Flow::bulk(name, from, to)
            .with_sender(sender)
            .with_receiver(receiver);
        flow.regenerate_acks = self.scheme.regeneration();
        flow
    }
}

/// The name of a user's node or link. The names of the first user have no number.
fn of_user(what: &str, user: usize) -> String {
    match user {
        0 => what.to_owned(),
        _ => format!("{what}-{user}"),
    }
}

/// Cross traffic of 50 packets a second: 16 sources, of which half send on average.
fn cross(name: &str, from: NodeId, to: NodeId, packet_size: u32) -> Traffic {
    Traffic {
        name: format!("cross traffic {name}"),
        from,
        to,
        packet_size,
        rate: rate(50 * 8 * u64::from(packet_size) / 8),
        sources: 16,
        pattern: turns(1.0, 1.0),
        start: TimeSpan::ZERO,
        end: None,
    }
}

fn turns(on: f64, off: f64) -> Pattern {
    let pareto = |mean| Distribution::Pareto { mean, shape: 1.5 };
    Pattern::OnOff {
        on: pareto(on),
        off: pareto(off),
    }
}

const fn rate(bits: u64) -> BitRate {
    match BitRate::from_bits_per_second(bits) {
        Some(rate) => rate,
        None => panic!("a rate of zero"),
    }
}
