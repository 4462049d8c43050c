//! The network of one run: five namespaces in a row, and what can go wrong on the way.
//!
//! ```text
//! client ── access ── gateway ── router ── server
//!                     (proxy)
//! ```
//!
//! A router on either side of the gateway, so that what they report or drop comes from a place
//! that is neither an end nor the proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, NetlinkError, Prefix, RouteMetrics};
use midspan_linux::nftables;

use crate::Error;

/// The protocol below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// As in names of cases: `ipv4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }
}

/// A port of the server, by what happens to connections to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Cases listen here.
    Open,
    /// Nobody ever listens here.
    Closed,
    /// The router reports: host unreachable.
    HostUnreachable,
    /// The router reports: no route.
    NetUnreachable,
    /// The router reports: port unreachable.
    PortUnreachable,
    /// The router reports: administratively prohibited.
    Prohibited,
    /// The router drops packets without a word.
    BlackHole,
}

impl Target {
    /// All of them; an explicit proxy listens for each.
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

    /// What the router does with packets to it.
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

/// Five namespaces in a row.
pub struct Network {
    /// Opens connections.
    pub client: NetworkNamespace,
    access: NetworkNamespace,
    /// Where proxies run.
    pub gateway: NetworkNamespace,
    router: NetworkNamespace,
    /// Accepts connections.
    pub server: NetworkNamespace,
}

/// Where a proxy on the gateway listens whose clients say where they want to go.
pub const EXPLICIT_PORT: u16 = 1080;

/// The gateway's interface towards clients.
pub const CLIENT_SIDE: &str = "acc";

/// An end of a link: its namespace, its interface's name, its host number.
type LinkEnd<'a> = (&'a NetworkNamespace, &'static str, u8);

impl Network {
    /// A fresh one, with nothing wrong on the way.
    pub fn new() -> Result<Self, Error> {
        let network = Self {
            client: host("client")?,
            access: host("access")?,
            gateway: host("gateway")?,
            router: host("router")?,
            server: host("server")?,
        };
        link(1, (&network.client, "eth", 2), (&network.access, "in", 1))?;
        link(
            4,
            (&network.access, "out", 2),
            (&network.gateway, CLIENT_SIDE, 1),
        )?;
        link(2, (&network.gateway, "wan", 1), (&network.router, "in", 2))?;
        link(3, (&network.router, "out", 1), (&network.server, "eth", 2))?;
        let everywhere = None;
        route(&network.client, everywhere, 1, 1, "eth")?;
        route(&network.access, everywhere, 4, 1, "out")?;
        route(&network.gateway, everywhere, 2, 2, "wan")?;
        route(&network.gateway, Some(1), 4, 2, CLIENT_SIDE)?;
        route(&network.router, everywhere, 2, 1, "in")?;
        route(&network.server, everywhere, 3, 1, "eth")?;
        for host in [
            &network.client,
            &network.access,
            &network.gateway,
            &network.router,
            &network.server,
        ] {
            wait_until_usable(host)?;
        }
        Ok(network)
    }

    /// The server's address of a target.
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

    /// Lets the router refuse or drop packets to this target.
    pub fn refuse(&self, target: Target) -> Result<(), Error> {
        let Some(verdict) = target.verdict() else {
            return Ok(());
        };
        self.filter(
            Place::Router,
            &format!("tcp dport {} {verdict}", target.port()),
        )
    }

    /// Adds a rule to what a router forwards.
    pub fn filter(&self, place: Place, rule: &str) -> Result<(), Error> {
        let ruleset = format!(
            "table inet path {{\nchain through {{\ntype filter hook forward priority 0\n{rule}\n}}\n}}\n"
        );
        self.place(place).run(move || nftables::apply(&ruleset))??;
        Ok(())
    }

    /// Takes all rules of a router away.
    pub fn heal(&self, place: Place) -> Result<(), Error> {
        (self.place(place)).run(|| nftables::apply("delete table inet path\n"))??;
        Ok(())
    }

    /// Makes a router send nothing larger than this to either of its sides: it reports what does
    /// not fit, as before a narrower link.
    pub fn narrow(&self, place: Place, mtu: u32) -> Result<(), Error> {
        let (near, far) = match place {
            Place::Access => ((1, 2, "in"), (4, 1, "out")),
            Place::Router => ((2, 1, "in"), (3, 2, "out")),
        };
        for family in [Family::V4, Family::V6] {
            for (number, last, interface) in [near, far] {
                self.narrow_route(
                    place,
                    host_prefix(address(family, number, last)),
                    interface,
                    mtu,
                )?;
            }
            // Beyond the gateway, too.
            if place == Place::Access {
                let server = host_prefix(address(family, 3, 2));
                self.narrow_via(place, server, address(family, 4, 1), "out", mtu)?;
            } else {
                let client = host_prefix(address(family, 1, 2));
                self.narrow_via(place, client, address(family, 2, 1), "in", mtu)?;
            }
        }
        Ok(())
    }

    fn narrow_route(
        &self,
        place: Place,
        to: Prefix,
        interface: &'static str,
        mtu: u32,
    ) -> Result<(), Error> {
        let metrics = narrow(mtu);
        self.place(place)
            .run(move || Netlink::open()?.set_route(to, None, interface, &metrics))??;
        Ok(())
    }

    fn narrow_via(
        &self,
        place: Place,
        to: Prefix,
        gateway: IpAddr,
        interface: &'static str,
        mtu: u32,
    ) -> Result<(), Error> {
        let metrics = narrow(mtu);
        self.place(place)
            .run(move || Netlink::open()?.set_route(to, Some(gateway), interface, &metrics))??;
        Ok(())
    }

    /// Lets every machine that ends connections give up after seconds instead of minutes: one
    /// more SYN, three retransmissions, two keep-alive probes.
    pub fn give_up_early(&self) -> Result<(), Error> {
        for machine in [&self.client, &self.gateway, &self.server] {
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

fn narrow(mtu: u32) -> RouteMetrics {
    RouteMetrics {
        locked_mtu: Some(mtu),
        ..RouteMetrics::default()
    }
}

/// A namespace that forwards, reports without limit of rate, and has usable addresses at once.
fn host(name: &str) -> Result<NetworkNamespace, Error> {
    let host = NetworkNamespace::new(name)?;
    for (parameter, value) in [
        ("net/ipv6/conf/all/accept_dad", "0"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv4/icmp_ratelimit", "0"),
        ("net/ipv6/icmp/ratelimit", "0"),
    ] {
        host.set_parameter(parameter, value)?;
    }
    host.run(|| Netlink::open()?.set_up("lo"))??;
    Ok(host)
}

/// Joins two namespaces by link `number`, whose addresses are 10.NUMBER.0.HOST, fdNUMBER::HOST.
///
/// Both ends are up before they get addresses, and each knows the other's link-layer address, so
/// that nothing has to be found out first and only the case's packets are on the way.
fn link(number: u8, from: LinkEnd<'_>, to: LinkEnd<'_>) -> Result<(), Error> {
    let other = to.0.as_fd().try_clone_to_owned();
    let other = other.map_err(Error::system("copy a descriptor"))?;
    let (name, peer) = (from.1, to.1);
    from.0.run(move || -> Result<(), NetlinkError> {
        let netlink = Netlink::open()?;
        netlink.add_veth(name, peer)?;
        netlink.move_interface(peer, other.as_fd())
    })??;
    for (namespace, interface, host) in [from, to] {
        namespace.run(move || -> Result<(), NetlinkError> {
            let netlink = Netlink::open()?;
            netlink.set_link_address(interface, link_address(number, host))?;
            netlink.set_up(interface)
        })??;
    }
    for ((namespace, interface, host), (_, _, neighbour)) in [(from, to), (to, from)] {
        namespace.run(move || -> Result<(), NetlinkError> {
            let netlink = Netlink::open()?;
            for (family, length) in [(Family::V4, 24), (Family::V6, 64)] {
                let own = prefix(address(family, number, host), length);
                netlink.add_address(interface, own)?;
                let other = address(family, number, neighbour);
                netlink.add_neighbour(interface, other, link_address(number, neighbour))?;
            }
            Ok(())
        })??;
    }
    Ok(())
}

/// Waits until no IPv6 address is tentative any more: the kernel may take a second to see that
/// the other end of a link is up, and lets nobody use the address before.
fn wait_until_usable(host: &NetworkNamespace) -> Result<(), Error> {
    let usable = host.run(|| {
        let begin = Instant::now();
        loop {
            // Address, index, prefix, scope, flags, name: proc_net(5).
            let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6")?;
            let flags = text
                .lines()
                .filter_map(|line| line.split_whitespace().nth(4));
            let mut flags = flags.filter_map(|flags| u32::from_str_radix(flags, 16).ok());
            if !flags.any(|flags| flags & TENTATIVE != 0) || begin.elapsed() > USABLE_LIMIT {
                return Ok::<_, std::io::Error>(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    })?;
    usable.map_err(Error::system("read the addresses of a network namespace"))
}

/// `IFA_F_TENTATIVE` of `linux/if_addr.h`.
const TENTATIVE: u32 = 0x40;

/// Beyond this the next step says what is wrong.
const USABLE_LIMIT: Duration = Duration::from_secs(20);

/// A locally administered address.
const fn link_address(number: u8, host: u8) -> [u8; 6] {
    [2, 78, 0, 0, number, host]
}

/// A route of both families to link `to` (or to everywhere), by `host` on link `number`.
fn route(
    namespace: &NetworkNamespace,
    to: Option<u8>,
    number: u8,
    host: u8,
    interface: &'static str,
) -> Result<(), Error> {
    namespace.run(move || -> Result<(), NetlinkError> {
        let netlink = Netlink::open()?;
        for family in [Family::V4, Family::V6] {
            let destination = match (to, family) {
                (None, Family::V4) => prefix(Ipv4Addr::UNSPECIFIED.into(), 0),
                (None, Family::V6) => prefix(Ipv6Addr::UNSPECIFIED.into(), 0),
                (Some(link), Family::V4) => prefix(address(family, link, 0), 24),
                (Some(link), Family::V6) => prefix(address(family, link, 0), 64),
            };
            let gateway = address(family, number, host);
            netlink.set_route(
                destination,
                Some(gateway),
                interface,
                &RouteMetrics::default(),
            )?;
        }
        Ok(())
    })??;
    Ok(())
}

const fn prefix(address: IpAddr, length: u8) -> Prefix {
    Prefix { address, length }
}

fn host_prefix(address: IpAddr) -> Prefix {
    prefix(address, if address.is_ipv4() { 32 } else { 128 })
}

fn address(family: Family, link: u8, host: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, link, 0, host).into(),
        Family::V6 => Ipv6Addr::new(0xfd00 + u16::from(link), 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}
