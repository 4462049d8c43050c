//! A prefix as a plain value: in rules, in lists of the configuration, in messages.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A prefix: addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// An address with this prefix.
    pub address: IpAddr,
    /// Length of the prefix in bits, at most 32 or 128.
    pub length: u8,
}

impl Network {
    /// Whether this address has the prefix. An IPv4 address inside an IPv6 address is treated as the
    /// IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        IpNet::new(self.address, self.length)
            .is_ok_and(|network| network.contains(&address.to_canonical()))
    }
}

impl From<IpNet> for Network {
    fn from(network: IpNet) -> Self {
        Self {
            address: network.addr(),
            length: network.prefix_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_addresses_only() {
        for (text, address, expected) in [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("192.0.2.0/24", "::ffff:192.0.2.7", true),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("192.0.2.1/32", "192.0.2.1", true),
        ] {
            let network = Network::from(text.parse::<IpNet>().unwrap());
            let found = network.contains(address.parse().unwrap());
            assert_eq!(found, expected, "{text} {address}");
        }
    }
}
