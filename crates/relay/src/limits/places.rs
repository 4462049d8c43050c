//! Places for sessions, in all and per client.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use super::{SessionLimits, Shortage, lock};
use crate::server_pool::ServerUse;

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
///
/// The number has the inverted bits of the first half of the address, so that it is never 0: the last multicast network
/// counts as its neighbour. IPv4 addresses are in `::/64`, which no IPv6 client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(NonZero<u64>);

impl Client {
    pub const fn of(address: IpAddr) -> Self {
        let half = match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits() as u64,
            #[allow(clippy::cast_possible_truncation)]
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        };
        match NonZero::new(!half) {
            Some(number) => Self(number),
            None => Self(NonZero::<u64>::MIN),
        }
    }
}

/// Places of one listener, of a group of them, or of all.
#[derive(Debug)]
pub struct Places {
    content: Mutex<Content>,
    /// The places of a group or of all listeners, which include these places.
    wider: Option<Arc<Self>>,
}

#[derive(Debug)]
struct Content {
    limits: SessionLimits,
    share: Option<u32>,
    taken: u32,
    /// Contains only clients that have a place.
    clients: BTreeMap<Client, u32>,
}

/// A place of a session, or of a connection that is being opened, until this is dropped. Another thread than the
/// owner's may give it back before.
#[derive(Debug, Default)]
pub struct Seat(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// Where the place is, until it is given back.
    places: Option<Arc<Places>>,
    /// `None` until a PROXY header contains the client.
    client: Option<Client>,
    /// The session's server, if it was chosen from several.
    server: Option<Box<ServerUse>>,
}

impl Places {
    pub const fn new(limits: SessionLimits, wider: Option<Arc<Self>>) -> Self {
        let content = Content {
            limits,
            share: None,
            taken: 0,
            clients: BTreeMap::new(),
        };
        Self {
            content: Mutex::new(content),
            wider,
        }
    }

    pub fn change(&self, limits: SessionLimits) {
        lock(&self.content).limits = limits;
    }

    /// Sets the share of one client, which applies if the operator has not set a limit for a
    /// listener or for all.
    pub fn set_share(&self, share: Option<u32>) {
        lock(&self.content).share = share;
    }

    /// Number of used places, and the limit.
    pub fn taken(&self) -> (u32, Option<u32>) {
        let content = lock(&self.content);
        (content.taken, content.limits.sessions)
    }

    /// Number of each client's places.
    #[cfg(test)]
    pub fn of_clients(&self) -> BTreeMap<Client, u32> {
        lock(&self.content).clients.clone()
    }

    /// Number of places of each of these clients.
    pub fn of_these(&self, clients: impl Iterator<Item = Client>) -> Vec<u32> {
        let content = lock(&self.content);
        clients
            .map(|client| content.clients.get(&client).copied().unwrap_or(0))
            .collect()
    }

    /// The largest number of places of a client for which `is_meant` holds.
    pub fn most_of_one(&self, is_meant: impl Fn(&Client) -> bool) -> Option<u32> {
        let content = lock(&self.content);
        let mut most = None;
        for (client, count) in &content.clients {
            if Some(*count) > most && is_meant(client) {
                most = Some(*count);
            }
        }
        most
    }

    /// If these places belong to a listener whose clients share the relay's capacity: the group of
    /// such listeners.
    pub fn group(&self) -> Option<&Arc<Self>> {
        self.wider.as_ref().filter(|wider| wider.wider.is_some())
    }

    /// These places and the ones that include them.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |places| places.wider.as_deref())
    }

    /// The same, each with whether the operator has set a limit per client at a narrower level.
    fn levels(&self) -> impl Iterator<Item = (&Self, bool)> {
        let mut said = false;
        self.chain().map(move |places| {
            let was_said = said;
            said |= lock(&places.content).limits.sessions_per_client.is_some();
            (places, was_said)
        })
    }

    pub fn take(places: &Arc<Self>, client: Option<Client>) -> Result<Seat, Shortage> {
        let mut taken: Vec<&Self> = Vec::with_capacity(3);
        for (level, is_said) in places.levels() {
            if let Err(shortage) = lock(&level.content).take(client, is_said) {
                for level in taken {
                    lock(&level.content).give_back(client);
                }
                return Err(shortage);
            }
            taken.push(level);
        }
        Ok(Seat::at(places, client))
    }
}

impl Places {
    /// A place for a session of another relay, even beyond the limits.
    pub fn take_over(places: &Arc<Self>, client: Client) -> Seat {
        for level in places.chain() {
            lock(&level.content).take_over(client);
        }
        Seat::at(places, Some(client))
    }
}

impl Seat {
    fn at(places: &Arc<Places>, client: Option<Client>) -> Self {
        Self(Mutex::new(Taken {
            places: Some(Arc::clone(places)),
            client,
            server: None,
        }))
    }

    /// Whether it is a place: it was taken, and has not been given back.
    pub(crate) fn is_taken(&self) -> bool {
        lock(&self.0).places.is_some()
    }

    /// The client, when it is known.
    pub(crate) fn client(&self) -> Option<Client> {
        lock(&self.0).client
    }

    /// Whether this place is one of these, or belongs to a listener of this group.
    pub(crate) fn is_of(&self, places: &Arc<Places>) -> bool {
        let taken = lock(&self.0);
        let Some(own) = &taken.places else {
            return false;
        };
        let group = own.group();
        Arc::ptr_eq(own, places) || group.is_some_and(|group| Arc::ptr_eq(group, places))
    }

    /// Gives the place back, if that has not been done yet.
    pub(crate) fn give_back(&self) {
        let Taken {
            places,
            client,
            server,
        } = std::mem::take(&mut *lock(&self.0));
        drop(server);
        let levels = places.iter().flat_map(|places| places.chain());
        for level in levels {
            lock(&level.content).give_back(client);
        }
    }

    /// Sets the client that a PROXY header contains.
    ///
    /// # Errors
    /// The client has reached its limit; the place still belongs to no client.
    pub fn assign(&self, client: IpAddr) -> Result<(), Shortage> {
        let client = Client::of(client);
        let mut taken = lock(&self.0);
        let Some(places) = taken.places.as_ref().filter(|_| taken.client.is_none()) else {
            return Ok(());
        };
        let mut added: Vec<&Places> = Vec::with_capacity(3);
        for (level, is_said) in places.levels() {
            if let Err(shortage) = lock(&level.content).add_client(client, is_said) {
                for level in added {
                    lock(&level.content).remove_client(client);
                }
                return Err(shortage);
            }
            added.push(level);
        }
        taken.client = Some(client);
        Ok(())
    }

    /// The session counts at this server, until it gives its place back.
    pub(crate) fn set_server(&self, server: ServerUse) {
        let mut taken = lock(&self.0);
        if taken.places.is_some() {
            taken.server = Some(Box::new(server));
        }
    }
}

impl Content {
    fn take(&mut self, client: Option<Client>, is_said: bool) -> Result<(), Shortage> {
        let most = self.limits.sessions;
        if most.is_some_and(|most| self.taken >= most) {
            return Err(Shortage::Sessions);
        }
        if let Some(client) = client {
            self.add_client(client, is_said)?;
        }
        self.taken += 1;
        Ok(())
    }

    /// `is_said`: the operator has set a limit per client of the listener.
    fn add_client(&mut self, client: Client, is_said: bool) -> Result<(), Shortage> {
        let of_client = self.clients.get(&client).copied().unwrap_or(0);
        let share = self.share.filter(|_| !is_said);
        let most = self.limits.sessions_per_client.or(share);
        if most.is_some_and(|most| of_client >= most) {
            return Err(Shortage::Client);
        }
        self.clients.insert(client, of_client + 1);
        Ok(())
    }

    fn take_over(&mut self, client: Client) {
        *self.clients.entry(client).or_default() += 1;
        self.taken += 1;
    }

    fn give_back(&mut self, client: Option<Client>) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(client) = client {
            self.remove_client(client);
        }
    }

    fn remove_client(&mut self, client: Client) {
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
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_pool::{ServerChoice, ServerPool, lock};
    use midspan_policy::servers::{Server, ServerSettings};
    use midspan_units::Time;

    fn limits(sessions: u32, per_client: u32) -> SessionLimits {
        SessionLimits {
            sessions: Some(sessions),
            sessions_per_client: Some(per_client),
        }
    }

    fn client(text: &str) -> Option<Client> {
        Some(Client::of(text.parse().unwrap()))
    }

    #[test]
    fn places_are_bounded_per_client_per_listener_and_in_all_and_come_back() {
        let all = Arc::new(Places::new(limits(3, 2), None));
        let listener = |most| Arc::new(Places::new(most, Some(Arc::clone(&all))));
        let (one, two) = (listener(limits(9, 9)), listener(limits(1, 9)));
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let first = Places::take(&one, a).unwrap();
        let second = Places::take(&two, a).unwrap();
        // This client's limit in all; this listener's limit; the limit of all.
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
    fn a_place_of_nobody_counts_for_a_client_once_that_is_known() {
        let all = Arc::new(Places::new(limits(9, 1), None));
        let one = Arc::new(Places::new(limits(9, 9), Some(Arc::clone(&all))));
        let address = "192.0.2.1".parse().unwrap();
        let first = Places::take(&one, None).unwrap();
        let second = Places::take(&one, None).unwrap();
        first.assign(address).unwrap();
        assert_eq!(second.assign(address), Err(Shortage::Client));
        second.assign("192.0.2.2".parse().unwrap()).unwrap();
        drop(first);
        let third = Places::take(&one, Some(Client::of(address))).unwrap();
        drop((second, third));
        for places in [&all, &one] {
            let content = lock(&places.content);
            assert_eq!((content.taken, content.clients.len()), (0, 0));
        }
    }

    #[test]
    fn one_client_has_its_share_unless_the_operator_says_otherwise() {
        let all = Arc::new(Places::new(SessionLimits::default(), None));
        let default = SessionLimits::default();
        let group = Arc::new(Places::new(default, Some(Arc::clone(&all))));
        group.set_share(Some(2));
        let listener = |limits| Arc::new(Places::new(limits, Some(Arc::clone(&group))));
        let own = SessionLimits {
            sessions: None,
            sessions_per_client: Some(4),
        };
        let (one, two, said) = (listener(default), listener(default), listener(own));
        let (a, b) = (client("192.0.2.1"), client("192.0.2.2"));
        let mut seats = vec![
            Places::take(&one, a).unwrap(),
            Places::take(&two, a).unwrap(),
        ];
        assert_eq!(Places::take(&one, a).unwrap_err(), Shortage::Client);
        seats.push(Places::take(&one, b).unwrap());
        // The share does not apply to a listener with a limit of its own.
        for _ in 0..4 {
            seats.push(Places::take(&said, a).unwrap());
        }
        assert_eq!(Places::take(&said, a).unwrap_err(), Shortage::Client);
        assert_eq!(group.of_clients()[&a.unwrap()], 6);
        assert!(seats[0].is_of(&group) && seats[0].is_of(&one) && !seats[0].is_of(&two));
        drop(seats);
        for places in [&all, &group, &one, &two, &said] {
            let content = lock(&places.content);
            assert_eq!((content.taken, content.clients.len()), (0, 0));
        }
    }

    #[test]
    fn a_place_is_given_back_once() {
        let places = Arc::new(Places::new(limits(2, 2), None));
        let a = client("192.0.2.1");
        let first = Places::take(&places, a).unwrap();
        let second = Places::take(&places, None).unwrap();
        first.give_back();
        assert_eq!(places.taken().0, 1);
        second.give_back();
        // A place that was given back counts for no client any more.
        second.assign("192.0.2.1".parse().unwrap()).unwrap();
        let third = Places::take(&places, a).unwrap();
        drop((first, second));
        assert_eq!(places.taken().0, 1);
        drop(third);
        assert!(places.of_clients().is_empty());
    }

    #[test]
    fn a_session_of_another_relay_counts_beyond_the_limits() {
        let all = Arc::new(Places::new(limits(2, 9), None));
        let one = Arc::new(Places::new(limits(9, 1), Some(Arc::clone(&all))));
        let a = client("192.0.2.1").unwrap();
        let seats = [(); 3].map(|()| Places::take_over(&one, a));
        assert_eq!((all.taken().0, one.of_clients()[&a]), (3, 3));
        assert_eq!(Places::take(&one, Some(a)).unwrap_err(), Shortage::Client);
        drop(seats);
        assert_eq!((all.taken().0, one.of_clients().len()), (0, 0));
        assert!(Places::take(&one, Some(a)).is_ok());
    }

    #[test]
    fn a_session_counts_at_its_server_as_long_as_it_has_its_place() {
        let pool = ServerPool::default();
        let settings = ServerSettings {
            servers: vec![Server::Address("192.0.2.1:80".parse().unwrap())],
            health_check: None,
        };
        lock(&pool).set(Time::ZERO, &settings, &mut 0);
        let pool = Arc::new(pool);
        let mut choice = ServerChoice::new(&pool, Time::ZERO, |_| true).unwrap();
        let first = choice.first();
        choice.begin(first);
        let server = choice.end(Time::ZERO, Some(first)).unwrap();
        let places = Arc::new(Places::new(limits(2, 2), None));
        let seat = Places::take(&places, None).unwrap();
        seat.set_server(server);
        let sessions = || lock(&pool).readings(Time::ZERO)[0].sessions;
        assert_eq!(sessions(), 1);
        // Of a stuck thread, which keeps the seat.
        seat.give_back();
        assert_eq!(sessions(), 0);
        drop(seat);
        assert_eq!(sessions(), 0);
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_mapped_address_is_ipv4() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }
}
