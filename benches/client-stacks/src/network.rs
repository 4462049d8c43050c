//! client – access router – gateway – server; between router and gateway a link with a rate.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use midspan_lab::emulator::{LinkEmulator, Setup};
use midspan_link::{Configuration, State};
use midspan_linux::ethtool;
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::{Netlink, Prefix, RouteMetrics};
use midspan_linux::nftables;
use midspan_linux::tun::Tun;
use midspan_units::BitRate;

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
    _link: LinkEmulator,
    /// Keeps the far ends of the link's interfaces; must outlive the emulator.
    _emulator: NetworkNamespace,
}

impl Network {
    /// Builds it, for the kernel's stack or another, with `rate` from the gateway to the access
    /// router; the way back has no limit, so that each ACK arrives as it was sent.
    ///
    /// # Errors
    /// No right to make namespaces, or no `/dev/net/tun`.
    pub fn build(kernel: bool, rate: BitRate) -> Result<Self, Failure> {
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
        let (narrow, emulator) = emulated(&access, &gateway, rate)?;
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
            _link: narrow,
            _emulator: emulator,
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

/// The link with a rate. Its interfaces have no offloads: what passes is segments, not bundles.
fn emulated(
    access: &NetworkNamespace,
    gateway: &NetworkNamespace,
    rate: BitRate,
) -> Result<(LinkEmulator, NetworkNamespace), Failure> {
    let emulator = NetworkNamespace::new("emulator")?;
    for group in ["all", "default"] {
        emulator.set_parameter(&format!("net/ipv6/conf/{group}/disable_ipv6"), "1")?;
    }
    for (namespace, name, tap, host) in [
        (access, OUTER, "first", 2),
        (gateway, CLIENT_SIDE, "second", 1),
    ] {
        let other = namespace.as_fd().try_clone_to_owned()?;
        emulator.run(move || -> Result<(), Failure> {
            let netlink = Netlink::open()?;
            netlink.add_veth(tap, name)?;
            netlink.move_interface(name, other.as_fd())?;
            Ok(netlink.set_up(tap)?)
        })??;
        namespace.run(move || Netlink::open()?.set_link_address(name, link_address(host)))??;
        interface(namespace, name, 5, host)?;
        namespace.run(move || -> Result<(), Failure> {
            let netlink = Netlink::open()?;
            // The link carries nothing but IP: neighbours know each other from the start.
            let other = 3 - host;
            for address in [format!("10.5.0.{other}"), format!("fd05::{other}")] {
                netlink.add_neighbour(name, address.parse()?, link_address(other))?;
            }
            Ok(ethtool::switch_off_offloads(name)?)
        })??;
    }
    let down = Configuration {
        state: State {
            rate: Some(rate),
            ..State::default()
        },
        ..Configuration::default()
    };
    let setup = Setup {
        name: "access".to_owned(),
        up: Configuration::default(),
        down,
        seed: 0,
    };
    let started = LinkEmulator::start(&emulator, "first", "second", setup)?;
    Ok((started, emulator))
}

/// Link-layer address of a host on the emulated link; local, not of a manufacturer.
const fn link_address(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 5, host]
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
    interface(far, far_name, number, 2)?;
    interface(near, near_name, number, 1)
}

/// Gives an interface its addresses and sets it up.
fn interface(
    namespace: &NetworkNamespace,
    name: &'static str,
    number: u8,
    host: u8,
) -> Result<(), Failure> {
    namespace.run(move || -> Result<(), Failure> {
        let netlink = Netlink::open()?;
        netlink.add_address(name, prefix(&format!("10.{number}.0.{host}"), 24)?)?;
        netlink.add_address(name, prefix(&format!("fd0{number}::{host}"), 64)?)?;
        Ok(netlink.set_up(name)?)
    })?
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
