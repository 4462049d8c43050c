//! client – access router – gateway – server.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};
use midspan_linux::nftables;
use midspan_linux::tun::Tun;

use crate::Failure;

/// Port of the server.
pub const PORT: u16 = 80;
/// The gateway's interface towards clients.
pub const CLIENT_SIDE: &str = "acc";
/// The access router's interface towards the gateway, where packets are captured.
pub const OUTER: &str = "outer";
/// MTU of the last link.
const MTU: u32 = 1500;

/// Version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// For tables and records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }

    /// The client's address.
    #[must_use]
    pub const fn client(self) -> &'static str {
        match self {
            Self::Ipv4 => "10.1.0.2",
            Self::Ipv6 => "fd01::2",
        }
    }

    /// The server's address.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::Ipv4 => "10.3.0.2",
            Self::Ipv6 => "fd03::2",
        }
    }
}

/// What stands behind the access router.
pub enum Client {
    /// A network namespace: the kernel's stack.
    Kernel(NetworkNamespace),
    /// A TUN device for a stack in a program.
    Device(OwnedFd),
}

/// The network.
pub struct Network {
    /// What downloads.
    pub client: Client,
    /// The router before it.
    pub access: NetworkNamespace,
    /// Where Midspan runs.
    pub gateway: NetworkNamespace,
    /// What sends.
    pub server: NetworkNamespace,
}

impl Network {
    /// Builds it, for the kernel's stack or another.
    ///
    /// # Errors
    /// No right to make namespaces, or no `/dev/net/tun`.
    pub fn build(kernel: bool) -> Result<Self, Failure> {
        let [access, gateway, server] = ["access", "gateway", "server"].map(router);
        let (access, gateway, server) = (access?, gateway?, server?);
        let client = if kernel {
            let client = router("client")?;
            link(&client, "eth", &access, "inner", 1)?;
            route(&client, "0.0.0.0", 0, "10.1.0.1", "eth")?;
            route(&client, "::", 0, "fd01::1", "eth")?;
            Client::Kernel(client)
        } else {
            Client::Device(device(&access)?)
        };
        link(&access, OUTER, &gateway, CLIENT_SIDE, 5)?;
        route(&access, "0.0.0.0", 0, "10.5.0.1", OUTER)?;
        route(&access, "::", 0, "fd05::1", OUTER)?;
        route(&gateway, "10.1.0.0", 24, "10.5.0.2", CLIENT_SIDE)?;
        route(&gateway, "fd01::", 64, "fd05::2", CLIENT_SIDE)?;
        link(&server, "eth", &gateway, "wan", 3)?;
        route(&server, "0.0.0.0", 0, "10.3.0.1", "eth")?;
        route(&server, "::", 0, "fd03::1", "eth")?;
        Ok(Self {
            client,
            access,
            gateway,
            server,
        })
    }

    /// From now on no fragment passes the access router.
    ///
    /// # Errors
    /// The kernel has no nftables.
    pub fn drop_fragments(&self) -> Result<(), Failure> {
        const DROP: &str = "table inet path {\n chain in {\n type filter hook prerouting priority \
            -450;\n ip frag-off & 0x3fff != 0 drop\n exthdr frag exists drop\n }\n}\n";
        Ok(self.access.run(|| nftables::apply(DROP))??)
    }
}

/// A namespace that forwards, and whose addresses can be used at once.
fn router(name: &str) -> Result<NetworkNamespace, Failure> {
    let namespace = NetworkNamespace::new(name)?;
    for group in ["all", "default"] {
        namespace.set_parameter(&format!("net/ipv6/conf/{group}/accept_dad"), "0")?;
    }
    namespace.set_parameter("net/ipv4/ip_forward", "1")?;
    namespace.set_parameter("net/ipv6/conf/all/forwarding", "1")?;
    namespace.run(|| Netlink::open()?.set_up("lo"))??;
    Ok(namespace)
}

/// The access router's way to a program.
fn device(access: &NetworkNamespace) -> Result<OwnedFd, Failure> {
    access.run(|| -> Result<OwnedFd, Failure> {
        const NAME: &str = "inner0";
        let tun = Tun::make("inner")?;
        let netlink = Netlink::open()?;
        netlink.set_mtu(NAME, MTU)?;
        netlink.add_address(NAME, prefix("10.1.0.1", 24)?)?;
        netlink.add_address(NAME, prefix("fd01::1", 64)?)?;
        Ok(tun.packets)
    })?
}

/// Joins two namespaces, with the addresses 10.N.0.2 and 10.N.0.1 (fdN::2, fdN::1).
fn link(
    far: &NetworkNamespace,
    far_name: &'static str,
    near: &NetworkNamespace,
    near_name: &'static str,
    number: u8,
) -> Result<(), Failure> {
    let other = near.as_fd().try_clone_to_owned()?;
    far.run(move || -> Result<(), Failure> {
        let netlink = Netlink::open()?;
        netlink.add_veth(far_name, near_name)?;
        Ok(netlink.move_interface(near_name, other.as_fd())?)
    })??;
    for (namespace, name, host) in [(far, far_name, 2), (near, near_name, 1)] {
        namespace.run(move || -> Result<(), Failure> {
            let netlink = Netlink::open()?;
            netlink.add_address(name, prefix(&format!("10.{number}.0.{host}"), 24)?)?;
            netlink.add_address(name, prefix(&format!("fd0{number}::{host}"), 64)?)?;
            Ok(netlink.set_up(name)?)
        })??;
    }
    Ok(())
}

fn route(
    namespace: &NetworkNamespace,
    to: &str,
    length: u8,
    gateway: &str,
    interface: &'static str,
) -> Result<(), Failure> {
    let destination = prefix(to, length)?;
    let gateway: IpAddr = gateway.parse()?;
    namespace.run(move || {
        let metrics = RouteMetrics::default();
        Netlink::open()?.set_route(destination, Some(gateway), interface, &metrics)
    })??;
    Ok(())
}

fn prefix(address: &str, length: u8) -> Result<Prefix, Failure> {
    let address = address.parse()?;
    Ok(Prefix { address, length })
}
