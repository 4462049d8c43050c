//! The addresses of a probe: addresses of clients and servers that are not in use.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::packets::Addresses;
use crate::interception::plan::Selection;
use ipnet::IpNet;

/// Servers to which no connection is opened: one of a documentation range, and an ordinary one for
/// firewalls that refuse such ranges.
pub const SERVERS: [(IpAddr, IpAddr); 2] = [
    (
        IpAddr::V4(Ipv4Addr::new(198, 51, 100, 77)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x4d, 0, 0, 0, 0, 0x77)),
    ),
    (
        IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9)),
        IpAddr::V6(Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe)),
    ),
];

/// Clients for an interface without addresses (RFC 5737, RFC 3849).
const CLIENTS: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x4d, 1, 0, 0, 0, 0x77)),
);

/// Addresses that clients at the interfaces of a listener could have, of both families.
pub fn clients(selection: &Selection, addresses: &[(String, IpNet)]) -> (IpAddr, IpAddr) {
    let is_named = |interface: &str| {
        selection
            .interfaces
            .iter()
            .any(|name| match name.strip_suffix('*') {
                Some(start) => interface.starts_with(start),
                None => interface == name,
            })
    };
    let find = |ipv4: bool| {
        addresses
            .iter()
            .filter(|(interface, prefix)| is_named(interface) && prefix.addr().is_ipv4() == ipv4)
            .find_map(|(_, prefix)| neighbour(*prefix))
    };
    (
        find(true).unwrap_or(CLIENTS.0),
        find(false).unwrap_or(CLIENTS.1),
    )
}

/// Another address of the same network; `None` for a network of one address, and for link-local
/// addresses.
pub fn neighbour(prefix: IpNet) -> Option<IpAddr> {
    match prefix.addr() {
        IpAddr::V4(own) => {
            let hosts = u32::MAX.checked_shr(prefix.prefix_len().into())?;
            let own = u32::from(own);
            [2, 3, 1, 4]
                .into_iter()
                .map(|change| own ^ change)
                .find(|other| {
                    let host = other & hosts;
                    host != 0 && host != hosts && (other ^ own) & !hosts == 0
                })
                .map(|other| Ipv4Addr::from(other).into())
        }
        IpAddr::V6(own) if own.is_unicast_link_local() => None,
        IpAddr::V6(own) => {
            let other = Ipv6Addr::from(u128::from(own) ^ 0x7700);
            (prefix.prefix_len() <= 112).then_some(other.into())
        }
    }
}

/// Addresses with a random port and sequence number, so that they hardly ever repeat those of an
/// earlier probe.
pub fn fresh(client: IpAddr, server: IpAddr, server_port: u16) -> Addresses {
    let chance = RandomState::new().hash_one(server_port).to_le_bytes();
    let [a, b, c, d, e, f, ..] = chance;
    Addresses {
        client,
        client_port: 0x8000 | u16::from_le_bytes([a, b]) >> 1,
        server,
        server_port,
        sequence: u32::from_le_bytes([c, d, e, f]),
    }
}
