//! The network of one run: five namespaces in a row, and the faults that the two routers can have.
//!
//! ```text
//! client ── access ── gateway ── router ── server
//!                     (proxy)
//! ```
//!
//! For an overlay, further nodes are between gateway and router:
//!
//! ```text
//! client ── access ── gateway ── fra ── sin ── syd ── router ── server
//! ```
//!
//! The routers access and router drop packets, report errors by ICMP and limit packet sizes. So no
//! rule or setting for this is necessary on the hosts under test: client, gateway and server.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::RouteMetrics;
use midspan_testbed::network::{Configure, End, Link, Node, numbered, wait_until_usable};

use crate::Error;

/// The version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The name as in cases: `ipv4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// A port of the server. Each port has its own treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The server listens on this port.
    Open,
    /// No program ever listens on this port.
    Closed,
    /// The router reports: host unreachable.
    HostUnreachable,
    /// The router reports: no route.
    NetUnreachable,
    /// The router reports: port unreachable.
    PortUnreachable,
    /// The router reports: administratively prohibited.
    Prohibited,
    /// The router drops packets without an ICMP error.
    BlackHole,
}

impl Target {
    /// All targets; an explicit proxy listens for each.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::Closed,
        Self::HostUnreachable,
        Self::NetUnreachable,
        Self::PortUnreachable,
        Self::Prohibited,
        Self::BlackHole,
    ];

    /// The server's port.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Open => 80,
            Self::Closed => 81,
            Self::HostUnreachable => 82,
            Self::NetUnreachable => 83,
            Self::PortUnreachable => 84,
            Self::Prohibited => 85,
            Self::BlackHole => 86,
        }
    }

    /// The router's treatment of packets to this port.
    const fn verdict(self) -> Option<&'static str> {
        Some(match self {
            Self::Open | Self::Closed => return None,
            Self::HostUnreachable => "reject with icmpx type host-unreachable",
            Self::NetUnreachable => "reject with icmpx type no-route",
            Self::PortUnreachable => "reject with icmpx type port-unreachable",
            Self::Prohibited => "reject with icmpx type admin-prohibited",
            Self::BlackHole => "drop",
        })
    }
}

/// One of the two routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Between client and gateway.
    Access,
    /// Between gateway and server.
    Router,
}

/// Five namespaces in a row, or eight.
pub struct Network {
    /// The client's host, which opens connections.
    pub client: NetworkNamespace,
    access: NetworkNamespace,
    /// The gateway, on which proxies run.
    pub gateway: NetworkNamespace,
    /// The nodes of an overlay behind the gateway, which is its ingress; the exit is the last one.
    nodes: Vec<NetworkNamespace>,
    router: NetworkNamespace,
    /// The server's host, which accepts connections.
    pub server: NetworkNamespace,
}

/// The port of a proxy on the gateway whose clients request a destination by SOCKS5 or HTTP.
pub const EXPLICIT_PORT: u16 = 1080;

/// The nodes of an overlay behind the gateway, in their order.
pub const NODES: [&str; 3] = ["fra", "sin", "syd"];

/// The number of the link between the gateway and the first of these nodes; the next links have the next numbers.
const FIRST_NODE_LINK: u8 = 5;

/// The gateway's interface towards clients.
pub const CLIENT_SIDE: &str = "acc";

impl Network {
    /// A new network without any fault.
    ///
    /// Each end of a link has the other end's link-layer address from the start, so only the case's
    /// packets are on the path.
    pub fn new() -> Result<Self, Error> {
        Self::build(Vec::new())
    }

    /// The same with the nodes of an overlay ([`NODES`]).
    pub fn with_overlay() -> Result<Self, Error> {
        Self::build(NODES.into_iter().map(host).collect::<Result<_, _>>()?)
    }

    fn build(nodes: Vec<NetworkNamespace>) -> Result<Self, Error> {
        let network = Self {
            client: host("client")?,
            access: host("access")?,
            gateway: host("gateway")?,
            nodes,
            router: host("router")?,
            server: host("server")?,
        };
        let Self {
            client,
            access,
            gateway,
            nodes,
            router,
            server,
        } = &network;
        // The last host before the router.
        let last = nodes.last().unwrap_or(gateway);
        for (number, (from, name, host), (to, peer, other)) in [
            (1, (client, "eth", 2), (access, "in", 1)),
            (4, (access, "out", 2), (gateway, CLIENT_SIDE, 1)),
            (2, (last, "wan", 1), (router, "in", 2)),
            (3, (router, "out", 1), (server, "eth", 2)),
        ] {
            connect(number, (from, name, host), (to, peer, other))?;
        }
        client.add_numbered_default_routes("eth", 1, 1)?;
        access.add_numbered_default_routes("out", 4, 1)?;
        last.add_numbered_default_routes("wan", 2, 2)?;
        let mut previous = gateway;
        for (node, link) in nodes.iter().zip(FIRST_NODE_LINK..) {
            connect(link, (previous, "next", 1), (node, "previous", 2))?;
            previous.add_numbered_default_routes("next", link, 2)?;
            for family in [Family::V4, Family::V6] {
                let behind = [1, 4].into_iter().chain(FIRST_NODE_LINK..link);
                for behind in behind {
                    let gateway = Some(address(family, link, 1));
                    node.add_route(link_prefix(family, behind), gateway, "previous")?;
                }
            }
            previous = node;
        }
        router.add_numbered_default_routes("in", 2, 1)?;
        server.add_numbered_default_routes("eth", 3, 1)?;
        for family in [Family::V4, Family::V6] {
            let clients = link_prefix(family, 1);
            gateway.add_route(clients, Some(address(family, 4, 2)), CLIENT_SIDE)?;
        }
        wait_until_usable(
            [client, access, gateway, router, server]
                .into_iter()
                .chain(nodes),
        )?;
        Ok(network)
    }

    /// The address of the server, with a target's port.
    #[must_use]
    pub fn server_address(family: Family, target: Target) -> SocketAddr {
        SocketAddr::new(address(family, 3, 2), target.port())
    }

    /// The gateway's address towards clients, with a target's port.
    #[must_use]
    pub fn gateway_address(family: Family, target: Target) -> SocketAddr {
        SocketAddr::new(address(family, 4, 1), target.port())
    }

    /// The gateway's address towards clients, with the port of an explicit proxy.
    #[must_use]
    pub fn explicit_address(family: Family) -> SocketAddr {
        SocketAddr::new(address(family, 4, 1), EXPLICIT_PORT)
    }

    /// The client's address.
    #[must_use]
    pub fn client_address(family: Family) -> IpAddr {
        address(family, 1, 2)
    }

    /// The hosts with proxies: the gateway, and the nodes of an overlay behind it.
    pub fn proxy_hosts(&self) -> impl Iterator<Item = &NetworkNamespace> {
        std::iter::once(&self.gateway).chain(&self.nodes)
    }

    /// The address at which a node of [`NODES`] takes hops, and the one from which it sends hops to the next node.
    #[must_use]
    pub fn node_addresses(index: u8) -> (IpAddr, IpAddr) {
        let link = FIRST_NODE_LINK + index;
        (
            address(Family::V4, link, 2),
            address(Family::V4, link + 1, 1),
        )
    }

    /// The address from which the gateway sends hops.
    #[must_use]
    pub fn ingress_address() -> IpAddr {
        address(Family::V4, FIRST_NODE_LINK, 1)
    }

    /// The prefix in which the servers are.
    #[must_use]
    pub fn servers(family: Family) -> IpNet {
        link_prefix(family, 3)
    }

    /// Makes the router refuse or drop packets to this target.
    pub fn refuse(&self, target: Target) -> Result<(), Error> {
        let Some(verdict) = target.verdict() else {
            return Ok(());
        };
        self.filter(
            Place::Router,
            &format!("tcp dport {} {verdict}", target.port()),
        )
    }

    /// Adds a rule for packets that a router forwards.
    pub fn filter(&self, place: Place, rule: &str) -> Result<(), Error> {
        let ruleset = format!(
            "table inet path {{\nchain through {{\ntype filter hook forward priority 0\n{rule}\n}}\n}}\n"
        );
        Ok(self.place(place).apply_rules(&ruleset)?)
    }

    /// Removes all rules of a router.
    pub fn heal(&self, place: Place) -> Result<(), Error> {
        Ok((self.place(place)).apply_rules("delete table inet path\n")?)
    }

    /// Limits the size of packets that a router sends to either side. The router reports packets
    /// that are too large, as it would before a link with a smaller MTU.
    pub fn narrow(&self, place: Place, mtu: u32) -> Result<(), Error> {
        let (near, far) = match place {
            Place::Access => ((1, 2, "in"), (4, 1, "out")),
            Place::Router => ((2, 1, "in"), (3, 2, "out")),
        };
        let metrics = RouteMetrics {
            locked_mtu: Some(mtu),
            ..RouteMetrics::default()
        };
        let router = self.place(place);
        for family in [Family::V4, Family::V6] {
            for (number, last, interface) in [near, far] {
                let neighbour = address(family, number, last);
                router.add_route_with(neighbour, None::<IpAddr>, interface, &metrics)?;
            }
            // The same for routes to hosts beyond the gateway.
            let (end, gateway, interface) = match place {
                Place::Access => (address(family, 3, 2), address(family, 4, 1), "out"),
                Place::Router => (address(family, 1, 2), address(family, 2, 1), "in"),
            };
            router.add_route_with(end, Some(gateway), interface, &metrics)?;
        }
        Ok(())
    }

    /// Makes all hosts that end connections give up after seconds instead of minutes: one more SYN,
    /// three retransmissions, two keep-alive probes.
    pub fn give_up_early(&self) -> Result<(), Error> {
        for machine in [&self.client, &self.server]
            .into_iter()
            .chain(self.proxy_hosts())
        {
            for (name, value) in [
                ("tcp_syn_retries", "1"),
                ("tcp_retries2", "3"),
                ("tcp_keepalive_time", "1"),
                ("tcp_keepalive_intvl", "1"),
                ("tcp_keepalive_probes", "2"),
            ] {
                machine.set_parameter(&format!("net/ipv4/{name}"), value)?;
            }
        }
        Ok(())
    }

    /// The namespace of a router.
    #[must_use]
    pub const fn place(&self, place: Place) -> &NetworkNamespace {
        match place {
            Place::Access => &self.access,
            Place::Router => &self.router,
        }
    }
}

/// A namespace that forwards packets and sends ICMP errors without a rate limit.
fn host(name: &str) -> Result<NetworkNamespace, Error> {
    Ok(Node::router(name)
        .parameter("net/ipv4/icmp_ratelimit", "0")
        .parameter("net/ipv6/icmp/ratelimit", "0")
        .make()?)
}

/// Joins two hosts by a link: the namespace, the interface and the last part of the address at each end.
fn connect(
    number: u8,
    (from, name, host): (&NetworkNamespace, &str, u8),
    (to, peer, other): (&NetworkNamespace, &str, u8),
) -> Result<(), Error> {
    let from = End::numbered(from, name, number, host).link_address([2, 78, 0, 0, number, host]);
    let to = End::numbered(to, peer, number, other).link_address([2, 78, 0, 0, number, other]);
    Ok(Link::between(from, to).make()?)
}

/// All addresses of a link.
fn link_prefix(family: Family, link: u8) -> IpNet {
    let [four, six] = numbered(link, 0);
    match family {
        Family::V4 => four,
        Family::V6 => six,
    }
}

fn address(family: Family, link: u8, host: u8) -> IpAddr {
    let [four, six] = numbered(link, host);
    match family {
        Family::V4 => four.addr(),
        Family::V6 => six.addr(),
    }
}
