//! Interfaces, addresses, routes and neighbours, by netlink (rtnetlink(7)).
//!
//! A [`Netlink`] acts on the network namespace of the thread that opened it. All changes need
//! `CAP_NET_ADMIN` there.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::neighbour::NeighbourState;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::io::Errno;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::route_socket::RouteSocket;

/// A netlink operation failed.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// The socket could not be opened.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] std::io::Error),
    /// The kernel refused a request.
    #[error("cannot {action}: {source}")]
    Request {
        /// What the call was for.
        action: String,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// The kernel did not return a list.
    #[error("cannot read {what}: {source}")]
    Read {
        /// The name of the list.
        what: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// There is no interface with this name.
    #[error("no interface named \"{0}\" in this network namespace")]
    NoInterface(String),
    /// The parts of a request do not fit together.
    #[error("cannot {action}: {reason}")]
    Invalid {
        /// What the request was for.
        action: String,
        /// Why the parts do not fit.
        reason: String,
    },
}

impl NetlinkError {
    /// Whether the kernel's answer was this error number.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        matches!(
            self,
            Self::Request { source: rtnetlink::Error::NetlinkError(message), .. }
                if message.raw_code() == -errno.raw_os_error()
        )
    }
}

/// A netlink connection with its own small runtime, for callers that are not asynchronous.
pub struct Netlink {
    runtime: Runtime,
    handle: Handle,
    lists: RouteSocket,
}

/// A text is no address with the length of its prefix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is no address with the length of its prefix, such as 10.1.0.2/24 or fd01::2/64")]
pub struct PrefixError(String);

/// Reads an address with the length of its prefix, such as `10.1.0.2/24`; without a length, the
/// address alone. The address keeps the bits behind the length.
///
/// # Errors
/// The text is none.
pub fn prefix(text: &str) -> Result<IpNet, PrefixError> {
    let error = || PrefixError(text.to_owned());
    let Some((address, length)) = text.split_once('/') else {
        let address = text.parse::<IpAddr>().map_err(|_| error())?;
        return Ok(address.into());
    };
    let address = address.parse().map_err(|_| error())?;
    let length = length.parse().map_err(|_| error())?;
    IpNet::new(address, length).map_err(|_| error())
}

/// Settings of a route for the TCP connections that use it. `None` leaves the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMetrics {
    /// Initial congestion window in segments.
    pub initial_window: Option<u32>,
    /// Congestion control of connections that do not choose their own.
    pub congestion_control: Option<String>,
    /// Size of the largest packet on this route, whatever the interface's MTU or path MTU discovery
    /// is. Larger packets are fragmented or refused, as before a link with a smaller MTU.
    pub locked_mtu: Option<u32>,
}

/// `RTAX_LOCK` is a set of metrics, of which this is `RTAX_MTU` (rtnetlink(7)).
const LOCK_MTU: u32 = 1 << 2;

impl RouteMetrics {
    fn attributes(&self) -> Vec<RouteMetric> {
        let window = self.initial_window.map(RouteMetric::InitCwnd);
        let algorithm = self.congestion_control.clone().map(RouteMetric::CcAlgo);
        let mtu = self.locked_mtu.map(RouteMetric::Mtu);
        let lock = self.locked_mtu.map(|_| RouteMetric::Lock(LOCK_MTU));
        let metrics = [window, algorithm, mtu, lock];
        metrics.into_iter().flatten().collect()
    }
}

impl Netlink {
    /// Opens a connection to the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .map_err(NetlinkError::Open)?;
        let handle = {
            let _guard = runtime.enter();
            let (connection, handle, _messages) =
                rtnetlink::new_connection().map_err(NetlinkError::Open)?;
            runtime.spawn(connection);
            handle
        };
        let lists = RouteSocket::open().map_err(NetlinkError::Open)?;
        Ok(Self {
            runtime,
            handle,
            lists,
        })
    }

    /// A socket to read parts of lists.
    pub(crate) const fn lists(&self) -> &RouteSocket {
        &self.lists
    }

    /// Runs a request made from [`rtnetlink::Handle`]; `action` completes "cannot …".
    pub fn request<T>(
        &self,
        action: impl FnOnce() -> String,
        request: impl AsyncFnOnce(&Handle) -> Result<T, rtnetlink::Error>,
    ) -> Result<T, NetlinkError> {
        self.runtime
            .block_on(request(&self.handle))
            .map_err(|source| NetlinkError::Request {
                action: action(),
                source,
            })
    }

    /// Makes a pair of virtual Ethernet interfaces (veth(4)): `name` here, `peer` here as well.
    pub fn add_veth(&self, name: &str, peer: &str) -> Result<(), NetlinkError> {
        let message = LinkVeth::new(name, peer).build();
        self.request(
            || format!("make the veth pair {name}, {peer}"),
            async |handle| handle.link().add(message).execute().await,
        )
    }

    /// Makes a pair of virtual Ethernet interfaces (veth(4)): `name` here, `peer` in another network
    /// namespace. The name `peer` need not be free here.
    pub fn add_veth_into(
        &self,
        name: &str,
        peer: &str,
        namespace: BorrowedFd<'_>,
    ) -> Result<(), NetlinkError> {
        let far = LinkUnspec::new_with_name(peer)
            .setns_by_fd(namespace.as_raw_fd())
            .build();
        let message = LinkVeth::new(name, peer)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far)))
            .build();
        self.request(
            || format!("make the veth pair {name}, {peer}"),
            async |handle| handle.link().add(message).execute().await,
        )
    }

    /// Sets an interface's MTU in bytes.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_name(name).mtu(mtu).build();
        self.request(
            || format!("set the MTU of interface {name}"),
            async |handle| handle.link().set(message).execute().await,
        )
    }

    /// Sets an interface up.
    pub fn set_up(&self, name: &str) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_name(name).up().build();
        self.request(
            || format!("set interface {name} up"),
            async |handle| handle.link().set(message).execute().await,
        )
    }

    /// Gives an interface an address. An IPv6 address can be used at once: there is no duplicate address detection,
    /// during which the address would be tentative.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses the address.
    pub fn add_address(&self, interface: &str, prefix: IpNet) -> Result<(), NetlinkError> {
        let index = interface_index(interface)?;
        self.request(
            || format!("give {interface} the address {}", prefix.addr()),
            async |handle| {
                let mut request = handle
                    .address()
                    .add(index, prefix.addr(), prefix.prefix_len());
                if prefix.addr().is_ipv6() {
                    request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
                }
                request.execute().await
            },
        )
    }

    /// All addresses of this network namespace, with the names of their interfaces.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn addresses(&self) -> Result<Vec<(String, IpNet)>, NetlinkError> {
        let messages: Vec<AddressMessage> = self.request(
            || "list the addresses".to_owned(),
            async |handle| handle.address().get().execute().try_collect().await,
        )?;
        let socket = any_socket()?;
        let named = messages.iter().filter_map(|message| {
            // For a peer-to-peer address, `Local` is this machine's address.
            let attributes = &message.attributes;
            let local = attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let address = local.or_else(|| {
                attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(address) => Some(*address),
                    _ => None,
                })
            })?;
            let name = rustix::net::netdevice::index_to_name(&socket, message.header.index).ok()?;
            let length = message.header.prefix_len;
            Some((name, IpNet::new(address, length).ok()?))
        });
        Ok(named.collect())
    }

    /// Adds a route. Without a gateway the destination is attached to the interface itself.
    /// Replaces a route to the same destination.
    pub fn set_route(
        &self,
        destination: IpNet,
        gateway: Option<IpAddr>,
        interface: &str,
        metrics: &RouteMetrics,
    ) -> Result<(), NetlinkError> {
        let action = || format!("route {destination}");
        let index = interface_index(interface)?;
        let mut message =
            route_message(destination, gateway).map_err(|reason| NetlinkError::Invalid {
                action: action(),
                reason,
            })?;
        message.attributes.push(RouteAttribute::Oif(index));
        let metrics = metrics.attributes();
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        self.request(action, async |handle| {
            handle.route().add(message).replace().execute().await
        })
    }

    /// The name of the interface through which packets to an address leave; `lo` for addresses of
    /// this machine. Does not apply routing rules with marks, ports or source addresses.
    pub fn interface_towards(&self, address: IpAddr) -> Result<String, NetlinkError> {
        let action = || format!("find the route to {address}");
        let invalid = |reason: String| NetlinkError::Invalid {
            action: action(),
            reason,
        };
        let length = if address.is_ipv4() { 32 } else { 128 };
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, length)
            .map_err(|error| invalid(error.to_string()))?
            .build();
        let route = self.request(action, async |handle| {
            let mut routes = std::pin::pin!(handle.route().get(message).execute());
            routes.try_next().await
        })?;
        let index = route.and_then(|route| {
            route
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                })
        });
        let index = index.ok_or_else(|| invalid("there is no route".to_owned()))?;
        interface_name(index).map_err(|error| invalid(error.to_string()))
    }

    /// Sets the link-layer address of a neighbour, so that the kernel never has to resolve it.
    pub fn add_neighbour(
        &self,
        interface: &str,
        address: IpAddr,
        link_address: [u8; 6],
    ) -> Result<(), NetlinkError> {
        let index = interface_index(interface)?;
        self.request(
            || format!("set the link-layer address of neighbour {address}"),
            async |handle| {
                handle
                    .neighbours()
                    .add(index, address)
                    .link_layer_address(&link_address)
                    .state(NeighbourState::Permanent)
                    .replace()
                    .execute()
                    .await
            },
        )
    }

    /// Sets an interface's own link-layer address.
    pub fn set_link_address(
        &self,
        interface: &str,
        link_address: [u8; 6],
    ) -> Result<(), NetlinkError> {
        let message = LinkUnspec::new_with_name(interface)
            .address(link_address.to_vec())
            .build();
        self.request(
            || format!("set the link-layer address of {interface}"),
            async |handle| handle.link().set(message).execute().await,
        )
    }
}

/// The name of an interface in the calling thread's network namespace.
fn interface_name(index: u32) -> std::io::Result<String> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    Ok(rustix::net::netdevice::index_to_name(socket, index)?)
}

/// The index of an interface in the calling thread's network namespace.
pub fn interface_index(name: &str) -> Result<u32, NetlinkError> {
    rustix::net::netdevice::name_to_index(any_socket()?, name)
        .map_err(|_| NetlinkError::NoInterface(name.to_owned()))
}

/// Any socket can be used to query the interfaces of this thread's namespace.
fn any_socket() -> Result<OwnedFd, NetlinkError> {
    rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )
    .map_err(|error| NetlinkError::Open(error.into()))
}

fn route_message(destination: IpNet, gateway: Option<IpAddr>) -> Result<RouteMessage, String> {
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(destination.addr(), destination.prefix_len())
        .map_err(|error| error.to_string())?;
    let builder = match gateway {
        Some(gateway) => builder
            .gateway(gateway)
            .map_err(|error| error.to_string())?,
        None => builder.scope(rtnetlink::packet_route::route::RouteScope::Link),
    };
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read() {
        let read = |text: &str| prefix(text).ok().map(|prefix| prefix.prefix_len());
        assert_eq!(read("10.1.0.2/24"), Some(24));
        assert_eq!(read("fd01::2/64"), Some(64));
        assert_eq!(read("0.0.0.0/0"), Some(0));
        assert_eq!(read("10.1.0.2"), Some(32));
        assert_eq!(read("fd01::2"), Some(128));
        for wrong in [
            "",
            "/",
            "10.1.0.2/",
            "10.1.0.2/33",
            "fd01::2/129",
            "10.1/8",
            "x/8",
            "::/-1",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
