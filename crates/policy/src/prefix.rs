//! The prefixes for which knowledge and limits are shared.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The prefix that stands for one host: an IPv4 address, or an IPv6 /64, because a host may use all
/// addresses of its IPv6 network.
///
/// An IPv4 address inside an IPv6 address is treated as the IPv4 address.
#[must_use]
pub fn host_prefix(address: IpAddr) -> IpNet {
    prefix(address, 32, 64)
}

/// The prefix of the network that a host is in: an IPv4 /24, or an IPv6 /48.
///
/// An IPv4 address inside an IPv6 address is treated as the IPv4 address.
#[must_use]
pub fn site_prefix(address: IpAddr) -> IpNet {
    prefix(address, 24, 48)
}

/// The prefix of an address with a length of at most 32 (IPv4) or 128 bits (IPv6).
fn prefix(address: IpAddr, ipv4_length: u8, ipv6_length: u8) -> IpNet {
    match address.to_canonical() {
        IpAddr::V4(four) => Ipv4Net::new_assert(four, ipv4_length).trunc().into(),
        IpAddr::V6(six) => Ipv6Net::new_assert(six, ipv6_length).trunc().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_no_bits_behind_it() {
        for (address, host, site) in [
            ("192.0.2.77", "192.0.2.77/32", "192.0.2.0/24"),
            ("::ffff:192.0.2.77", "192.0.2.77/32", "192.0.2.0/24"),
            (
                "2001:db8:1:2:3:4:5:6",
                "2001:db8:1:2::/64",
                "2001:db8:1::/48",
            ),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(host_prefix(address).to_string(), host);
            assert_eq!(site_prefix(address).to_string(), site);
        }
    }
}
