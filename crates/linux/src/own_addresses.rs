//! Which addresses belong to this machine: a packet that this machine sends to such an address comes back to
//! it (`ip-address(8)`, `ip-route(8)`).
//!
//! The list contains the addresses of all interfaces, also of those in a VRF. It contains the destinations of
//! the routes of the types `local`, `broadcast`, `anycast` and `multicast` in the table `local`: primary and
//! secondary addresses, and whole prefixes (`ip route add local 192.0.2.0/24 dev lo`). And it contains the
//! destinations of `local` routes in other tables: in each table to which a rule leads that has no condition
//! on the mark or on an interface of arrival other than `lo`, and in the tables of all VRFs, to which a route
//! from outside may lead. Rules for marked packets are left out, because they belong to transparent proxies,
//! whose tables have every address as `local`. In doubt an address counts as this machine's: a rule with
//! other conditions (a source, a user) counts too.
//!
//! Binding or connecting a socket does not show which addresses are this machine's:
//! `net.ipv4.ip_nonlocal_bind` permits every bind, and towards a secondary address the kernel sends from the
//! primary address.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rtnetlink::packet_route::AddressFamily;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketFlags, SocketType};

use socket2::SockRef;

use crate::nfnetlink::attributes;
use crate::route_socket::{List, RouteSocket};
use crate::route_watch::{TYPE, event_filter};

/// Most addresses of interfaces and routes that are stored.
pub const LIMIT: usize = 200_000;

/// `RT_TABLE_LOCAL`.
const LOCAL_TABLE: u32 = 255;
/// `RTN_UNICAST` and the types of routes whose packets end at this machine (<linux/rtnetlink.h>).
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const BROADCAST: u8 = 3;
const ANYCAST: u8 = 4;
const MULTICAST: u8 = 5;
/// `RTA_DST`, `RTA_OIF`.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
/// `IFA_ADDRESS`, `IFA_LOCAL`.
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
/// `FRA_IIFNAME`, `FRA_FWMARK`, `FRA_TABLE`, `FRA_L3MDEV`.
const RULE_INTERFACE: u16 = 3;
const RULE_MARK: u16 = 10;
const RULE_TABLE: u16 = 15;
const RULE_VRF: u16 = 19;
/// `FR_ACT_TO_TBL`.
const TO_TABLE: u8 = 1;
/// `IFLA_IFNAME`, `IFLA_LINKINFO`, `IFLA_INFO_KIND`, `IFLA_INFO_DATA`, `IFLA_VRF_TABLE`.
const LINK_NAME: u16 = 3;
const LINK_INFORMATION: u16 = 18;
const LINK_KIND: u16 = 1;
const LINK_DATA: u16 = 2;
const VRF_TABLE: u16 = 1;

/// A prefix whose addresses belong to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnPrefix {
    /// The first address.
    pub address: IpAddr,
    /// Length of the prefix in bits, at most 32 or 128.
    pub length: u8,
    /// For link-local addresses: the index of the only interface at which they belong to this
    /// machine.
    pub interface: Option<u32>,
}

/// At which interface a prefix belongs to this machine; `None` means everywhere.
type Interfaces = BTreeSet<Option<u32>>;

/// All addresses of this machine, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnAddresses {
    prefixes: BTreeSet<OwnPrefix>,
    /// By family and length, the first bits of prefixes, and at which interfaces.
    bits: BTreeMap<(bool, u8), BTreeMap<u128, Interfaces>>,
}

impl FromIterator<OwnPrefix> for OwnAddresses {
    fn from_iter<T: IntoIterator<Item = OwnPrefix>>(prefixes: T) -> Self {
        let mut own = Self::default();
        for prefix in prefixes {
            let key = (prefix.address.is_ipv4(), prefix.length);
            let first = first_bits(prefix.address, prefix.length);
            let at = own.bits.entry(key).or_default().entry(first).or_default();
            at.insert(prefix.interface);
            own.prefixes.insert(prefix);
        }
        own
    }
}

impl OwnAddresses {
    /// Reads the addresses of the calling thread's network namespace. Needs no capability.
    ///
    /// # Errors
    /// Those of netlink; `OutOfMemory` if there are more than [`LIMIT`].
    pub fn read() -> io::Result<Self> {
        let socket = &RouteSocket::open()?;
        let mut found = addresses(socket)?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            found.extend(routes(socket, family, LOCAL_TABLE, 0)?);
            for table in tables(socket, family)? {
                if table != LOCAL_TABLE {
                    found.extend(routes(socket, family, table, LOCAL)?);
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Whether a connection to this address would come back to this machine. A link-local address
    /// without a scope may be on any link.
    #[must_use]
    pub fn contains(&self, address: SocketAddr) -> bool {
        let scope = match address {
            SocketAddr::V6(six) if six.scope_id() != 0 => Some(six.scope_id()),
            _ => None,
        };
        let address = address.ip().to_canonical();
        // The kernel treats the unspecified address as this machine.
        address.is_loopback()
            || address.is_unspecified()
            || (self.bits.iter()).any(|((is_ipv4, length), prefixes)| {
                *is_ipv4 == address.is_ipv4()
                    && prefixes
                        .get(&first_bits(address, *length))
                        .is_some_and(|at| {
                            scope.is_none() || at.contains(&None) || at.contains(&scope)
                        })
            })
    }

    /// All prefixes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = &OwnPrefix> {
        self.prefixes.iter()
    }
}

fn first_bits(address: IpAddr, length: u8) -> u128 {
    let (bits, width) = match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    };
    let rest = width - u32::from(length).min(width);
    bits.checked_shr(rest).unwrap_or(0)
}

/// The addresses of all interfaces.
fn addresses(socket: &RouteSocket) -> io::Result<Vec<OwnPrefix>> {
    list(socket, List::Addresses, address_in)
}

/// The address in a message of a list of addresses, whatever its interface. The outer `None` is for
/// a message that cannot be understood.
pub(crate) fn address_in(content: &[u8]) -> Option<Option<OwnPrefix>> {
    // struct ifaddrmsg: family, length of the prefix, flags, scope, index of the interface.
    let (&family, interface) = (content.first()?, number(content, 4)?);
    let parts = content.get(8..)?;
    if ![AddressFamily::Inet, AddressFamily::Inet6]
        .map(u8::from)
        .contains(&family)
    {
        return Some(None);
    }
    // For a peer-to-peer address, `IFA_LOCAL` is this machine's address.
    let address = find(parts, LOCAL_ADDRESS).or_else(|| find(parts, ADDRESS))?;
    let address = address_of(address)?;
    let length = if address.is_ipv4() { 32 } else { 128 };
    Some(Some(own(address, length, Some(interface))))
}

/// The routes of a table that end at this machine; only those of this type, unless it is 0.
fn routes(
    socket: &RouteSocket,
    family: AddressFamily,
    table: u32,
    kind: u8,
) -> io::Result<Vec<OwnPrefix>> {
    let routes = List::Routes {
        family,
        table: Some(table),
        kind,
        protocol: 0,
    };
    list(socket, routes, |content| local_route_in(family, content))
}

/// Reads one message of the kernel's list of routes of `family`. Returns the destination prefix of the route if
/// packets to this prefix end at this machine, and `Some(None)` for any other route. Returns `None` if the
/// message cannot be parsed.
pub(crate) fn local_route_in(family: AddressFamily, content: &[u8]) -> Option<Option<OwnPrefix>> {
    // struct rtmsg: family, lengths of destination and source, type of service, table,
    // protocol, scope, type, flags.
    let (&of, &length, &kind) = (content.first()?, content.get(1)?, content.get(7)?);
    let parts = content.get(12..)?;
    if of != u8::from(family) || !matches!(kind, LOCAL | BROADCAST | ANYCAST | MULTICAST) {
        return Some(None);
    }
    let interface = find(parts, INTERFACE).and_then(|index| number(index, 0));
    let address = match find(parts, DESTINATION) {
        Some(address) => address_of(address)?,
        None if family == AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::UNSPECIFIED.into(),
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (length <= longest).then(|| Some(own(address, length, interface)))
}

/// The tables to which rules lead that have no condition on the mark or on the arriving interface.
fn tables(socket: &RouteSocket, family: AddressFamily) -> io::Result<BTreeSet<u32>> {
    let mut has_vrf = false;
    let mut tables: BTreeSet<u32> = list(socket, List::Rules(family), |content| {
        let (table, of_vrf) = table_in(family, content)?;
        has_vrf |= of_vrf;
        Some(table)
    })?
    .into_iter()
    .collect();
    if has_vrf {
        tables.extend(vrf_tables(socket)?);
    }
    Ok(tables)
}

/// The table to which a rule in a list of rules of a family leads, if it counts, and whether it is
/// the rule of all VRFs. `None` for a message that cannot be understood.
pub(crate) fn table_in(family: AddressFamily, content: &[u8]) -> Option<(Option<u32>, bool)> {
    // struct fib_rule_hdr: family, lengths of destination and source, type of service, table,
    // two reserved bytes, action, flags.
    let (&of, &action) = (content.first()?, content.get(7)?);
    let parts = content.get(12..)?;
    let of_arrival = find(parts, RULE_INTERFACE).is_some_and(|name| name != b"lo\0");
    let of_mark = find(parts, RULE_MARK).is_some_and(|mark| mark.iter().any(|byte| *byte != 0));
    let of_vrf = find(parts, RULE_VRF).is_some_and(|is| is.first() == Some(&1));
    if of != u8::from(family) || action != TO_TABLE || of_arrival || of_mark {
        return Some((None, of_vrf));
    }
    let table = find(parts, RULE_TABLE).and_then(|table| number(table, 0));
    let table = table.unwrap_or(u32::from(*content.get(4)?));
    Some((Some(table), of_vrf))
}

/// The names of the VRFs of this network namespace (`ip-link(8)`).
///
/// # Errors
/// Those of `socket(2)`, `sendmsg(2)` and `recvmsg(2)`; a message that cannot be understood.
pub fn vrfs() -> io::Result<Vec<String>> {
    list(&RouteSocket::open()?, List::Links, |content| {
        Some(vrf_in(content)?.and_then(|vrf| vrf.name))
    })
}

fn vrf_tables(socket: &RouteSocket) -> io::Result<Vec<u32>> {
    list(socket, List::Links, |content| {
        Some(vrf_in(content)?.and_then(|vrf| vrf.table))
    })
}

/// A VRF in a list of interfaces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Vrf {
    name: Option<String>,
    table: Option<u32>,
}

/// The VRF in a list of interfaces, if the interface is one. The outer `None` is for a message that cannot be
/// understood.
pub(crate) fn vrf_in(content: &[u8]) -> Option<Option<Vrf>> {
    // struct ifinfomsg.
    let attributes = content.get(16..)?;
    let link = find(attributes, LINK_INFORMATION);
    let vrf = link.filter(|link| {
        find(link, LINK_KIND).is_some_and(|kind| kind.strip_suffix(b"\0") == Some(b"vrf"))
    });
    let name = find(attributes, LINK_NAME).and_then(|name| name.strip_suffix(b"\0"));
    Some(vrf.map(|vrf| {
        Vrf {
            name: name.map(|name| String::from_utf8_lossy(name).into_owned()),
            table: find(vrf, LINK_DATA)
                .and_then(|data| find(data, VRF_TABLE))
                .and_then(|table| number(table, 0)),
        }
    }))
}

/// The results of `parse` for a list; `None` for a message that cannot be understood, which is an
/// error.
fn list<T>(
    socket: &RouteSocket,
    list: List,
    mut parse: impl FnMut(&[u8]) -> Option<Option<T>>,
) -> io::Result<Vec<T>> {
    let unreadable = || io::Error::from(io::ErrorKind::InvalidData);
    let (found, is_cut) =
        socket.collect(list, LIMIT, |content| parse(content).ok_or_else(unreadable))?;
    match is_cut {
        true => Err(io::ErrorKind::OutOfMemory.into()),
        false => Ok(found),
    }
}

/// An address belongs to this machine everywhere; a link-local one of IPv6 only at its interface.
fn own(address: IpAddr, length: u8, interface: Option<u32>) -> OwnPrefix {
    let is_of_link = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    OwnPrefix {
        address,
        length,
        interface: interface.filter(|_| is_of_link),
    }
}

fn find(content: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(content).find_map(|(of, value)| (of == kind).then_some(value))
}

fn number(content: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        content.get(at..at + 4)?.try_into().ok()?,
    ))
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

/// `RTNLGRP_IPV4_IFADDR`, `_ROUTE`, `_RULE`, `RTNLGRP_IPV6_IFADDR`, `_ROUTE`, `_RULE` as bits.
const GROUPS: u32 = 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 18;
/// `RTM_NEWROUTE`, `RTM_DELROUTE`.
const ROUTE_CHANGES: [u16; 2] = [24, 25];

/// A socket that becomes readable when addresses, routes or rules change.
#[derive(Debug)]
pub struct AddressWatch(OwnedFd);

impl AddressWatch {
    /// Opens a watch in the calling thread's network namespace. Needs no capability.
    ///
    /// # Errors
    /// Those of netlink sockets.
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            // NETLINK_ROUTE is protocol 0, the default.
            None,
        )?;
        // A router may have many changes of routes to other hosts each second.
        SockRef::from(&socket).attach_filter(&event_filter(TYPE, &[UNICAST]))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(socket))
    }

    /// Becomes readable when addresses, routes or rules have changed.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads all notifications; returns whether [`OwnAddresses`] may have changed. Routes to other
    /// hosts change often, and do not count.
    #[must_use]
    pub fn take(&self) -> bool {
        // Only the beginning of a notification is read, up to the type of a route.
        let mut buffer = [0_u8; 64];
        let mut may_differ = false;
        for _ in 0..100_000 {
            match rustix::net::recv(&self.0, &mut buffer, RecvFlags::TRUNC) {
                Ok((_, length)) => {
                    let bytes = buffer.get(..length.min(buffer.len()));
                    may_differ |= concerns_own(bytes.unwrap_or_default());
                }
                Err(rustix::io::Errno::INTR) => {}
                // There were more notifications than the socket holds, so everything may have
                // changed.
                Err(rustix::io::Errno::NOBUFS) => may_differ = true,
                Err(_) => break,
            }
        }
        may_differ
    }
}

/// Whether a notification, given its beginning, is about addresses of this machine. Each
/// notification is a datagram of its own.
fn concerns_own(bytes: &[u8]) -> bool {
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok());
    let kind = kind.map_or(0, u16::from_ne_bytes);
    !ROUTE_CHANGES.contains(&kind) || !matches!(bytes.get(16 + 7), Some(&UNICAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, interface: Option<u32>) -> OwnPrefix {
        let (address, length) = text.split_once('/').unwrap();
        OwnPrefix {
            address: address.parse().unwrap(),
            length: length.parse().unwrap(),
            interface,
        }
    }

    #[test]
    fn an_address_is_own_by_its_prefix_and_its_link() {
        let own: OwnAddresses = [
            prefix("192.0.2.1/32", None),
            prefix("198.51.100.0/24", None),
            prefix("2001:db8::1/128", None),
            prefix("fe80::1/128", Some(3)),
        ]
        .into_iter()
        .collect();
        for (address, expected) in [
            ("192.0.2.1:1", true),
            ("192.0.2.2:1", false),
            ("198.51.100.77:1", true),
            ("[::ffff:198.51.100.77]:1", true),
            ("[2001:db8::1]:1", true),
            ("[2001:db8::2]:1", false),
            ("[fe80::1%3]:1", true),
            ("[fe80::1%4]:1", false),
            ("[fe80::1]:1", true),
            ("[fe80::2%3]:1", false),
            ("127.0.0.9:1", true),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
        ] {
            let found = own.contains(address.parse().unwrap());
            assert_eq!(found, expected, "{address}");
        }
        assert_eq!(own.prefixes().count(), 4);
    }

    #[test]
    fn a_prefix_of_any_length_has_its_bits() {
        for text in ["0.0.0.0/0", "::/0"] {
            let all: OwnAddresses = [prefix(text, None)].into_iter().collect();
            assert_eq!(
                all.contains("192.0.2.1:1".parse().unwrap()),
                text == "0.0.0.0/0"
            );
            assert_eq!(
                all.contains("[2001:db8::1]:1".parse().unwrap()),
                text == "::/0"
            );
        }
    }

    #[test]
    fn routes_to_other_hosts_concern_nobody() {
        let message = |kind: u16, route: u8| {
            let mut bytes = vec![0; 28];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[23] = route;
            bytes
        };
        assert!(!concerns_own(&message(24, UNICAST)));
        assert!(!concerns_own(&message(25, UNICAST)));
        assert!(concerns_own(&message(24, LOCAL)));
        assert!(concerns_own(&message(25, ANYCAST)));
        // A new address; a removed rule; a message that cannot be understood.
        assert!(concerns_own(&message(20, UNICAST)));
        assert!(concerns_own(&message(33, UNICAST)));
        assert!(concerns_own(&[]));
    }

    #[test]
    fn this_machines_loopback_is_read() {
        let own = OwnAddresses::read().unwrap();
        assert!(own.contains("127.1.2.3:1".parse().unwrap()));
        assert!(!own.contains("203.0.113.77:1".parse().unwrap()));
    }
}
