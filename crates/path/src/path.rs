//! A path, read and checked.

use midspan_link::{Configuration, Direction, PolledConfiguration};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSettings, PolicyName};
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::{Deserialize, Serialize};

use crate::acknowledge::Acknowledge;

/// Hosts, routers and proxies, the links that join them, and the flows over them.
///
/// A path from [`Path::read`] or [`Path::load`] follows all rules of `docs/path-file.md`. A path
/// that is built in code should follow them too; if it does not, no method loops or panics, unless
/// it gets an index that does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The path's name: that of a built-in path, or that of the file without `.toml`.
    pub name: String,
    /// Its description in one line; may be empty.
    pub description: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// The Internet Protocol that the hosts use.
    pub family: Family,
    /// Hosts, routers and proxies, in the order of the file.
    pub nodes: Vec<Node>,
    /// The links, in the order of the file.
    pub links: Vec<Link>,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Traffic without TCP, in the order of the file; only the simulator supports it.
    pub traffic: Vec<Traffic>,
    /// Cable networks, in the order of the file; only the simulator supports them.
    pub cables: Vec<Cable>,
    /// Whether the flows run one after another or at the same time.
    pub order: Order,
}

/// A node, by its index in [`Path::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub usize);

/// A link, by its index in [`Path::links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub usize);

/// The Internet Protocol of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IP version 4.
    #[default]
    Ipv4,
    /// IP version 6.
    Ipv6,
}

/// A host, router or proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name: letters, digits, `-`, `_` and `.`, at most 32.
    pub name: String,
    /// Its kind.
    pub kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// Opens and accepts connections; never forwards, so it is at an end of the path.
    Host(HostSettings),
    /// Forwards packets.
    Router,
    /// Runs a proxy, or forwards packets in runs without one.
    Proxy(Box<ProxySettings>),
}

/// A host's TCP settings. `None`: the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSettings {
    /// Congestion control for the data that this host sends, by its kernel name.
    pub congestion_control: Option<String>,
    /// Initial congestion window in segments.
    pub initial_window: Option<u32>,
    /// The largest receive buffer that autotuning may set (the third number of `tcp_rmem`).
    pub receive_buffer: Option<ByteSize>,
    /// The largest send buffer that autotuning may set (the third number of `tcp_wmem`).
    pub send_buffer: Option<ByteSize>,
    /// Whether the host neither offers nor accepts selective acknowledgements (RFC 2018).
    pub without_sack: bool,
    /// How the host's advertised window grows in the simulator; a real kernel is not changed.
    pub window: Window,
    /// How the host acknowledges in the simulator; a real kernel is not changed.
    pub acknowledge: Acknowledge,
}

/// How an advertised window grows towards the limit that the receive buffer sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Window {
    /// As in Linux today.
    #[default]
    #[serde(rename = "autotuned")]
    Autotuned,
    /// The whole window from the start.
    #[serde(rename = "fixed")]
    Fixed,
    /// As in Linux 2.4 without window scaling (Hasegawa Fig. 12).
    #[serde(rename = "linux-2.4")]
    Linux24,
}

/// A proxy's settings for the legs of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxySettings {
    /// Whether the kernel or the proxy chooses the settings that the legs leave open.
    pub policy: PolicyName,
    /// The leg towards the host that opened the connection.
    pub client_leg: LegSettings,
    /// The leg towards the host that accepted the connection.
    pub server_leg: LegSettings,
    /// The clients' access link, and what the proxy does about it.
    pub access: Option<AccessLink>,
    /// How the proxy begins with oversized segments; the real proxy only probes.
    pub oversized_start: OversizedStart,
    /// What it does as an overlay node; `None` if it is none.
    pub overlay: Option<OverlayRole>,
}

/// What a proxy does for the other overlay nodes of its path. Every overlay node can be an ingress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlayRole {
    /// Whether it carries their sessions on to other overlay nodes.
    #[serde(default)]
    pub transit: bool,
    /// Whether it connects to the servers for them.
    #[serde(default)]
    pub exit: bool,
}

/// A link between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name, with the same rules as that of a node.
    pub name: String,
    /// The nodes that it connects; the first is on the client's side.
    pub between: [NodeIndex; 2],
    /// From the first node to the second.
    pub up: Configuration,
    /// From the second node to the first.
    pub down: Configuration,
}

/// Links that share one channel in the upstream direction (Tam §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cable {
    /// Its name, with the same rules as that of a node.
    pub name: String,
    /// The links; the modems are at their first ends.
    pub links: Vec<LinkIndex>,
    /// The channel.
    pub configuration: PolledConfiguration,
}

/// Packets without TCP that use capacity of the links on their path.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Its name: any printable text of at most 64 characters.
    pub name: String,
    /// The node where it starts.
    pub from: NodeIndex,
    /// The node where it ends.
    pub to: NodeIndex,
    /// The rate of each source while it sends.
    pub rate: BitRate,
    /// Size of its packets, headers included.
    pub packet_size: ByteSize,
    /// Number of sources.
    pub sources: u32,
    /// On and off phases; `None`: the sources send all the time.
    pub on_off: Option<OnOff>,
    /// When the traffic begins.
    pub start: TimeSpan,
    /// How long the traffic lasts; `None`: to the end of the run.
    pub duration: Option<TimeSpan>,
}

/// On and off phases, both Pareto-distributed: the sum of many such sources is self-similar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnOff {
    /// Mean duration of an on phase.
    pub on: TimeSpan,
    /// Mean duration of an off phase.
    pub off: TimeSpan,
    /// Shape of both distributions, above 1.
    pub shape: f64,
}

/// A workload between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its name: any printable text of at most 64 characters.
    pub name: String,
    /// The host that opens the connections (the client).
    pub from: NodeIndex,
    /// The host that accepts them (the server).
    pub to: NodeIndex,
    /// The data that is transferred.
    pub workload: Workload,
    /// When the flow starts, since the start of the run; zero if flows run in turn.
    pub start: TimeSpan,
}

/// The data that a flow transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// One file from server to client.
    Download {
        /// Its size.
        size: ByteSize,
    },
    /// One file from client to server.
    Upload {
        /// Its size.
        size: ByteSize,
    },
    /// As much as possible from server to client.
    BulkDownload {
        /// For how long.
        duration: TimeSpan,
    },
    /// As much as possible from client to server.
    BulkUpload {
        /// For how long.
        duration: TimeSpan,
    },
    /// Small requests over one connection; each is sent when the previous response has arrived.
    RequestResponse {
        /// Number of requests.
        count: u32,
        /// Size of each response.
        size: ByteSize,
    },
    /// The objects of a web page, over several connections at the same time.
    Page {
        /// Number of objects.
        objects: u32,
        /// Size of each.
        size: ByteSize,
        /// Number of connections.
        parallel: u32,
    },
    /// The data that a command in the client's host transfers; only the lab supports it.
    Command {
        /// The program and its arguments; at least the program.
        command: Vec<String>,
        /// The size of a file that the server has for it.
        size: Option<ByteSize>,
    },
}

/// The order of the flows in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Order {
    /// One after another, in the order of the file.
    #[default]
    #[serde(rename = "in turn")]
    InTurn,
    /// At the same time, each from its own start.
    #[serde(rename = "together")]
    Together,
}

impl Link {
    /// The properties of one direction.
    #[must_use]
    pub const fn direction(&self, direction: Direction) -> &Configuration {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

impl Workload {
    /// Whether the data goes from the client to the server.
    #[must_use]
    pub const fn is_upload(&self) -> bool {
        matches!(self, Self::Upload { .. } | Self::BulkUpload { .. })
    }

    /// The total amount of data; `None` if the duration is given instead, or a command decides.
    #[must_use]
    pub const fn total_size(&self) -> Option<ByteSize> {
        match self {
            Self::Download { size } | Self::Upload { size } => Some(*size),
            Self::RequestResponse { count: times, size }
            | Self::Page {
                objects: times,
                size,
                ..
            } => Some(ByteSize::from_bytes(
                size.bytes().saturating_mul(*times as u64),
            )),
            Self::BulkDownload { .. } | Self::BulkUpload { .. } | Self::Command { .. } => None,
        }
    }

    /// The size of the file that the server or the client has for the transfer; `None` if it has none.
    #[must_use]
    pub const fn file_size(&self) -> Option<ByteSize> {
        match self {
            Self::Download { size }
            | Self::Upload { size }
            | Self::Page { size, .. }
            | Self::RequestResponse { size, .. } => Some(*size),
            Self::Command { size, .. } => *size,
            Self::BulkDownload { .. } | Self::BulkUpload { .. } => None,
        }
    }
}

impl Path {
    /// The node at an index.
    ///
    /// # Panics
    /// The index does not exist in this path.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.0]
    }

    /// The link at an index.
    ///
    /// # Panics
    /// The index does not exist in this path.
    #[must_use]
    pub fn link(&self, index: LinkIndex) -> &Link {
        &self.links[index.0]
    }

    /// The node with this name.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeIndex> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .map(NodeIndex)
    }

    /// The link with this name.
    #[must_use]
    pub fn find_link(&self, name: &str) -> Option<LinkIndex> {
        self.links
            .iter()
            .position(|link| link.name == name)
            .map(LinkIndex)
    }

    /// Makes a router of each proxy, except of those with these names.
    pub fn keep_proxies(&mut self, names: &[&str]) {
        for node in &mut self.nodes {
            if matches!(node.kind, NodeKind::Proxy(_)) && !names.contains(&node.name.as_str()) {
                node.kind = NodeKind::Router;
            }
        }
    }

    /// The proxies, in the order of the file.
    pub fn proxies(&self) -> impl Iterator<Item = (NodeIndex, &ProxySettings)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| match &node.kind {
                NodeKind::Proxy(settings) => Some((NodeIndex(index), &**settings)),
                NodeKind::Host(_) | NodeKind::Router => None,
            })
    }

    /// The hosts, in the order of the file.
    pub fn hosts(&self) -> impl Iterator<Item = (NodeIndex, &HostSettings)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| match &node.kind {
                NodeKind::Host(settings) => Some((NodeIndex(index), settings)),
                NodeKind::Proxy(_) | NodeKind::Router => None,
            })
    }
}
