//! Rows of client prefixes whose rates are limited.

use ipnet::IpNet;
use midspan_policy::client_rates::PrefixRates;
use serde::{Deserialize, Serialize};

use super::query::{Query, Sort};

/// A client prefix with its rates in the last 10 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrefixRow {
    /// The prefix.
    pub prefix: String,
    /// New connections per second, also those beyond the limit.
    pub connections_per_second: u64,
    /// The rate of its sessions, in both directions together; only known if it is limited.
    pub rate_bits_per_second: u64,
    /// Connections beyond the limit, since the prefix came into the table.
    pub refused: u64,
    /// Time since its last new connection or byte.
    pub unused_seconds: f64,
}

/// The heaviest prefixes first: those with the most new connections if the order is that of sessions, otherwise those
/// with the highest rate.
pub(crate) fn rows(all: &[PrefixRates], query: &Query) -> Vec<PrefixRow> {
    let fits = |prefix: &IpNet| {
        query
            .client
            .is_none_or(|client| client.contains(prefix) || prefix.contains(&client))
    };
    let mut found: Vec<(IpNet, &PrefixRates)> = all
        .iter()
        .filter_map(|rates| Some((rates.prefix.network()?, rates)))
        .filter(|(prefix, _)| fits(prefix))
        .collect();
    found.sort_unstable_by_key(|(prefix, rates)| {
        let both = (rates.bytes_per_second, rates.connections_per_second);
        let (first, second) = match query.sort {
            Sort::Sessions => (both.1, both.0),
            _ => both,
        };
        (std::cmp::Reverse((first, second, rates.refused)), *prefix)
    });
    found.truncate(query.limit);
    let row = |(prefix, rates): (IpNet, &PrefixRates)| PrefixRow {
        prefix: prefix.to_string(),
        connections_per_second: rates.connections_per_second,
        rate_bits_per_second: rates.bytes_per_second.saturating_mul(8),
        refused: rates.refused,
        unused_seconds: rates.unused.as_seconds(),
    };
    found.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use midspan_policy::client_rates::{ClientPrefix, PrefixLengths};
    use midspan_units::TimeSpan;

    use super::*;

    fn rates(client: &str, connections: u64, bytes: u64) -> PrefixRates {
        let lengths = PrefixLengths { ipv4: 24, ipv6: 64 };
        PrefixRates {
            prefix: ClientPrefix::of(client.parse().unwrap(), lengths),
            connections_per_second: connections,
            bytes_per_second: bytes,
            refused: connections / 2,
            unused: TimeSpan::from_milliseconds(1500),
        }
    }

    #[test]
    fn the_heaviest_prefixes_come_first() {
        let all = [
            rates("192.0.2.7", 10, 500),
            rates("198.51.100.7", 90, 0),
            rates("2001:db8::7", 20, 900),
            rates("203.0.113.7", 0, 500),
        ];
        let prefixes = |text: &str| -> Vec<String> {
            let query = Query::read(text).unwrap();
            let rows = rows(&all, &query).into_iter();
            rows.map(|row| row.prefix).collect()
        };
        assert_eq!(
            prefixes("by=prefix&limit=3"),
            ["2001:db8::/64", "192.0.2.0/24", "203.0.113.0/24"]
        );
        assert_eq!(
            prefixes("by=prefix&sort=sessions&limit=2"),
            ["198.51.100.0/24", "2001:db8::/64"]
        );
        assert_eq!(prefixes("client=192.0.2.1"), ["192.0.2.0/24"]);
        assert_eq!(prefixes("client=192.0.0.0/8"), ["192.0.2.0/24"]);
        let query = Query::default();
        let first = &rows(&all, &query)[0];
        assert_eq!((first.rate_bits_per_second, first.refused), (7200, 10));
        assert!((first.unused_seconds - 1.5).abs() < 1e-9);
    }
}
