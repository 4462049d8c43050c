//! Wrong passwords of each client: after a few, all its passwords are refused for a while.
//!
//! All threads share one table, because a client's connections arrive at any of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use midspan_units::{Time, TimeSpan};

/// Wrong passwords that a client may give in [`PERIOD`].
pub const LIMIT: u32 = 10;
/// The time from a client's first wrong password after which counting starts again.
const PERIOD: TimeSpan = TimeSpan::from_seconds(60);
/// Most clients in the table. Beyond that, those with the fewest wrong passwords are dropped.
const CLIENT_LIMIT: usize = 4096;

/// Clients that sent wrong passwords.
#[derive(Debug, Default)]
pub struct Tries {
    clients: Mutex<BTreeMap<IpAddr, Wrong>>,
}

#[derive(Debug, Clone, Copy)]
struct Wrong {
    count: u32,
    since: Time,
}

impl Tries {
    /// Whether a client has sent too many wrong passwords.
    pub fn is_blocked(&self, client: IpAddr, now: Time) -> bool {
        let clients = self.lock();
        let wrong = clients.get(&network(client));
        wrong.is_some_and(|wrong| wrong.count >= LIMIT && wrong.since + PERIOD > now)
    }

    /// Counts wrong passwords of a client.
    pub fn note(&self, client: IpAddr, count: u32, now: Time) {
        if count == 0 {
            return;
        }
        let mut clients = self.lock();
        let client = network(client);
        if clients.len() >= CLIENT_LIMIT && !clients.contains_key(&client) {
            clients.retain(|_, wrong| wrong.since + PERIOD > now);
            if clients.len() >= CLIENT_LIMIT {
                let least = clients
                    .iter()
                    .min_by_key(|(_, wrong)| (wrong.count, wrong.since));
                let least = least.map(|(client, _)| *client);
                least.map(|least| clients.remove(&least));
            }
        }
        let wrong = clients.entry(client).or_insert(Wrong {
            count: 0,
            since: now,
        });
        if wrong.since + PERIOD <= now {
            *wrong = Wrong {
                count: 0,
                since: now,
            };
        }
        wrong.count = wrong.count.saturating_add(count);
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Wrong>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An IPv4 address, or the first half of an IPv6 address, because a client has all addresses of the
/// other half.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX)).into(),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn a_client_is_blocked_for_the_rest_of_its_minute() {
        let tries = Tries::default();
        let client: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour = "2001:db8::2".parse().unwrap();
        let other = "2001:db8:0:1::1".parse().unwrap();
        for second in 0..10 {
            assert!(!tries.is_blocked(client, at(second)));
            tries.note(client, 1, at(second));
        }
        assert!(tries.is_blocked(client, at(10)) && tries.is_blocked(neighbour, at(59)));
        assert!(!tries.is_blocked(other, at(10)));
        tries.note(client, 1, at(50));
        assert!(!tries.is_blocked(client, at(60)));
        tries.note(client, 1, at(60));
        assert!(!tries.is_blocked(client, at(61)));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_tries_most() {
        let tries = Tries::default();
        let worst: IpAddr = "192.0.2.1".parse().unwrap();
        tries.note(worst, LIMIT, at(0));
        for number in 0..3 * CLIENT_LIMIT as u32 {
            let client = std::net::Ipv4Addr::from(0x0a00_0000 + number);
            tries.note(client.into(), 1, at(1));
        }
        assert!(tries.lock().len() <= CLIENT_LIMIT);
        assert!(tries.is_blocked(worst, at(2)));
    }
}
