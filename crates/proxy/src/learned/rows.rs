//! The rows of an answer. The names of fields contain the units.

use std::net::IpAddr;

use midspan_policy::Forgotten;
use midspan_policy::cold_start::KnownColdStart;
use midspan_policy::learned_start::KnownPath;
use midspan_policy::leave_alone::{KnownAsymmetry, KnownGain};
use midspan_policy::oversized_segments::Verdict;
use midspan_policy::prefix::{host_prefix, site_prefix};
use midspan_relay::remembered::verdict_name;
use midspan_units::{BitRate, TimeSpan};
use serde::{Deserialize, Serialize};

/// The learned properties of the path to a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRow {
    /// The peer, a client or a server: an IPv4 address, or an IPv6 /64.
    pub peer: String,
    /// Time since the newest session that contributed.
    pub age_seconds: f64,
    /// The rate that the path carries; `None` if it was measured too long ago to be of use.
    pub rate_bits_per_second: Option<u64>,
    /// The smallest round-trip time.
    pub min_rtt_seconds: f64,
    /// Losses are random there, so that new legs begin with BBR.
    pub lossy: bool,
    /// The largest flight that arrived without a loss or a queue, if sessions did not fill the path.
    pub flight_bytes: u64,
    /// The largest initial window that a single new connection may get.
    pub window_segments: u32,
    /// How often this window was halved, because starts lost segments.
    pub window_halvings: u8,
}

impl From<&KnownPath> for PathRow {
    fn from(path: &KnownPath) -> Self {
        Self {
            peer: path.peer.to_string(),
            age_seconds: path.age.as_seconds(),
            rate_bits_per_second: path.rate.map(BitRate::bits_per_second),
            min_rtt_seconds: path.round_trip.as_seconds(),
            lossy: path.is_lossy,
            flight_bytes: path.flight.bytes(),
            window_segments: path.window,
            window_halvings: path.halvings,
        }
    }
}

/// A peer without a known path, whose short sessions lost segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdStartRow {
    /// The peer: an IPv4 address, or an IPv6 /64.
    pub peer: String,
    /// Time since the last of these losses.
    pub age_seconds: f64,
    /// The largest initial window of its next connection.
    pub window_segments: u32,
}

impl From<&KnownColdStart> for ColdStartRow {
    fn from(start: &KnownColdStart) -> Self {
        Self {
            peer: start.peer.to_string(),
            age_seconds: start.age.as_seconds(),
            window_segments: start.window,
        }
    }
}

/// A route on which the answers of servers do not come back through Midspan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AsymmetricRouteRow {
    /// The client: an IPv4 address, or an IPv6 /64.
    pub client: String,
    /// The network of the servers: an IPv4 /24, or an IPv6 /48.
    pub servers: String,
    /// For how long connections pass untouched; `None`: the next connection passes untouched, and
    /// shows whether the route is still asymmetric.
    pub left_seconds: Option<f64>,
}

impl From<&KnownAsymmetry> for AsymmetricRouteRow {
    fn from(known: &KnownAsymmetry) -> Self {
        Self {
            client: host_prefix(known.route.client).to_string(),
            servers: site_prefix(known.route.server).to_string(),
            left_seconds: known.proven_for.map(TimeSpan::as_seconds),
        }
    }
}

/// What splitting gains on a route.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GainRow {
    /// The client: an IPv4 address, or an IPv6 /64.
    pub client: String,
    /// The network of the servers: an IPv4 /24, or an IPv6 /48.
    pub servers: String,
    /// Time since the newest flow that was measured.
    pub age_seconds: f64,
    /// Split flows that are compared.
    pub split_flows: u64,
    /// Flows of the control group that are compared.
    pub direct_flows: u64,
    /// The median goodput of the split flows.
    pub split_bits_per_second: Option<u64>,
    /// The median goodput of the control group.
    pub direct_bits_per_second: Option<u64>,
    /// The first median divided by the second.
    pub ratio: Option<f64>,
    /// Sessions in a row in which there was nothing to gain.
    pub sessions_without_gain: u8,
}

impl From<&KnownGain> for GainRow {
    fn from(gain: &KnownGain) -> Self {
        #[allow(clippy::cast_precision_loss)]
        let number = |rate: BitRate| rate.bits_per_second() as f64;
        let both = gain.split.zip(gain.direct);
        Self {
            client: host_prefix(gain.route.client).to_string(),
            servers: site_prefix(gain.route.server).to_string(),
            age_seconds: gain.age.as_seconds(),
            split_flows: gain.split_flows as u64,
            direct_flows: gain.direct_flows as u64,
            split_bits_per_second: gain.split.map(BitRate::bits_per_second),
            direct_bits_per_second: gain.direct.map(BitRate::bits_per_second),
            ratio: both.map(|(split, direct)| number(split) / number(direct)),
            sessions_without_gain: gain.streak,
        }
    }
}

/// Whether a client accepts oversized segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    /// The client.
    pub client: IpAddr,
    /// `takes`, `doubted` or `refuses`.
    pub oversized_segments: String,
    /// Time since it was found.
    pub age_seconds: f64,
}

/// The row of a verdict that still holds.
pub(super) fn verdict((client, verdict, age): (IpAddr, Verdict, TimeSpan)) -> Option<VerdictRow> {
    (age < verdict.lifetime()).then(|| VerdictRow {
        client,
        oversized_segments: verdict_name(verdict).to_owned(),
        age_seconds: age.as_seconds(),
    })
}

/// A route that is left alone because splitting was found not to help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftAloneRow {
    /// The client: an IPv4 address, or an IPv6 /64.
    pub client: String,
    /// The network of the servers: an IPv4 /24, or an IPv6 /48.
    pub servers: String,
    /// For how long new connections pass untouched.
    pub left_seconds: f64,
}

/// Numbers of forgotten entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ForgottenCounts {
    /// Known paths.
    pub paths: u64,
    /// Peers with cold starts.
    pub cold_starts: u64,
    /// Asymmetric routes.
    pub asymmetric_routes: u64,
    /// Routes with measured gains.
    pub gains: u64,
    /// Clients to which data was sent ahead of their window, and networks of clients behind long legs.
    #[serde(default)]
    pub sending_ahead: u64,
    /// Networks of servers towards which receive windows are opened.
    #[serde(default)]
    pub server_windows: u64,
    /// Verdicts about clients.
    pub verdicts: u64,
    /// Routes that were left alone.
    pub left_alone: u64,
}

impl ForgottenCounts {
    pub(super) fn add(&mut self, some: Forgotten) {
        self.paths += some.paths as u64;
        self.cold_starts += some.cold_starts as u64;
        self.asymmetric_routes += some.asymmetric_routes as u64;
        self.gains += some.gains as u64;
        self.sending_ahead += some.sending_ahead as u64;
        self.server_windows += some.server_windows as u64;
    }
}
