//! The network: client – access router – gateway – server. The link between router and gateway has
//! a rate.

use std::os::fd::OwnedFd;

use midspan_lab::emulator::{LinkEmulator, Setup};
use midspan_link::{Configuration, State};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::netlink::Netlink;
use midspan_linux::tun::Tun;
use midspan_testbed::network::{Configure, End, Link, Node, numbered};
use midspan_units::BitRate;

use crate::Failure;

/// Port of the server.
pub const PORT: u16 = 80;
/// The gateway's interface towards clients.
pub const CLIENT_SIDE: &str = "acc";
/// The access router's interface towards the gateway, where packets are captured.
pub const OUTER: &str = "outer";
/// MTU of the link to the client.
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
    /// Both versions.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The name in tables and records.
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

/// The host behind the access router.
pub enum Client {
    /// A network namespace, for the kernel's stack.
    Kernel(NetworkNamespace),
    /// A TUN device, for a stack in a program.
    Device(OwnedFd),
}

/// The network.
pub struct Network {
    /// The client.
    pub client: Client,
    /// The access router.
    pub access: NetworkNamespace,
    /// The gateway, on which Midspan runs.
    pub gateway: NetworkNamespace,
    /// The server.
    pub server: NetworkNamespace,
    _link: LinkEmulator,
    /// Keeps the far ends of the link's interfaces; must outlive the emulator.
    _emulator: NetworkNamespace,
}

impl Network {
    /// Builds the network. With `kernel`, the client is a network namespace with the kernel's TCP stack;
    /// otherwise it is a TUN device for the stack of a program. The link has `rate` from the gateway to the
    /// access router. The opposite direction has no rate limit, so the link does not change the spacing of
    /// ACKs.
    ///
    /// # Errors
    /// The process may not make namespaces, or `/dev/net/tun` is missing and `kernel` is false.
    pub fn build(kernel: bool, rate: BitRate) -> Result<Self, Failure> {
        let [access, gateway, server] =
            ["access", "gateway", "server"].map(|name| Node::router(name).make());
        let (access, gateway, server) = (access?, gateway?, server?);
        let client = if kernel {
            let client = Node::router("client").make()?;
            link((&client, "eth"), (&access, "inner"), 1)?;
            client.add_numbered_default_routes("eth", 1, 1)?;
            Client::Kernel(client)
        } else {
            Client::Device(device(&access)?)
        };
        let (narrow, emulator) = emulated(&access, &gateway, rate)?;
        access.add_numbered_default_routes(OUTER, 5, 1)?;
        for (clients, router) in numbered(1, 0).iter().zip(numbered(5, 2)) {
            gateway.add_route(clients, Some(router.addr()), CLIENT_SIDE)?;
        }
        link((&server, "eth"), (&gateway, "wan"), 3)?;
        server.add_numbered_default_routes("eth", 3, 1)?;
        Ok(Self {
            client,
            access,
            gateway,
            server,
            _link: narrow,
            _emulator: emulator,
        })
    }

    /// Makes the access router drop all fragments from now on.
    ///
    /// # Errors
    /// The kernel has no nftables.
    pub fn drop_fragments(&self) -> Result<(), Failure> {
        const DROP: &str = "table inet path {\n chain in {\n type filter hook prerouting priority \
            -450;\n ip frag-off & 0x3fff != 0 drop\n exthdr frag exists drop\n }\n}\n";
        Ok(self.access.apply_rules(DROP)?)
    }
}

/// Makes the access router's TUN device for a stack in a program.
fn device(access: &NetworkNamespace) -> Result<OwnedFd, Failure> {
    access.run(|| -> Result<OwnedFd, Failure> {
        const NAME: &str = "inner0";
        let tun = Tun::make("inner")?;
        let netlink = Netlink::open()?;
        netlink.set_mtu(NAME, MTU)?;
        for prefix in numbered(1, 1) {
            netlink.add_address(NAME, prefix)?;
        }
        Ok(tun.packets)
    })?
}

/// The link with a rate. Its interfaces have no offloads, so single segments pass it.
fn emulated(
    access: &NetworkNamespace,
    gateway: &NetworkNamespace,
    rate: BitRate,
) -> Result<(LinkEmulator, NetworkNamespace), Failure> {
    let emulator = Node::host("emulator").without_ipv6().make()?;
    for (namespace, name, tap, host) in [
        (access, OUTER, "first", 2),
        (gateway, CLIENT_SIDE, "second", 1),
    ] {
        Link::between(
            End::new(&emulator, tap),
            End::numbered(namespace, name, 5, host)
                .link_address(link_address(host))
                .without_offloads(),
        )
        .make()?;
        // Neighbours have each other's link-layer addresses from the start, so only IP packets are
        // on the link.
        let other = 3 - host;
        for neighbour in numbered(5, other) {
            namespace.add_neighbour(name, neighbour.addr(), link_address(other))?;
        }
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

/// Link-layer address of a host on the emulated link; a locally administered address.
const fn link_address(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 5, host]
}

/// Joins two namespaces, with the addresses 10.N.0.2 and 10.N.0.1 (fdN::2, fdN::1).
fn link(
    (far, far_name): (&NetworkNamespace, &str),
    (near, near_name): (&NetworkNamespace, &str),
    number: u8,
) -> Result<(), Failure> {
    let far = End::numbered(far, far_name, number, 2);
    let near = End::numbered(near, near_name, number, 1);
    Ok(Link::between(far, near).make()?)
}
