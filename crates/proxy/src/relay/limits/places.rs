//! Places for sessions, in all and per client.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::{SessionLimits, Shortage, lock};

/// Who counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
///
/// The first half of the address; IPv4 addresses lie in `::/64`, which is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(u64);

impl Client {
    pub const fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_bits() as u64),
            #[allow(clippy::cast_possible_truncation)]
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

/// Places of one listener, or of all.
#[derive(Debug)]
pub struct Places {
    content: Mutex<Content>,
    /// Those of all, for a listener.
    all: Option<Arc<Self>>,
}

#[derive(Debug)]
struct Content {
    limits: SessionLimits,
    taken: u32,
    /// Only clients that have a place.
    clients: BTreeMap<Client, u32>,
}

/// A place that a session, or a connection that is being opened, has until this is dropped.
#[derive(Debug)]
pub struct Seat {
    places: Arc<Places>,
    client: Client,
}

impl Places {
    pub const fn new(limits: SessionLimits, all: Option<Arc<Self>>) -> Self {
        let content = Content {
            limits,
            taken: 0,
            clients: BTreeMap::new(),
        };
        Self {
            content: Mutex::new(content),
            all,
        }
    }

    pub fn change(&self, limits: SessionLimits) {
        lock(&self.content).limits = limits;
    }

    pub fn take(places: &Arc<Self>, client: Client) -> Result<Seat, Shortage> {
        if let Some(all) = &places.all {
            lock(&all.content).take(client)?;
        }
        if let Err(shortage) = lock(&places.content).take(client) {
            if let Some(all) = &places.all {
                lock(&all.content).give_back(client);
            }
            return Err(shortage);
        }
        Ok(Seat {
            places: Arc::clone(places),
            client,
        })
    }
}

impl Content {
    fn take(&mut self, client: Client) -> Result<(), Shortage> {
        let SessionLimits {
            sessions,
            sessions_per_client,
        } = self.limits;
        if sessions.is_some_and(|most| self.taken >= most) {
            return Err(Shortage::Sessions);
        }
        let of_client = self.clients.get(&client).copied().unwrap_or(0);
        if sessions_per_client.is_some_and(|most| of_client >= most) {
            return Err(Shortage::Client);
        }
        self.taken += 1;
        self.clients.insert(client, of_client + 1);
        Ok(())
    }

    fn give_back(&mut self, client: Client) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.places.content).give_back(self.client);
        if let Some(all) = &self.places.all {
            lock(&all.content).give_back(self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(sessions: u32, per_client: u32) -> SessionLimits {
        SessionLimits {
            sessions: Some(sessions),
            sessions_per_client: Some(per_client),
        }
    }

    fn client(text: &str) -> Client {
        Client::of(text.parse().unwrap())
    }

    #[test]
    fn places_are_bounded_per_client_per_listener_and_in_all_and_come_back() {
        let all = Arc::new(Places::new(limits(3, 2), None));
        let listener = |most| Arc::new(Places::new(most, Some(Arc::clone(&all))));
        let (one, two) = (listener(limits(9, 9)), listener(limits(1, 9)));
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let first = Places::take(&one, a).unwrap();
        let second = Places::take(&two, a).unwrap();
        // Of this client in all; of this listener; in all.
        assert_eq!(Places::take(&one, a).unwrap_err(), Shortage::Client);
        assert_eq!(Places::take(&two, b).unwrap_err(), Shortage::Sessions);
        let third = Places::take(&one, b).unwrap();
        assert_eq!(Places::take(&one, b).unwrap_err(), Shortage::Sessions);
        drop(second);
        let fourth = Places::take(&one, b).unwrap();
        all.change(SessionLimits::default());
        let fifth = Places::take(&one, b).unwrap();
        drop((first, third, fourth, fifth));
        for places in [&all, &one, &two] {
            let content = lock(&places.content);
            assert_eq!((content.taken, content.clients.len()), (0, 0));
        }
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_mapped_address_is_ipv4() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }
}
