//! Which session it is: its number, and the addresses of its two ends.
//!
//! Both addresses together take 48 bytes instead of the 64 of two `SocketAddr`, which also have a flow label.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use midspan_policy::Request;

/// The number of a session, its client and its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    id: u64,
    client: End,
    server: End,
}

/// The address of one end, without the flow label of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// That of IPv4 as an IPv6 address.
    address: [u8; 16],
    scope: u32,
    port: u16,
    is_ipv4: bool,
}

impl Identity {
    /// Of the session with this number. Numbers are unique while a relay runs, and count from 1.
    pub const fn new(id: u64, request: Request) -> Self {
        Self {
            id,
            client: End::of(request.client),
            server: End::of(request.server),
        }
    }

    /// The number.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The client.
    pub fn client(&self) -> SocketAddr {
        self.client.address()
    }

    /// The server.
    pub fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// The client and the server.
    pub fn request(&self) -> Request {
        Request {
            client: self.client(),
            server: self.server(),
        }
    }
}

impl End {
    const fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self {
                address: address.ip().to_ipv6_mapped().octets(),
                scope: 0,
                port: address.port(),
                is_ipv4: true,
            },
            SocketAddr::V6(address) => Self {
                address: address.ip().octets(),
                scope: address.scope_id(),
                port: address.port(),
                is_ipv4: false,
            },
        }
    }

    fn address(self) -> SocketAddr {
        let address = Ipv6Addr::from(self.address);
        match address.to_ipv4_mapped() {
            Some(address) if self.is_ipv4 => (address, self.port).into(),
            _ => SocketAddrV6::new(address, self.port, 0, self.scope).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_come_back() {
        let addresses = [
            "192.0.2.1:443",
            "0.0.0.0:0",
            "[2001:db8::1]:65535",
            "[::ffff:192.0.2.1]:80",
            "[fe80::1%7]:22",
        ];
        let addresses = addresses.map(|text| text.parse::<SocketAddr>().unwrap());
        for client in addresses {
            for server in addresses {
                let request = Request { client, server };
                let identity = Identity::new(7, request);
                assert_eq!((identity.id(), identity.request()), (7, request));
            }
        }
        assert_eq!(size_of::<Identity>(), 56);
    }
}
