//! A client, a gateway and a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, NetlinkError, Prefix, RouteMetrics};

use crate::Failure;

/// Addresses of the server: so many that ports in TIME_WAIT do not run out.
pub const ADDRESSES: u8 = 16;
/// The first port of the proxies that are called by their own address; each leads to one address
/// of the server.
const FIRST_PROXY_PORT: u16 = 3000;

/// The three namespaces.
pub struct Network {
    /// Where the load comes from.
    pub client: NetworkNamespace,
    /// Where the peer stands.
    pub gateway: NetworkNamespace,
    /// Where it goes.
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

/// Where a proxy listens for the server's address of this number; `service` tells services apart.
pub fn proxy(index: usize, service: u16) -> SocketAddr {
    let index = (index % usize::from(ADDRESSES)) as u16;
    let port = FIRST_PROXY_PORT + service * u16::from(ADDRESSES) + index;
    (host(1, 1), port).into()
}

impl Network {
    /// Builds the network.
    pub fn build() -> Result<Self, Failure> {
        let this = Self {
            client: NetworkNamespace::new("client")?,
            gateway: NetworkNamespace::new("gateway")?,
            server: NetworkNamespace::new("server")?,
        };
        for namespace in [&this.client, &this.gateway, &this.server] {
            namespace.set_parameter("net/ipv4/ip_forward", "1")?;
            namespace.set_parameter("net/ipv4/ip_local_port_range", "2048 65000")?;
            namespace.set_parameter("net/ipv4/tcp_tw_reuse", "1")?;
            namespace.run(|| Netlink::open()?.set_up("lo"))??;
        }
        link(&this.client, &this.gateway, CLIENT_SIDE, 1)?;
        link(&this.server, &this.gateway, "srv", 2)?;
        for (namespace, subnet) in [(&this.client, 1), (&this.server, 2)] {
            let everything = Prefix {
                address: Ipv4Addr::UNSPECIFIED.into(),
                length: 0,
            };
            let gateway = Some(host(subnet, 1).into());
            namespace.run(move || {
                let metrics = RouteMetrics::default();
                Netlink::open()?.set_route(everything, gateway, "eth", &metrics)
            })??;
        }
        Ok(this)
    }
}

/// Joins `far`, which gets many addresses, to the gateway, which gets the first.
fn link(
    far: &NetworkNamespace,
    gateway: &NetworkNamespace,
    name: &'static str,
    subnet: u8,
) -> Result<(), Failure> {
    let near = gateway.as_fd().try_clone_to_owned()?;
    far.run(move || -> Result<(), NetlinkError> {
        let netlink = Netlink::open()?;
        netlink.add_veth("eth", name)?;
        netlink.move_interface(name, near.as_fd())?;
        for last in 2..2 + ADDRESSES {
            netlink.add_address("eth", prefix(host(subnet, last)))?;
        }
        netlink.set_up("eth")
    })??;
    gateway.run(move || -> Result<(), NetlinkError> {
        let netlink = Netlink::open()?;
        netlink.add_address(name, prefix(host(subnet, 1)))?;
        netlink.set_up(name)
    })??;
    Ok(())
}

fn prefix(address: Ipv4Addr) -> Prefix {
    Prefix {
        address: address.into(),
        length: 24,
    }
}
