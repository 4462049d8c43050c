//! A path as namespaces, interfaces, addresses and routes.
//!
//! Every node is a network namespace with one address, which is the same on all its interfaces.
//! Every link is two veth pairs whose far ends are in the emulator's namespace. Neighbours have
//! each other's link-layer addresses from the start, so only the workload's packets are on a link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::RouteMetrics;
use midspan_path::{
    self as path, Direction, Family, HostSettings, LinkIndex, NodeIndex, NodeKind, Path,
};
use midspan_testbed::network::{Configure, End, Link, Node};

use crate::LabError;
use crate::emulator::{LinkEmulator, Recording, Setup};
use crate::receive_buffer;

/// The running network of a path.
pub struct Topology {
    family: Family,
    nodes: Vec<NetworkNamespace>,
    links: Vec<LinkEmulator>,
    /// Keeps the taps; must outlive the emulators.
    _emulator: NetworkNamespace,
}

impl Topology {
    /// Builds the network of `path` and starts its links.
    pub fn build(path: &Path) -> Result<Self, LabError> {
        // Taps only carry frames. They have no addresses, so no traffic of their own.
        let emulator = Node::host("emulator").without_ipv6().make()?;
        let nodes = path
            .nodes
            .iter()
            .map(|node| new_node(&node.name, &node.kind))
            .collect::<Result<Vec<_>, _>>()?;
        let mut this = Self {
            family: path.family,
            nodes,
            links: Vec::new(),
            _emulator: emulator,
        };
        for index in 0..path.links.len() {
            this.add_interfaces(path, LinkIndex(index))?;
        }
        for index in 0..path.nodes.len() {
            this.add_address(NodeIndex(index))?;
            this.add_neighbours(path, NodeIndex(index))?;
            let metrics = match &path.node(NodeIndex(index)).kind {
                NodeKind::Host(settings) => host_metrics(settings),
                NodeKind::Router | NodeKind::Proxy(_) => RouteMetrics::default(),
            };
            this.set_routes(path, NodeIndex(index), |_| metrics.clone())?;
        }
        for (index, link) in path.links.iter().enumerate() {
            let [first, second] =
                [Direction::Up, Direction::Down].map(|d| tap(LinkIndex(index), d));
            let setup = link_setup(link, path.seed);
            let started = LinkEmulator::start(&this._emulator, &first, &second, setup)?;
            this.links.push(started);
        }
        Ok(this)
    }

    /// A node's namespace.
    #[must_use]
    pub fn node(&self, index: NodeIndex) -> &NetworkNamespace {
        &self.nodes[index.0]
    }

    /// All nodes, in the order of the path file.
    pub fn nodes(&self) -> impl Iterator<Item = &NetworkNamespace> {
        self.nodes.iter()
    }

    /// A running link.
    #[must_use]
    pub fn link(&self, index: LinkIndex) -> &LinkEmulator {
        &self.links[index.0]
    }

    /// All links, in the order of the path file.
    pub fn links(&self) -> impl Iterator<Item = &LinkEmulator> {
        self.links.iter()
    }

    /// A node's address.
    #[must_use]
    pub fn address(&self, index: NodeIndex) -> IpAddr {
        address(self.family, index)
    }

    /// Restarts all links: empty, and with random streams from `seed`.
    pub fn reset_links(&self, path: &Path, seed: u64) -> Result<(), LabError> {
        self.reset_links_recording(path, seed, |_| Ok(Recording::default()))
    }

    /// Restarts all links, as [`Self::reset_links`]. `recording` returns what a link records from then
    /// on.
    pub fn reset_links_recording(
        &self,
        path: &Path,
        seed: u64,
        mut recording: impl FnMut(LinkIndex) -> Result<Recording, LabError>,
    ) -> Result<(), LabError> {
        for (index, (link, emulator)) in path.links.iter().zip(&self.links).enumerate() {
            emulator.reset(&link_setup(link, seed), recording(LinkIndex(index))?)?;
        }
        Ok(())
    }

    /// Sets the routes of `node` to all other nodes, with the route metrics that `metrics` returns
    /// for each.
    pub fn set_routes(
        &self,
        path: &Path,
        node: NodeIndex,
        metrics: impl Fn(NodeIndex) -> RouteMetrics,
    ) -> Result<(), LabError> {
        let mut routes = Vec::new();
        for destination in (0..path.nodes.len()).map(NodeIndex) {
            let Some(hop) = path.next_hop(node, destination) else {
                continue;
            };
            let attached = hop.node == destination;
            let gateway = (!attached).then(|| self.address(hop.node));
            let route = (
                IpNet::from(self.address(destination)),
                gateway,
                interface(hop.link),
                metrics(destination),
            );
            // A gateway has to be reachable before a route can use it.
            if attached {
                routes.insert(0, route);
            } else {
                routes.push(route);
            }
        }
        // Many routes are set over one netlink connection.
        Ok(self.node(node).by_netlink(move |netlink| {
            routes
                .iter()
                .try_for_each(|(to, gateway, interface, metrics)| {
                    netlink.set_route(*to, *gateway, interface, metrics)
                })
        })?)
    }

    fn add_interfaces(&self, path: &Path, index: LinkIndex) -> Result<(), LabError> {
        let ends = path.link(index).between;
        for (direction, node) in [Direction::Up, Direction::Down].into_iter().zip(ends) {
            Link::between(
                End::new(&self._emulator, &tap(index, direction)),
                End::new(self.node(node), &interface(index))
                    .link_address(link_address(index, node))
                    .without_offloads(),
            )
            .make()?;
        }
        Ok(())
    }

    fn add_address(&self, node: NodeIndex) -> Result<(), LabError> {
        Ok(self.node(node).add_address("lo", self.address(node))?)
    }

    fn add_neighbours(&self, path: &Path, node: NodeIndex) -> Result<(), LabError> {
        Ok(path.neighbours(node).into_iter().try_for_each(|hop| {
            let link_address = link_address(hop.link, hop.node);
            let address = self.address(hop.node);
            (self.node(node)).add_neighbour(&interface(hop.link), address, link_address)
        })?)
    }
}

fn new_node(name: &str, kind: &NodeKind) -> Result<NetworkNamespace, LabError> {
    let node = match kind {
        NodeKind::Host(_) => Node::host(name),
        NodeKind::Router | NodeKind::Proxy(_) => Node::router(name),
    };
    let node = node
        .parameter("net/ipv6/conf/default/router_solicitations", "0")
        .parameter("net/ipv6/conf/default/addr_gen_mode", "1")
        // Without this setting, the kernel would use metrics of an earlier run for a new
        // connection.
        .parameter("net/ipv4/tcp_no_metrics_save", "1")
        .make()?;
    if let NodeKind::Host(settings) = kind {
        let receive_buffer = settings.receive_buffer.map(receive_buffer::to_set);
        set_buffer_limit(&node, "net/ipv4/tcp_rmem", receive_buffer)?;
        set_buffer_limit(&node, "net/ipv4/tcp_wmem", settings.send_buffer)?;
        if settings.without_sack {
            node.set_parameter("net/ipv4/tcp_sack", "0")?;
        }
    }
    Ok(node)
}

/// Sets the third of the three numbers of `tcp_rmem` or `tcp_wmem`. The other two are lowered if
/// they are larger.
fn set_buffer_limit(
    node: &NetworkNamespace,
    parameter: &str,
    limit: Option<midspan_units::ByteSize>,
) -> Result<(), LabError> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let path = std::path::PathBuf::from(format!("/proc/sys/{parameter}"));
    let file = path.clone();
    let text = node
        .run(move || std::fs::read_to_string(file))?
        .map_err(crate::error::at(&path))?;
    let numbers: Vec<String> = text
        .split_whitespace()
        .take(2)
        .filter_map(|number| number.parse::<u64>().ok())
        .chain([limit.bytes()])
        .map(|number| number.min(limit.bytes()).to_string())
        .collect();
    node.set_parameter(parameter, &numbers.join(" "))?;
    Ok(())
}

fn host_metrics(settings: &HostSettings) -> RouteMetrics {
    RouteMetrics {
        initial_window: settings.initial_window,
        congestion_control: settings.congestion_control.clone(),
        locked_mtu: None,
    }
}

fn link_setup(link: &path::Link, seed: u64) -> Setup {
    Setup {
        name: link.name.clone(),
        up: link.up.clone(),
        down: link.down.clone(),
        seed,
    }
}

/// The name of a link's interface in its nodes.
#[must_use]
pub fn interface(link: LinkIndex) -> String {
    format!("link{}", link.0)
}

/// The name of the tap at which frames of one direction of a link arrive.
fn tap(link: LinkIndex, from: Direction) -> String {
    match from {
        Direction::Up => format!("tap{}a", link.0),
        Direction::Down => format!("tap{}b", link.0),
    }
}

/// 10.77.0.1, 10.77.0.2, … or fd77::1, fd77::2, …; a path has at most 64 nodes.
fn address(family: Family, node: NodeIndex) -> IpAddr {
    let number = u8::try_from(node.0 + 1).unwrap_or(u8::MAX);
    match family {
        Family::Ipv4 => Ipv4Addr::new(10, 77, 0, number).into(),
        Family::Ipv6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

/// A locally administered address, one for each end of each link.
fn link_address(link: LinkIndex, node: NodeIndex) -> [u8; 6] {
    let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    [2, 77, 0, byte(link.0), 0, byte(node.0)]
}
