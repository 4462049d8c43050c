//! A path, read and checked.

use midspan_link::{Configuration, Direction, PolledConfiguration};
use midspan_policy::oversized_segments::OversizedStart;
use midspan_policy::{AccessLink, LegSettings, PolicyName};
use midspan_units::{BitRate, ByteSize, TimeSpan};
use serde::Deserialize;

use crate::acknowledge::{AckQueueing, Acknowledge};

/// Hosts, routers and proxies, the links that join them to a tree, and the flows over them.
///
/// [`Path::read`] and [`Path::load`] give one that keeps all the rules of `docs/path-file.md`.
/// One that is put together by hand should keep them too; no method loops or panics if it does
/// not, unless it is given an index that does not exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// What the path is called: the name of a built-in path, or of the file without `.toml`.
    pub name: String,
    /// What it is, in one line; may be empty.
    pub description: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// Which protocol the hosts speak.
    pub family: Family,
    /// Hosts, routers and proxies, in the order of the file.
    pub nodes: Vec<Node>,
    /// The links, in the order of the file.
    pub links: Vec<Link>,
    /// The flows, in the order of the file.
    pub flows: Vec<Flow>,
    /// Traffic without TCP, in the order of the file; only the simulator has it.
    pub traffic: Vec<Traffic>,
    /// Cable networks, in the order of the file; only the simulator has them.
    pub cables: Vec<Cable>,
    /// Whether the flows run one after another or at the same time.
    pub order: Order,
}

/// A node by its place in [`Path::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub usize);

/// A link by its place in [`Path::links`].
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
    /// What it does.
    pub kind: NodeKind,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// Opens and answers connections; never forwards, so it stands at an end.
    Host(HostSettings),
    /// Forwards packets.
    Router,
    /// Runs a proxy, or forwards packets in runs without one.
    Proxy(Box<ProxySettings>),
}

/// How a host's TCP is set. What is `None` is the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSettings {
    /// Congestion control of what this host sends, by its kernel name.
    pub congestion_control: Option<String>,
    /// Initial congestion window in segments.
    pub initial_window: Option<u32>,
    /// Most that autotuning may give a receive buffer (the third number of `tcp_rmem`).
    pub receive_buffer: Option<ByteSize>,
    /// Most that autotuning may give a send buffer (the third number of `tcp_wmem`).
    pub send_buffer: Option<ByteSize>,
    /// It neither offers nor accepts selective acknowledgements (RFC 2018).
    pub without_sack: bool,
    /// How the window that it advertises grows in the simulator; a real kernel does as it does.
    pub window: Window,
    /// How it acknowledges in the simulator; a real kernel does as it does.
    pub acknowledge: Acknowledge,
}

/// How an advertised window grows towards what the receive buffer allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Window {
    /// As Linux does today.
    #[default]
    #[serde(rename = "autotuned")]
    Autotuned,
    /// Whole from the start.
    #[serde(rename = "fixed")]
    Fixed,
    /// As Linux 2.4 without window scaling (Hasegawa Fig. 12).
    #[serde(rename = "linux-2.4")]
    Linux24,
}

/// How a proxy sets the legs of its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxySettings {
    /// Who sets what the legs leave open.
    pub policy: PolicyName,
    /// The leg towards the host that opened the connection.
    pub client_leg: LegSettings,
    /// The leg towards the host that was called.
    pub server_leg: LegSettings,
    /// The clients' access link, and what is done about it.
    pub access: Option<AccessLink>,
    /// How it comes to oversized segments; the real proxy only probes.
    pub oversized_start: OversizedStart,
}

/// A link between two nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name, formed as that of a node.
    pub name: String,
    /// The nodes it joins; the first is on the client's side.
    pub between: [NodeIndex; 2],
    /// From the first node to the second.
    pub up: Configuration,
    /// From the second node to the first.
    pub down: Configuration,
    /// The largest packet that it carries whole, for the simulator; `None` for any.
    pub mtu: Option<u32>,
    /// Whether it drops IP fragments, in the simulator.
    pub drop_fragments: bool,
    /// What its queues do with ACKs, up and down, in the simulator.
    pub ack_queue: [AckQueueing; 2],
    /// Whether it compresses headers (RFC 1144), up and down, in the simulator.
    pub header_compression: [bool; 2],
}

/// Links that share one channel in the direction up (Tam §4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cable {
    /// Its name, formed as that of a node.
    pub name: String,
    /// The links, at whose first ends the modems stand.
    pub links: Vec<LinkIndex>,
    /// The channel.
    pub configuration: PolledConfiguration,
}

/// Packets without TCP that take room on the links they pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Its name: any printable text of at most 64 characters.
    pub name: String,
    /// Where it comes from.
    pub from: NodeIndex,
    /// Where it goes to.
    pub to: NodeIndex,
    /// What each source sends while it does.
    pub rate: BitRate,
    /// Size of its packets, headers included.
    pub packet_size: ByteSize,
    /// How many sources it comes from.
    pub sources: u32,
    /// Turns of sending and silence; `None` where it always sends.
    pub on_off: Option<OnOff>,
    /// When it begins.
    pub start: TimeSpan,
    /// How long it lasts; `None` to the end of the run.
    pub duration: Option<TimeSpan>,
}

/// Turns of sending and silence, both Pareto: many such sources are self-similar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnOff {
    /// Mean time of sending.
    pub on: TimeSpan,
    /// Mean time of silence.
    pub off: TimeSpan,
    /// Shape of both distributions, above 1.
    pub shape: f64,
}

/// What one host asks of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its name: any printable text of at most 64 characters.
    pub name: String,
    /// The host that opens the connections (the client).
    pub from: NodeIndex,
    /// The host that answers them (the server).
    pub to: NodeIndex,
    /// What is transferred.
    pub workload: Workload,
    /// When it starts, since the start of the run; zero where flows run in turn.
    pub start: TimeSpan,
}

/// What a flow transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Small requests over one connection, each sent when the answer to the one before is there.
    RequestResponse {
        /// How many.
        count: u32,
        /// Size of each answer.
        size: ByteSize,
    },
    /// The objects of a web page, over several connections at the same time.
    Page {
        /// How many.
        objects: u32,
        /// Size of each.
        size: ByteSize,
        /// How many connections.
        parallel: u32,
    },
}

/// How the flows of a run follow each other.
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
    /// What one direction is like.
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

    /// How much data is transferred in all; `None` where the duration is given instead.
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
            Self::BulkDownload { .. } | Self::BulkUpload { .. } => None,
        }
    }
}

impl Path {
    /// The node at an index.
    ///
    /// # Panics
    /// The index is not one of this path.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.nodes[index.0]
    }

    /// The link at an index.
    ///
    /// # Panics
    /// The index is not one of this path.
    #[must_use]
    pub fn link(&self, index: LinkIndex) -> &Link {
        &self.links[index.0]
    }

    /// The node of a name.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeIndex> {
        self.nodes
            .iter()
            .position(|node| node.name == name)
            .map(NodeIndex)
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
