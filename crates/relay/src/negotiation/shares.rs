//! How much of something each client or node takes, so that one of them does not take all.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::limits::Client;

/// A count for each host: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<Client, u32>);

impl Shares {
    /// The host has one more, if that is within its share of `most`; returns whether it is.
    pub fn take(&mut self, host: IpAddr, most: u32) -> bool {
        let has_room = self.has_room(host, most);
        if has_room {
            self.add(host);
        }
        has_room
    }

    /// Whether one more is within the host's share of `most`.
    pub fn has_room(&self, host: IpAddr, most: u32) -> bool {
        let taken = self.0.get(&Client::of(host));
        taken.is_none_or(|taken| *taken < most)
    }

    /// The host has one more.
    pub fn add(&mut self, host: IpAddr) {
        let count = self.0.entry(Client::of(host)).or_insert(0);
        *count = count.saturating_add(1);
    }

    /// The host has one fewer.
    pub fn give_back(&mut self, host: IpAddr) {
        let host = Client::of(host);
        if let Some(count) = self.0.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&host);
            }
        }
    }

    /// No host has any.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_share_of_its_own_and_gives_it_back() {
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let mut shares = Shares::default();
        for _ in 0..3 {
            assert!(shares.take(one, 3));
        }
        assert!(!shares.take(one, 3) && !shares.has_room(one, 3));
        assert!(shares.has_room(one, 4));
        assert!(shares.take(other, 3));
        shares.give_back(one);
        assert!(shares.take(one, 3) && !shares.take(one, 3));
        for _ in 0..3 {
            shares.give_back(one);
        }
        shares.give_back(other);
        // One too many is no fault of the count.
        shares.give_back(other);
        assert!(shares.0.is_empty());
    }
}
