//! Forgetting what connection tracking knows of a connection (<linux/netfilter/
//! nfnetlink_conntrack.h>).

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::nfnetlink::{ACKNOWLEDGE, Attributes, Request, Socket, message_type};

const SUBSYSTEM: u8 = 1;
const DELETE: u16 = message_type(SUBSYSTEM, 2);
/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

/// Attributes of a message, of a tuple and of its two parts.
const TUPLE_ORIGINAL: u16 = 1;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// The connection tracking of a network namespace.
#[derive(Debug)]
pub struct ConnectionTracking {
    socket: Socket,
}

impl ConnectionTracking {
    /// That of the calling thread's network namespace. Forgetting needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// Those of `socket(2)`.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(0)?;
        Ok(Self { socket })
    }

    /// Forgets a TCP connection from `source` to `destination` whose first direction is in `zone`,
    /// so that its addresses and ports are free for another.
    ///
    /// # Errors
    /// `NotFound` where there is none; else those of netlink.
    pub fn forget(&self, source: SocketAddr, destination: SocketAddr, zone: u16) -> io::Result<()> {
        let family = if source.is_ipv4() { IPV4 } else { IPV6 };
        let mut request = Request::default();
        request.message(DELETE, ACKNOWLEDGE, family, 0, |content| {
            content.nested(TUPLE_ORIGINAL, |tuple| {
                tuple.nested(ADDRESSES, |addresses| {
                    address(addresses, source.ip(), [1, 3]);
                    address(addresses, destination.ip(), [2, 4]);
                });
                tuple.nested(PROTOCOL, |protocol| {
                    protocol.bytes(PROTOCOL_NUMBER, &[TCP]);
                    protocol.bytes(SOURCE_PORT, &source.port().to_be_bytes());
                    protocol.bytes(DESTINATION_PORT, &destination.port().to_be_bytes());
                });
                tuple.bytes(TUPLE_ZONE, &zone.to_be_bytes());
            });
        });
        self.socket.request(&request)
    }
}

/// `CTA_IP_V4_SRC` and its kin: one kind for each family.
fn address(content: &mut Attributes<'_>, address: IpAddr, [ipv4, ipv6]: [u16; 2]) {
    match address {
        IpAddr::V4(four) => content.bytes(ipv4, &four.octets()),
        IpAddr::V6(six) => content.bytes(ipv6, &six.octets()),
    }
}
