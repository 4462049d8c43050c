//! One node of an overlay.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{NodeKey, NodeName};
use crate::network::Network;

/// A node, as the list of members describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Where it accepts hops; `None` for a node that only sends them.
    pub address: Option<SocketAddr>,
    /// Addresses from which its hops come, in addition to that of `address`.
    pub from: Vec<Network>,
    /// Its kind.
    pub kind: NodeKind,
    /// Whether it carries hops on to other nodes.
    pub transit: bool,
    /// Servers to which it connects for others; empty if it is no exit.
    pub serves: Vec<Network>,
    /// First and last port of these servers; empty for all.
    pub ports: Vec<(u16, u16)>,
    /// Its key. A leg between two nodes with keys is encrypted; any other leg is plain, and a node without a key is
    /// recognized by its address.
    #[serde(default)]
    pub key: Option<NodeKey>,
}

/// What kind of program a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Midspan.
    #[default]
    Midspan,
    /// Another proxy with the method `CONNECT`. It can only be the last node of a route, and sends no
    /// hops.
    Connect,
}

impl Node {
    /// A node with Midspan that only sends hops, or accepts them at this address. It carries none on, is no exit, and has
    /// no key.
    #[must_use]
    pub const fn new(name: NodeName, address: Option<SocketAddr>) -> Self {
        Self {
            name,
            address,
            from: Vec::new(),
            kind: NodeKind::Midspan,
            transit: false,
            serves: Vec::new(),
            ports: Vec::new(),
            key: None,
        }
    }

    /// Whether this node connects to this server for other nodes.
    #[must_use]
    pub fn serves(&self, server: SocketAddr) -> bool {
        let has_port = self.ports.is_empty()
            || (self.ports.iter()).any(|(first, last)| (*first..=*last).contains(&server.port()));
        has_port && (self.serves.iter()).any(|network| network.contains(server.ip()))
    }

    /// Whether hops from this address may be this node's.
    #[must_use]
    pub fn sends_from(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_own = |own: SocketAddr| own.ip().to_canonical() == address;
        self.kind == NodeKind::Midspan
            && (self.address.is_some_and(is_own)
                || self.from.iter().any(|network| network.contains(address)))
    }
}
