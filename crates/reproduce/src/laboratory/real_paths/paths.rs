//! The paths, with the values that an operator would set for them by hand.

use midspan_path::{NodeKind, Path};
use midspan_policy::{LegSettings, PolicyName};

use super::super::LaboratoryError;
use super::by_hand::ByHand;
use super::{Kind, PAGE, PARALLEL, Transfer};
use crate::network::{Network, built_in};
use crate::run::number;

const TWO_LINKS: Network = Network::new("two-links", include_str!("two-links.toml"));
const WIRELESS: Network = Network::new("wireless", include_str!("wireless.toml"));

/// Bits of data in a packet.
const PACKET: f64 = 1448.0 * 8.0;
/// Segments in the first flight of a kernel.
const FIRST_FLIGHT: f64 = 10.0;
/// Transfers that take some seconds at a satellite's rates.
const LONG: &[&str] = &["1 MB", "10 MB"];

/// A path, and its properties.
#[derive(Debug, Clone)]
pub(super) struct RealPath {
    pub(super) name: &'static str,
    path: Path,
    known: Known,
    /// What is assumed to be best for HAProxy.
    pub(super) hand: ByHand,
    /// The transfers that are measured by default, the most informative first. If empty, the usual
    /// selection applies.
    pub(super) usual: &'static [&'static str],
    /// Whether the proxy sends into a queue of few packets.
    pub(super) has_short_queue: bool,
}

/// Properties for the estimate of a transfer's time.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Round-trip time from end to end, in seconds.
    round_trip: f64,
    /// Mean rates in Mbit/s.
    down: f64,
    up: f64,
    /// Share of the packets that are lost at random.
    loss: f64,
}

/// All paths, the most informative first.
pub(super) fn all() -> Result<Vec<RealPath>, LaboratoryError> {
    // More segments than the client's window allows in the first flight.
    let geo = |control| ByHand::new(control, Some(200), None);
    let satellite = |loss| Known::new(0.6, 20.0, 2.0, loss);
    let of = |name, path, known, hand| RealPath {
        name,
        path,
        known,
        hand,
        usual: &[],
        has_short_queue: false,
    };
    let built_in =
        |name, known, hand| Ok::<_, LaboratoryError>(of(name, built_in(name, &[])?, known, hand));
    let lossy_geo = |name, loss: &str, share, hand| {
        Ok::<_, LaboratoryError>(of(name, geo_path(loss, &[])?, satellite(share), hand))
    };
    Ok(vec![
        lossy_geo("geo-1e-3", "0.001", 0.001, geo("bbr"))?,
        // A round trip of 4 ms at 40 Mbit/s holds 14 segments.
        built_in(
            "wifi",
            Known::new(0.084, 40.0, 40.0, 0.01),
            ByHand::new("bbr", Some(20), None),
        )?,
        lossy_geo("geo-0", "0", 0.0, geo("cubic"))?,
        // Half of the bandwidth-delay product of each leg.
        of(
            "middle",
            two_links("100 Mbit/s", "50 ms")?,
            Known::new(0.2, 100.0, 100.0, 0.0),
            ByHand::new("cubic", Some(400), Some(400)),
        ),
        built_in(
            "leo",
            Known::new(0.06, 100.0, 11.0, 0.0005),
            ByHand::new("bbr", Some(100), None),
        )?,
        built_in(
            "lte",
            Known::new(0.07, 20.0, 7.0, 0.0),
            ByHand::new("bbr", Some(50), None),
        )?,
        RealPath {
            // Transfers that end before the rain say nothing about it.
            usual: LONG,
            ..of(
                "rain-fade",
                geo_path("0", &RAIN)?,
                Known::new(0.6, 8.0, 1.2, 0.0005),
                geo("bbr"),
            )
        },
        built_in(
            "maritime",
            Known::new(0.62, 3.0, 0.7, 0.004),
            ByHand::new("bbr", Some(50), None),
        )?,
        lossy_geo("geo-1e-2", "0.01", 0.01, geo("bbr"))?,
        RealPath {
            usual: &["upload 1 MB", "upload 10 MB"],
            has_short_queue: true,
            ..of(
                "wireless",
                WIRELESS.path(&[])?,
                Known::new(0.08, 5.0, 5.0, 0.001),
                ByHand::new("bbr", None, None),
            )
        },
        of(
            "lan",
            two_links("1 Gbit/s", "0.1 ms")?,
            Known::new(0.001, 300.0, 300.0, 0.0),
            ByHand::new("cubic", None, None),
        ),
        RealPath {
            // Its loss is between those of two paths that are measured completely.
            usual: LONG,
            ..lossy_geo("geo-1e-4", "0.0001", 0.0001, geo("bbr"))?
        },
    ])
}

impl RealPath {
    /// The path on which both end hosts send with this congestion control.
    pub(super) fn ends_with(&self, control: &str) -> Path {
        self.with(control, PolicyName::Configured, &Default::default())
    }

    /// The path with hand-set values.
    pub(super) fn by_hand(&self, values: &ByHand) -> Path {
        self.with("cubic", PolicyName::Configured, &values.legs())
    }

    /// The path on which the proxy sets all values itself.
    pub(super) fn by_itself(&self) -> Path {
        let leg = PolicyName::Auto.leg(LegSettings::default());
        self.with("cubic", PolicyName::Auto, &[leg.clone(), leg])
    }

    fn with(&self, control: &str, policy: PolicyName, [client, server]: &[LegSettings; 2]) -> Path {
        let mut path = self.path.clone();
        for node in &mut path.nodes {
            match &mut node.kind {
                NodeKind::Host(host) => host.congestion_control = Some(control.to_owned()),
                NodeKind::Proxy(proxy) => {
                    proxy.policy = policy;
                    proxy.client_leg = client.clone();
                    proxy.server_leg = server.clone();
                }
                NodeKind::Router => {}
            }
        }
        path
    }

    /// An estimate of a transfer's seconds if losses do not slow it down.
    pub(super) fn seconds(&self, transfer: &Transfer) -> f64 {
        self.seconds_at(transfer, f64::INFINITY)
    }

    /// An estimate of a transfer's seconds from end to end with CUBIC.
    pub(super) fn seconds_by_cubic(&self, transfer: &Transfer) -> f64 {
        let Known {
            round_trip, loss, ..
        } = self.known;
        // Mean windows of Reno and of CUBIC (RFC 9438, §5.1) at this loss.
        let reno = 1.22 / loss.sqrt();
        let cubic = 1.054 * libm::pow(round_trip / loss, 0.75);
        self.seconds_at(transfer, reno.max(cubic) * PACKET / round_trip)
    }

    fn seconds_at(&self, transfer: &Transfer, most: f64) -> f64 {
        let Known {
            round_trip,
            down,
            up,
            ..
        } = self.known;
        let (bytes, rate, waves) = match transfer.kind {
            Kind::Down(bytes) => (bytes, down, 0),
            Kind::Up(bytes) => (bytes, up, 0),
            Kind::Page => (u64::from(PAGE.0) * PAGE.1, down, PAGE.0 / PARALLEL),
        };
        let bits = 8.0 * number(bytes);
        let rate = (rate * 1e6).min(most);
        let flight = bits.min(rate * round_trip) / (FIRST_FLIGHT * PACKET);
        let round_trips = 2.0 + libm::log2(flight).max(0.0) + f64::from(waves);
        round_trips * round_trip + bits / (0.95 * rate)
    }
}

impl Known {
    const fn new(round_trip: f64, down: f64, up: f64, loss: f64) -> Self {
        Self {
            round_trip,
            down,
            up,
            loss,
        }
    }
}

/// The built-in path `geo` with this loss. Its directions have rates of their own.
fn geo_path(loss: &str, directions: &[&str]) -> Result<Path, LaboratoryError> {
    let mut changes = vec![format!("link.satellite.loss={loss}")];
    changes.extend(directions.iter().map(ToString::to_string));
    Ok(built_in("geo", &changes)?)
}

/// Rain begins 2 s after the start, and is over 6 s later.
const RAIN: [&str; 2] = [
    r#"link.satellite.up={ rate = "2 Mbit/s", schedule = { repeat = "60 s", steps = [
        { at = "2 s", rate = "1 Mbit/s", loss = "0.3 %" },
        { at = "8 s", rate = "2 Mbit/s", loss = "0 %" },
    ] } }"#,
    r#"link.satellite.down={ rate = "20 Mbit/s", schedule = { repeat = "60 s", steps = [
        { at = "2 s", rate = "6 Mbit/s", loss = "0.3 %" },
        { at = "8 s", rate = "20 Mbit/s", loss = "0 %" },
    ] } }"#,
];

/// Two links of one kind, with the proxy between them.
fn two_links(rate: &str, delay: &str) -> Result<Path, LaboratoryError> {
    let of = |link| {
        [
            format!("link.{link}.rate={rate}"),
            format!("link.{link}.delay={delay}"),
        ]
    };
    Ok(TWO_LINKS.path(&["near", "far"].map(of).concat())?)
}
