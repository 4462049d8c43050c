//! The prefix of a client, for which rates are limited.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Bits in front of an IPv4 address inside an IPv6 address.
const MAPPED: u8 = 96;

/// How many first bits of an address make the prefix of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixLengths {
    /// Of an IPv4 address: 1 to 32.
    pub ipv4: u8,
    /// Of an IPv6 address: 1 to 128.
    pub ipv6: u8,
}

impl Default for PrefixLengths {
    /// One host, as for the limits of sessions: an IPv4 address, or an IPv6 /64.
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

/// A prefix of clients. An IPv4 address inside an IPv6 address is treated as the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientPrefix {
    /// As an IPv6 address, without the bits behind the prefix.
    bits: u128,
    /// Of the IPv6 address.
    length: u8,
}

impl ClientPrefix {
    /// The prefix of a client.
    #[must_use]
    pub fn of(client: IpAddr, lengths: PrefixLengths) -> Self {
        let (address, length) = match client.to_canonical() {
            IpAddr::V4(four) => (four.to_ipv6_mapped(), MAPPED + lengths.ipv4.min(32)),
            IpAddr::V6(six) => (six, lengths.ipv6.min(128)),
        };
        let behind = u128::MAX.checked_shr(length.into()).unwrap_or(0);
        Self {
            bits: address.to_bits() & !behind,
            length,
        }
    }

    /// The prefix with a hash. The caller chooses `secret` at random, so that no client can choose addresses
    /// with the same hash.
    #[must_use]
    pub fn keyed(self, secret: u64) -> PrefixKey {
        let mut hasher = DefaultHasher::new();
        (secret, self).hash(&mut hasher);
        PrefixKey {
            prefix: self,
            hash: hasher.finish(),
        }
    }

    /// The prefix as it is written; `None` if it has an impossible length.
    #[must_use]
    pub fn network(self) -> Option<IpNet> {
        let address = Ipv6Addr::from_bits(self.bits);
        let network = match address.to_ipv4_mapped() {
            Some(four) if self.length >= MAPPED => {
                IpNet::new(IpAddr::V4(four), self.length - MAPPED)
            }
            _ => IpNet::new(IpAddr::V6(address), self.length),
        };
        network.ok()
    }
}

/// A prefix with its hash, for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixKey {
    prefix: ClientPrefix,
    hash: u64,
}

impl PrefixKey {
    /// The prefix.
    #[must_use]
    pub const fn prefix(self) -> ClientPrefix {
        self.prefix
    }

    /// The number of its table among this many, from 0.
    #[must_use]
    pub fn table(self, tables: usize) -> usize {
        // The other half of the hash is used inside a table.
        place(self.hash >> 32, tables)
    }

    /// Its place inside a table with this many places, from 0.
    pub(super) fn place(self, places: usize) -> usize {
        place(self.hash & u64::from(u32::MAX), places)
    }
}

fn place(hash: u64, places: usize) -> usize {
    let places = u64::try_from(places.max(1)).unwrap_or(u64::MAX);
    usize::try_from(hash % places).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_one_however_an_address_of_it_is_written() {
        let lengths = PrefixLengths { ipv4: 24, ipv6: 56 };
        let of = |address: &str| ClientPrefix::of(address.parse().unwrap(), lengths);
        for (one, other, written) in [
            ("192.0.2.1", "192.0.2.255", "192.0.2.0/24"),
            ("192.0.2.1", "::ffff:192.0.2.7", "192.0.2.0/24"),
            ("2001:db8:0:ff::1", "2001:db8::", "2001:db8::/56"),
        ] {
            assert_eq!(of(one), of(other));
            assert_eq!(of(one).network().unwrap().to_string(), written);
        }
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_ne!(of("2001:db8:0:ff::1"), of("2001:db8:0:100::1"));
        let whole = PrefixLengths {
            ipv4: 32,
            ipv6: 128,
        };
        let host = ClientPrefix::of("2001:db8::7".parse().unwrap(), whole);
        assert_eq!(host.network().unwrap().to_string(), "2001:db8::7/128");
        let by_default = ClientPrefix::of("192.0.2.1".parse().unwrap(), PrefixLengths::default());
        assert_eq!(by_default.network().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn the_secret_decides_about_the_place() {
        let prefix =
            |last: u8| ClientPrefix::of(IpAddr::from([192, 0, 2, last]), PrefixLengths::default());
        let tables = |secret| -> Vec<usize> {
            (0..32)
                .map(|last| prefix(last).keyed(secret).table(64))
                .collect()
        };
        assert_eq!(tables(7), tables(7));
        assert_ne!(tables(7), tables(8));
        assert!(tables(7).iter().all(|table| *table < 64));
        assert_eq!(prefix(1).keyed(7).table(0), 0);
    }
}
