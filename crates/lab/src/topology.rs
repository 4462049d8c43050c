//! A path as namespaces, interfaces, addresses and routes.
//!
//! Every node is a network namespace with one address, the same on all its interfaces. Every link
//! is two veth pairs whose far ends lie in the emulator's namespace. Neighbours know each other's
//! link-layer addresses from the start, so that nothing but the workload's packets is on a link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use midspan_linux::ethtool;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, NetlinkError, Prefix, RouteMetrics};
use midspan_path::{Direction, Family, HostSettings, Link, LinkIndex, NodeIndex, NodeKind, Path};

use crate::LabError;
use crate::emulator::{LinkEmulator, Setup};
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
        let emulator = NetworkNamespace::new("emulator")?;
        // Taps only carry frames: no addresses, no traffic of their own.
        emulator.set_parameter("net/ipv6/conf/all/disable_ipv6", "1")?;
        emulator.set_parameter("net/ipv6/conf/default/disable_ipv6", "1")?;
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

    /// Starts all links anew: empty, and with random streams from `seed`.
    pub fn reset_links(&self, path: &Path, seed: u64) -> Result<(), LabError> {
        for (link, emulator) in path.links.iter().zip(&self.links) {
            emulator.reset(&link_setup(link, seed))?;
        }
        Ok(())
    }

    /// Sets the routes of `node` to all other nodes, with what `metrics` says for each.
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
                host_prefix(self.address(destination)),
                gateway,
                interface(hop.link),
                metrics(destination),
            );
            // Gateways must be reachable before they are used.
            if attached {
                routes.insert(0, route);
            } else {
                routes.push(route);
            }
        }
        self.configure(node, move |netlink| {
            routes
                .iter()
                .try_for_each(|(to, gateway, interface, metrics)| {
                    netlink.set_route(*to, *gateway, interface, metrics)
                })
        })
    }

    fn add_interfaces(&self, path: &Path, index: LinkIndex) -> Result<(), LabError> {
        let ends = path.link(index).between;
        for (direction, node) in [Direction::Up, Direction::Down].into_iter().zip(ends) {
            let (name, tap) = (interface(index), tap(index, direction));
            let namespace = std::os::fd::AsFd::as_fd(self.node(node))
                .try_clone_to_owned()
                .map_err(|source| LabError::Emulator {
                    link: path.link(index).name.clone(),
                    action: "copy a descriptor",
                    source,
                })?;
            let (moved, kept) = (name.clone(), tap.clone());
            self._emulator.run(move || {
                let netlink = Netlink::open()?;
                netlink.add_veth(&kept, &moved)?;
                netlink.move_interface(&moved, std::os::fd::AsFd::as_fd(&namespace))?;
                netlink.set_up(&kept)
            })??;
            let address = link_address(index, node);
            let up = name.clone();
            self.configure(node, move |netlink| {
                netlink.set_link_address(&up, address)?;
                netlink.set_up(&up)
            })?;
            let link = path.link(index).name.clone();
            self.node(node)
                .run(move || ethtool::switch_off_offloads(&name))?
                .map_err(|source| LabError::Emulator {
                    link,
                    action: "switch off the offloads of an interface",
                    source,
                })?;
        }
        Ok(())
    }

    fn add_address(&self, node: NodeIndex) -> Result<(), LabError> {
        let prefix = host_prefix(self.address(node));
        self.configure(node, move |netlink| {
            netlink.set_up("lo")?;
            netlink.add_address("lo", prefix)
        })
    }

    fn add_neighbours(&self, path: &Path, node: NodeIndex) -> Result<(), LabError> {
        let neighbours: Vec<_> = path
            .neighbours(node)
            .map(|hop| {
                (
                    interface(hop.link),
                    self.address(hop.node),
                    link_address(hop.link, hop.node),
                )
            })
            .collect();
        self.configure(node, move |netlink| {
            neighbours
                .iter()
                .try_for_each(|(interface, address, link_address)| {
                    netlink.add_neighbour(interface, *address, *link_address)
                })
        })
    }

    fn configure(
        &self,
        node: NodeIndex,
        change: impl FnOnce(&Netlink) -> Result<(), NetlinkError> + Send + 'static,
    ) -> Result<(), LabError> {
        self.node(node)
            .run(move || change(&Netlink::open()?))?
            .map_err(LabError::from)
    }
}

fn new_node(name: &str, kind: &NodeKind) -> Result<NetworkNamespace, LabError> {
    let node = NetworkNamespace::new(name)?;
    let forwards = !matches!(kind, NodeKind::Host(_));
    for (parameter, value) in [
        ("net/ipv4/ip_forward", if forwards { "1" } else { "0" }),
        (
            "net/ipv6/conf/all/forwarding",
            if forwards { "1" } else { "0" },
        ),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/default/router_solicitations", "0"),
        ("net/ipv6/conf/default/addr_gen_mode", "1"),
        // A run must not learn from the run before.
        ("net/ipv4/tcp_no_metrics_save", "1"),
    ] {
        node.set_parameter(parameter, value)?;
    }
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

/// Changes the third of the three numbers of `tcp_rmem` or `tcp_wmem`; the others follow only
/// where they would be larger.
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

fn link_setup(link: &Link, seed: u64) -> Setup {
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

/// The name of the tap that a direction of a link starts from.
fn tap(link: LinkIndex, from: Direction) -> String {
    match from {
        Direction::Up => format!("tap{}a", link.0),
        Direction::Down => format!("tap{}b", link.0),
    }
}

fn host_prefix(address: IpAddr) -> Prefix {
    Prefix {
        address,
        length: if address.is_ipv4() { 32 } else { 128 },
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
