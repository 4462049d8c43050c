//! Which networks of clients are behind long legs, and which of these legs are lossy.
//!
//! The initial window of a connection is chosen at its SYN, when its round trip is still unknown. But
//! the round trip of other clients in the same network is known: behind a satellite, all legs are long.
//! The same holds for losses that are not congestion: a first connection with a client would find them only after
//! CUBIC has left slow start because of one.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{Time, TimeSpan};

use crate::automatic_ahead::LONG_HANDSHAKE;
use crate::hosts::Hosts;
use crate::part_limit::part_limit;
use crate::prefix::site_prefix;

/// Largest number of remembered networks, if the memory is not divided.
const NETWORKS: usize = 16_384;
/// This many of the newest legs of a network count …
const COUNTED: u32 = u16::BITS;
/// … and this many of a hundred of them have to be long.
const MOST: u32 = 75;
/// A network is lossy if at least this many long legs that carried enough are known, and half of them were lossy.
const LEAST_CARRIED: u32 = 8;
/// What is known of a network is forgotten after this time without a session.
const REMEMBERED: TimeSpan = TimeSpan::from_seconds(3_600);

/// The newest legs of one network: a bit for each, set for a long one. Of long legs that carried enough, a bit for each,
/// set for a lossy one.
#[derive(Debug, Clone, Copy)]
struct Newest {
    long: u16,
    count: u32,
    lossy: u16,
    carried: u32,
    noted: Time,
}

/// The newest legs of all networks of clients.
#[derive(Debug, Clone)]
pub struct LongLegs {
    networks: BTreeMap<IpNet, Newest>,
    /// The networks in the order in which they came.
    order: VecDeque<IpNet>,
    /// Largest number of remembered networks.
    limit: usize,
}

impl Default for LongLegs {
    fn default() -> Self {
        Self::part_of(1)
    }
}

impl LongLegs {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            networks: BTreeMap::new(),
            order: VecDeque::new(),
            limit: part_limit(NETWORKS, parts),
        }
    }

    /// A session with this client has ended; `round_trip` is the shortest one of its leg. `is_lossy`: whether its
    /// losses were no congestion; `None` if it carried too little to show that.
    pub fn note(
        &mut self,
        now: Time,
        client: IpAddr,
        round_trip: TimeSpan,
        is_lossy: Option<bool>,
    ) {
        let network = site_prefix(client);
        let known = self.networks.get(&network);
        let mut newest = known.copied().filter(|newest| !newest.is_old(now));
        let newest = newest.get_or_insert(Newest {
            long: 0,
            count: 0,
            lossy: 0,
            carried: 0,
            noted: now,
        });
        let is_long = round_trip >= LONG_HANDSHAKE;
        newest.long = newest.long << 1 | u16::from(is_long);
        newest.count = (newest.count + 1).min(COUNTED);
        if let Some(is_lossy) = is_lossy.filter(|_| is_long) {
            newest.lossy = newest.lossy << 1 | u16::from(is_lossy);
            newest.carried = (newest.carried + 1).min(COUNTED);
        }
        newest.noted = now;
        if self.networks.insert(network, *newest).is_none() {
            self.order.push_back(network);
            while self.order.len() > self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.networks.remove(&oldest);
                }
            }
        }
    }

    /// Whether a new leg to this client is presumably long: legs of its network are known, and
    /// three quarters of the newest ones are long.
    #[must_use]
    pub fn is_long(&self, now: Time, client: IpAddr) -> bool {
        let known = self.networks.get(&site_prefix(client));
        known.is_some_and(|newest| {
            !newest.is_old(now) && newest.long.count_ones() * 100 >= newest.count * MOST
        })
    }

    /// Whether a new leg to this client is presumably lossy: half of the newest long legs of its network were.
    #[must_use]
    pub fn is_lossy(&self, now: Time, client: IpAddr) -> bool {
        let known = self.networks.get(&site_prefix(client));
        known.is_some_and(|newest| {
            let enough = newest.carried >= LEAST_CARRIED && !newest.is_old(now);
            enough && newest.lossy.count_ones() * 2 >= newest.carried
        })
    }

    /// Forgets at most `most` networks of these hosts; returns how many.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        let meant = self
            .networks
            .keys()
            .filter(|network| hosts.are_in(**network));
        let networks: Vec<IpNet> = meant.take(most).copied().collect();
        for network in &networks {
            self.networks.remove(network);
        }
        if !networks.is_empty() {
            self.order
                .retain(|network| self.networks.contains_key(network));
        }
        networks.len()
    }
}

impl Newest {
    fn is_old(&self, now: Time) -> bool {
        now.since(self.noted) >= REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: TimeSpan = TimeSpan::from_milliseconds(600);
    const SHORT: TimeSpan = TimeSpan::from_milliseconds(20);

    fn client(network: u8, last: u8) -> IpAddr {
        IpAddr::from([192, 0, network, last])
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn a_network_is_known_by_its_newest_legs() {
        let mut legs = LongLegs::default();
        assert!(!legs.is_long(Time::ZERO, client(2, 1)));
        legs.note(Time::ZERO, client(2, 1), LONG, None);
        assert!(legs.is_long(Time::ZERO, client(2, 77)));
        assert!(!legs.is_long(Time::ZERO, client(3, 1)));
        // One short leg of two is too many, and one of four is not.
        legs.note(Time::ZERO, client(2, 9), SHORT, None);
        assert!(!legs.is_long(Time::ZERO, client(2, 1)));
        legs.note(Time::ZERO, client(2, 9), LONG, None);
        legs.note(Time::ZERO, client(2, 9), LONG, None);
        assert!(legs.is_long(Time::ZERO, client(2, 1)));
        // Only the newest legs count.
        for _ in 0..16 {
            legs.note(Time::ZERO, client(2, 9), SHORT, None);
        }
        for turn in 0..12 {
            assert!(!legs.is_long(Time::ZERO, client(2, 1)), "{turn}");
            legs.note(Time::ZERO, client(2, 9), LONG, None);
        }
        assert!(legs.is_long(Time::ZERO, client(2, 1)));
    }

    #[test]
    fn a_network_is_lossy_if_half_of_its_newest_long_legs_were() {
        let mut legs = LongLegs::default();
        let mut note = |last, round_trip, is_lossy| {
            legs.note(Time::ZERO, client(2, last), round_trip, is_lossy);
            legs.is_lossy(Time::ZERO, client(2, 77))
        };
        // Short legs, and legs that carried too little, are no evidence.
        for last in 0..20 {
            assert!(!note(last, SHORT, Some(true)));
            assert!(!note(last, LONG, None));
        }
        for last in 0..7 {
            assert!(!note(last, LONG, Some(true)));
        }
        assert!(note(7, LONG, Some(true)));
        // Sixteen legs count: eight of them without losses, and then nine.
        for last in 8..16 {
            assert!(note(last, LONG, Some(false)), "{last}");
        }
        assert!(!note(16, LONG, Some(false)));
        assert!(!legs.is_lossy(seconds(3_600), client(2, 77)));
    }

    #[test]
    fn a_network_is_forgotten_in_time_or_on_request() {
        let mut legs = LongLegs::default();
        legs.note(seconds(0), client(2, 1), LONG, None);
        assert!(legs.is_long(seconds(3_599), client(2, 1)));
        assert!(!legs.is_long(seconds(3_600), client(2, 1)));
        legs.note(seconds(3_600), client(2, 1), LONG, None);
        legs.note(seconds(3_600), client(3, 1), LONG, None);
        let hosts = Hosts::with_prefix("192.0.2.5/32".parse().unwrap());
        assert_eq!((legs.forget(&hosts, 9), legs.forget(&hosts, 9)), (1, 0));
        assert!(!legs.is_long(seconds(3_600), client(2, 1)));
        assert!(legs.is_long(seconds(3_600), client(3, 1)));
        assert_eq!(legs.order.len(), 1);
    }

    #[test]
    fn the_number_of_networks_is_bounded() {
        let mut legs = LongLegs::default();
        for number in 0..20_000_u32 {
            let address = IpAddr::from((0x0a00_0000 + (number << 8)).to_be_bytes());
            legs.note(Time::ZERO, address, LONG, None);
        }
        assert_eq!(
            (legs.networks.len(), legs.order.len()),
            (NETWORKS, NETWORKS)
        );
    }
}
