//! The cable network of §4: modems that are polled or contend for 768 kbit/s, 27 Mbit/s down to
//! all, and the Internet beyond the cable router.

use midspan_link::{Configuration, Direction, PolledConfiguration, QueueLimit, State};
use midspan_sim::tcp::{ReceiverConfiguration, SenderConfiguration, Variant};
use midspan_sim::{Distribution, Flow, LinkId, NodeId, Pattern, Scenario, Source, Traffic};
use midspan_units::{BitRate, ByteSize, TimeSpan};

use super::scheme::Scheme;

/// Data of a segment, its headers, and what a modem adds to a packet (Ethernet).
pub(super) const SEGMENT: u32 = 1460;
const HEADER: u32 = 40;
const FRAMING: u32 = 18;
/// The receive buffer: 20 packets.
pub(super) const WINDOW: u64 = 20 * SEGMENT as u64;
/// Users that send upstream, or download in Fig. 7.
pub(super) const USERS: usize = 19;
/// Mean rate of each user's UDP.
const UDP: u64 = 180_000;
/// Cross traffic runs for so long before the download, so that its queues are as they will be.
pub(super) const WARM_UP: TimeSpan = TimeSpan::from_seconds(60);
/// A download that takes longer is given up.
const LONGEST: TimeSpan = TimeSpan::from_seconds(1_800);
/// ATO: the paper prints none. That of BSD.
const TIMEOUT: TimeSpan = TimeSpan::from_milliseconds(200);
/// Room in a modem, before the channel downstream (for the windows of all users), and at the
/// Internet's routers; not printed.
const MODEM: u32 = 10;
const CHANNEL: u32 = 500;
const ROUTER: u32 = 50;

/// What happens on the network beside the download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Scenario 1: the users send UDP upstream.
    Upstream,
    /// Scenario 2: the router towards the server does 100 packets a second, half of them others'.
    Internet,
    /// Fig. 7: the users download as well, by the same scheme.
    Downloads,
}

/// A download over the cable network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Download {
    pub(super) scheme: Scheme,
    pub(super) load: Load,
    /// Bytes.
    pub(super) size: u64,
}

impl Download {
    /// Scenario 1: 300 KB against UDP upstream.
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

    /// The scenario; the download is its first flow.
    pub(super) fn scenario(&self, seed: u64) -> Scenario {
        let mut scenario = Scenario::new(seed, WARM_UP + LONGEST);
        let [router, internet, server] =
            ["cable router", "internet router", "server"].map(|name| scenario.add_node(name));
        scenario.add_link(
            "channel",
            router,
            internet,
            &line(None, TimeSpan::ZERO),
            &Configuration {
                queue: QueueLimit::Packets(CHANNEL),
                ..line(Some(27_000_000), TimeSpan::ZERO)
            },
        );
        let far = self.internet_link(SEGMENT + HEADER);
        let back = self.internet_link(HEADER);
        scenario.add_link("internet", internet, server, &back, &far);
        let users: Vec<NodeId> = (0..=USERS)
            .map(|user| self.add_user(&mut scenario, user, router))
            .collect();
        let links: Vec<LinkId> = (2..).map(LinkId).take(users.len()).collect();
        scenario.add_cable("plant", &links, plant());
        let mut download = self.flow("download", server, users[0]);
        if self.load == Load::Downloads {
            download.start = TimeSpan::ZERO;
        } else {
            download.source = Source::Fixed(ByteSize::from_bytes(self.size));
            download.start = WARM_UP;
        }
        scenario.add_flow(download);
        self.add_load(&mut scenario, &users, internet, server);
        scenario
    }

    /// In scenario 2 so many packets a second pass each way: all of one way are of one size.
    fn internet_link(&self, packet: u32) -> Configuration {
        let rate = match self.load {
            Load::Internet => Some(100 * 8 * u64::from(packet)),
            _ => None,
        };
        line(rate, TimeSpan::from_milliseconds(10))
    }

    fn add_user(&self, scenario: &mut Scenario, user: usize, router: NodeId) -> NodeId {
        let node = scenario.add_node(&format!("user {user}"));
        let modem = Configuration {
            state: State {
                delay: TimeSpan::from_milliseconds(1),
                ..State::default()
            },
            queue: QueueLimit::Packets(MODEM),
            overhead: FRAMING,
            ..Configuration::default()
        };
        let link = scenario.add_link(&format!("modem {user}"), node, router, &modem, &modem);
        if user == 0 || self.load == Load::Downloads {
            scenario.configure(link, Direction::Up, |link| {
                link.queue_discipline = self.scheme.discipline()
            });
        }
        node
    }

    fn add_load(
        &self,
        scenario: &mut Scenario,
        users: &[NodeId],
        internet: NodeId,
        server: NodeId,
    ) {
        match self.load {
            Load::Upstream => {
                for (user, node) in users.iter().enumerate().skip(1) {
                    scenario.add_traffic(udp(&format!("udp {user}"), *node, internet));
                }
            }
            Load::Internet => {
                scenario.add_traffic(cross("down", server, internet, SEGMENT + HEADER));
                scenario.add_traffic(cross("up", internet, server, HEADER));
            }
            Load::Downloads => {
                for (user, node) in users.iter().enumerate().skip(1).take(USERS - 1) {
                    let mut flow = self.flow(&format!("user {user}"), server, *node);
                    // One after the other within the warm-up, otherwise in each run.
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

/// The channel. The paper prints rate, the 5 s and the ten rounds; the rest is chosen: a poll of
/// 2 ms (the router's message, the signal's way and the gap before a frame), a slot of 2 ms twice
/// a second, 5 ms to be confirmed.
fn plant() -> PolledConfiguration {
    PolledConfiguration {
        rate: rate(768_000),
        poll: TimeSpan::from_milliseconds(2),
        slot: TimeSpan::from_milliseconds(2),
        contention_interval: TimeSpan::from_milliseconds(500),
        confirmation: TimeSpan::from_milliseconds(5),
        polled_for: TimeSpan::from_seconds(5),
        rounds: 10,
    }
}

/// A user's UDP: half of the time, at twice the mean.
fn udp(name: &str, from: NodeId, to: NodeId) -> Traffic {
    Traffic {
        name: name.to_owned(),
        from,
        to,
        packet_size: SEGMENT + 28,
        rate: rate(2 * UDP),
        sources: 1,
        pattern: turns(5.0, 5.0),
        start: TimeSpan::ZERO,
        end: None,
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

fn line(bits: Option<u64>, delay: TimeSpan) -> Configuration {
    Configuration {
        state: State {
            rate: bits.and_then(BitRate::from_bits_per_second),
            delay,
            ..State::default()
        },
        queue: QueueLimit::Packets(ROUTER),
        ..Configuration::default()
    }
}
