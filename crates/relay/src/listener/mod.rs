//! What a listener does with connections.

mod negotiation;

pub use negotiation::{HeaderVersion, Language, Negotiation, Users};

use std::net::SocketAddr;

use midspan_policy::{Handshake, SessionSettings};
use midspan_units::Probability;
use serde::{Deserialize, Serialize};

use crate::limits::ListenerLimits;
use crate::profile::{AccessProfile, SegmentMarks};

/// A place where connections are accepted, and what the relay does with them: plain data, without
/// sockets.
///
/// The configuration resolves to it, the helper sends it to the relay process, and the relay's
/// threads and the gate use it as it is. A key of a listener is a field here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Name in logs and metrics. A transparent listener has several sets of sockets, each a
    /// listener of the same name here.
    pub name: String,
    /// Where its sockets listen; `None` for a transparent one that has not been opened yet.
    pub listen: Option<SocketAddr>,
    /// Where its sessions go.
    pub to: Destination,
    /// How legs are set up. `initial_window` is not the relay's: Linux has it on routes only, and the
    /// process that opens the listener selects the route by the [marks](Self::marks).
    pub session: SessionSettings,
    /// How many sessions it takes, and how long they may be still.
    pub limits: ListenerLimits,
    /// What is known of clients' access links.
    pub profiles: Vec<AccessProfile>,
    /// When the SYN of an intercepted connection is answered.
    pub handshake: Handshake,
    /// The initial windows in segments from which one is selected for each intercepted connection, by
    /// earlier measurements of its path; empty if none is selected.
    pub learned_windows: Vec<u32>,
    /// The share of connections that are not intercepted, as a control group.
    pub control_group: Probability,
    /// Packet marks, which the process that opens the listener fills in.
    pub marks: ListenerMarks,
}

/// The packet marks of a listener and its legs; none where nothing depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerMarks {
    /// Of the listening sockets (`SO_MARK`), which client legs inherit.
    pub client: Option<u32>,
    /// Of server legs (`SO_MARK`, needs `CAP_NET_ADMIN`): it selects the route, and with it the
    /// initial window towards the server.
    pub server: Option<u32>,
    /// Of the SYNs that are for this listener.
    pub syn: Option<u32>,
    /// Of the segments that clients with an access profile may get.
    pub segments: SegmentMarks,
}

/// Where the sessions of a listener go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To one server.
    Fixed(SocketAddr),
    /// To where the client wanted to go, from the client's own address and port. The listening
    /// sockets are transparent.
    Original,
    /// To the server that the client names, or to one server after a negotiation with one of the two.
    Negotiated(Box<Negotiation>),
}

impl Listener {
    /// A listener of this name, everything else by default.
    #[must_use]
    pub fn new(name: impl Into<String>, to: Destination) -> Self {
        Self {
            name: name.into(),
            listen: None,
            to,
            session: SessionSettings::default(),
            limits: ListenerLimits::default(),
            profiles: Vec::new(),
            handshake: Handshake::default(),
            learned_windows: Vec::new(),
            control_group: Probability::ZERO,
            marks: ListenerMarks::default(),
        }
    }

    /// Whether rules lead connections here that were meant for others. Clients call other listeners
    /// by their address: what these cannot take is lost to the client, while it passes untouched
    /// where a transparent one cannot take it.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        matches!(self.to, Destination::Original)
    }

    /// The negotiation before a session; `None` if there is none, and every client may have one.
    #[must_use]
    pub fn negotiation(&self) -> Option<&Negotiation> {
        match &self.to {
            Destination::Negotiated(negotiation) => Some(negotiation),
            Destination::Fixed(_) | Destination::Original => None,
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::Fixed(address)
    }
}

impl From<Negotiation> for Destination {
    fn from(negotiation: Negotiation) -> Self {
        Self::Negotiated(Box::new(negotiation))
    }
}
