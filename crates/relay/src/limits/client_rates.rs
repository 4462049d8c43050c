//! The rates of client prefixes, shared by the threads of a relay and the gate.
//!
//! The prefixes are divided among [`TABLES`] tables by a hash with a secret, and each table has a lock. A thread locks
//! one table at a time, for one look-up, so two threads seldom need the same lock at once. Without a limit, nothing is
//! locked, and no table takes memory.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use midspan_policy::client_rates::{
    ClientPrefix, ClientRateLimits, Grant, MOST_PREFIXES, PrefixKey, PrefixLengths, PrefixRates,
    PrefixTable,
};
use midspan_units::{BitRate, Time};

use super::lock;

/// Number of tables.
const TABLES: usize = 64;

/// The limits of each client prefix, and how much of them is used.
#[derive(Debug)]
pub struct ClientRates {
    /// New connections per second; 0 for no limit.
    connections: AtomicU32,
    /// Bit/s; 0 for no limit.
    bytes: AtomicU64,
    /// Of IPv4 and IPv6.
    lengths: [AtomicU8; 2],
    secret: u64,
    tables: Box<[Mutex<PrefixTable>]>,
}

impl ClientRates {
    pub fn new(limits: &ClientRateLimits) -> Self {
        let table = || Mutex::new(PrefixTable::new(MOST_PREFIXES / TABLES));
        let new = Self {
            connections: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            lengths: [const { AtomicU8::new(0) }; 2],
            secret: RandomState::new().hash_one(0_u8),
            tables: std::iter::repeat_with(table).take(TABLES).collect(),
        };
        new.change(limits);
        new
    }

    /// Changes the limits; other lengths of prefixes empty the tables.
    pub fn change(&self, limits: &ClientRateLimits) {
        let connections = limits.connections.unwrap_or(0);
        self.connections.store(connections, Ordering::Relaxed);
        let bytes = limits.bytes.map_or(0, BitRate::bits_per_second);
        self.bytes.store(bytes, Ordering::Relaxed);
        let PrefixLengths { ipv4, ipv6 } = limits.prefixes;
        let is_same = self.limits().prefixes == limits.prefixes;
        self.lengths[0].store(ipv4, Ordering::Relaxed);
        self.lengths[1].store(ipv6, Ordering::Relaxed);
        let has_limit = limits.connections.is_some() || limits.bytes.is_some();
        if !is_same || !has_limit {
            for table in &self.tables {
                lock(table).clear();
            }
        }
    }

    /// The present limits.
    pub fn limits(&self) -> ClientRateLimits {
        let connections = self.connections.load(Ordering::Relaxed);
        let [ipv4, ipv6] = [0, 1].map(|of| self.lengths[of].load(Ordering::Relaxed));
        ClientRateLimits {
            connections: Some(connections).filter(|rate| *rate > 0),
            bytes: BitRate::from_bits_per_second(self.bytes.load(Ordering::Relaxed)),
            prefixes: PrefixLengths { ipv4, ipv6 },
        }
    }

    /// A new connection of this client: whether it is within the rate of its prefix.
    pub fn admits(&self, client: IpAddr, now: Time) -> bool {
        if self.connections.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let limits = self.limits();
        let Some(rate) = limits.connection_rate() else {
            return true;
        };
        let key = self.key(client, &limits);
        lock(self.table(key)).admit(key, rate, now)
    }

    /// Whether the rate of bytes has a limit.
    pub fn limits_bytes(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) != 0
    }

    /// Bytes for a session of this client; `None` without a limit.
    pub fn grant(&self, client: IpAddr, now: Time) -> Option<Grant> {
        let limits = self.limits();
        let rate = limits.byte_rate()?;
        let key = self.key(client, &limits);
        Some(lock(self.table(key)).grant(key, rate, now))
    }

    /// A session of this client has read this many bytes of those that it was granted.
    pub fn settle(&self, client: IpAddr, granted: u64, read: u64, now: Time) {
        let limits = self.limits();
        if let Some(rate) = limits.byte_rate() {
            let key = self.key(client, &limits);
            lock(self.table(key)).settle(key, rate, (granted, read), now);
        }
    }

    /// All prefixes, in no particular order.
    pub fn rows(&self, now: Time) -> Vec<PrefixRates> {
        let mut all = Vec::new();
        for table in &self.tables {
            all.extend(lock(table).rows(now));
        }
        all
    }

    fn key(&self, client: IpAddr, limits: &ClientRateLimits) -> PrefixKey {
        ClientPrefix::of(client, limits.prefixes).keyed(self.secret)
    }

    fn table(&self, key: PrefixKey) -> &Mutex<PrefixTable> {
        &self.tables[key.table(self.tables.len())]
    }
}

#[cfg(test)]
mod tests {
    use midspan_units::TimeSpan;

    use super::*;

    fn limits(connections: Option<u32>, ipv4: u8) -> ClientRateLimits {
        ClientRateLimits {
            connections,
            bytes: None,
            prefixes: PrefixLengths { ipv4, ipv6: 64 },
        }
    }

    fn admitted(rates: &ClientRates, client: &str) -> usize {
        let client = client.parse().unwrap();
        let now = Time::ZERO + TimeSpan::from_seconds(5);
        (0..9).filter(|_| rates.admits(client, now)).count()
    }

    #[test]
    fn a_reload_changes_the_rate_and_the_prefixes() {
        let rates = ClientRates::new(&limits(None, 32));
        assert_eq!(admitted(&rates, "192.0.2.1"), 9);
        assert!(rates.rows(Time::ZERO).is_empty() && !rates.limits_bytes());
        rates.change(&limits(Some(4), 32));
        assert_eq!(rates.limits(), limits(Some(4), 32));
        assert_eq!(admitted(&rates, "192.0.2.1"), 4);
        assert_eq!(admitted(&rates, "192.0.2.2"), 4);
        assert_eq!(rates.rows(Time::ZERO).len(), 2);
        rates.change(&limits(Some(4), 24));
        assert_eq!(admitted(&rates, "192.0.2.1"), 4);
        assert_eq!(admitted(&rates, "192.0.2.2"), 0);
        rates.change(&limits(None, 24));
        assert_eq!(admitted(&rates, "192.0.2.2"), 9);
        assert!(rates.rows(Time::ZERO).is_empty());
    }

    #[test]
    fn there_are_never_more_prefixes_than_the_tables_hold() {
        let rates = ClientRates::new(&limits(Some(1), 32));
        let now = Time::ZERO + TimeSpan::from_seconds(5);
        for number in 0..70_000_u32 {
            let client = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            assert!(rates.admits(client, now));
        }
        let count = rates.rows(now).len();
        assert!((60_000..=MOST_PREFIXES).contains(&count), "{count}");
    }
}
