//! A client, a gateway and a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net};
use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::network::{Configure, End, Link, Node};

use crate::Failure;

/// Number of the server's addresses. With this many, ports in TIME_WAIT do not run out.
pub const ADDRESSES: u8 = 16;
/// The first port of proxies to whose own address clients connect. Each port leads to one address
/// of the server.
const FIRST_PROXY_PORT: u16 = 3000;

/// The three namespaces.
pub struct Network {
    /// The namespace of the clients.
    pub client: NetworkNamespace,
    /// The namespace in which the peer runs.
    pub gateway: NetworkNamespace,
    /// The namespace of the server.
    pub server: NetworkNamespace,
}

/// The gateway's interface towards the client.
pub const CLIENT_SIDE: &str = "acc";

fn host(subnet: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, subnet, 0, last)
}

/// An address of the server, at `port`.
pub fn server(index: usize, port: u16) -> SocketAddr {
    (host(2, 2 + (index % usize::from(ADDRESSES)) as u8), port).into()
}

/// The address at which a proxy listens for a given address and service of the server.
pub fn proxy(index: usize, service: u16) -> SocketAddr {
    let index = (index % usize::from(ADDRESSES)) as u16;
    let port = FIRST_PROXY_PORT + service * u16::from(ADDRESSES) + index;
    (host(1, 1), port).into()
}

impl Network {
    /// Builds the network, with this congestion control for all hosts.
    pub fn build(congestion_control: &str) -> Result<Self, Failure> {
        let node = |name| {
            Node::router(name)
                .parameter("net/ipv4/ip_local_port_range", "2048 65000")
                .parameter("net/ipv4/tcp_tw_reuse", "1")
                .parameter("net/ipv4/tcp_congestion_control", congestion_control)
                .make()
        };
        let this = Self {
            client: node("client")?,
            gateway: node("gateway")?,
            server: node("server")?,
        };
        link(&this.client, &this.gateway, CLIENT_SIDE, 1)?;
        link(&this.server, &this.gateway, "srv", 2)?;
        Ok(this)
    }
}

/// Joins a host, which gets several addresses, to the gateway, which gets the first address.
fn link(
    far: &NetworkNamespace,
    gateway: &NetworkNamespace,
    name: &str,
    subnet: u8,
) -> Result<(), Failure> {
    let addresses = (2..2 + ADDRESSES).map(|last| prefix(host(subnet, last)));
    let end = addresses.fold(End::new(far, "eth"), End::address);
    let near = End::new(gateway, name).address(prefix(host(subnet, 1)));
    Link::between(end, near).make()?;
    let gateway = IpAddr::from(host(subnet, 1));
    Ok(far.add_route("0.0.0.0/0", Some(gateway), "eth")?)
}

fn prefix(address: Ipv4Addr) -> IpNet {
    Ipv4Net::new_assert(address, 24).into()
}
