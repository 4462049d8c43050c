//! Routes from one client to one network of servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::Request;

/// A route from one client (an IPv4 address, an IPv6 /64) to one prefix of servers (/24, /48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The client's network; the bits after its prefix are zero.
    pub client: IpAddr,
    /// The servers' network; the bits after its prefix are zero.
    pub server: IpAddr,
}

impl Route {
    /// Length of the client's prefix in bits, for IPv4 and IPv6.
    pub const CLIENT_LENGTHS: [u8; 2] = [32, 64];
    /// Length of the servers' prefix in bits, for IPv4 and IPv6.
    pub const SERVER_LENGTHS: [u8; 2] = [24, 48];

    /// The route of a connection.
    #[must_use]
    pub const fn of(request: &Request) -> Self {
        Self::between(request.client.ip(), request.server.ip())
    }

    /// The route between two hosts.
    #[must_use]
    pub const fn between(client: IpAddr, server: IpAddr) -> Self {
        Self {
            client: network(client.to_canonical(), Self::CLIENT_LENGTHS),
            server: network(server.to_canonical(), Self::SERVER_LENGTHS),
        }
    }
}

/// The network of an address, with a prefix of these lengths in bits.
const fn network(address: IpAddr, [ipv4_length, ipv6_length]: [u8; 2]) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX << (32 - ipv4_length);
            IpAddr::V4(Ipv4Addr::from_bits(four.to_bits() & mask))
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX << (128 - ipv6_length);
            IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & mask))
        }
    }
}
