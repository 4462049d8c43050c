//! The servers of a listener that has several, as all threads share them, and the choice of one for each session.
//! [`Servers`] has the rules.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::servers::{Server, ServerAddress, Servers};
use midspan_units::Time;

/// The servers of one listener.
pub type ServerPool = Mutex<Servers>;

/// A session at a server, or one that is being connected to it, until this is dropped.
#[derive(Debug)]
pub struct ServerUse {
    pool: Arc<ServerPool>,
    at: ServerAddress,
}

/// The servers that one session tries: the second one if the first fails.
#[derive(Debug)]
pub struct ServerChoice {
    pool: Arc<ServerPool>,
    first: ServerAddress,
    second: Option<ServerAddress>,
    /// Those to which it is being connected.
    begun: Vec<ServerUse>,
}

impl ServerUse {
    /// The server, if it still belongs to the listener.
    pub fn server(&self) -> Option<Server> {
        lock(&self.pool).get(self.at.server).cloned()
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        lock(&self.pool).end(self.at.server);
    }
}

impl ServerChoice {
    /// The servers for a session that `may` use only some addresses; `None` if there is none.
    pub fn new(
        pool: &Arc<ServerPool>,
        now: Time,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Option<Self> {
        let servers = lock(pool);
        let first = servers.choose(now, None, &may)?;
        let second = servers.choose(now, Some(first), &may);
        drop(servers);
        Some(Self {
            pool: Arc::clone(pool),
            first,
            second,
            begun: Vec::new(),
        })
    }

    /// The first address.
    pub const fn first(&self) -> SocketAddr {
        self.first.address
    }

    /// The addresses in the order in which they are tried.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all().map(|of| of.address).collect()
    }

    fn all(&self) -> impl Iterator<Item = ServerAddress> + use<> {
        std::iter::once(self.first).chain(self.second)
    }

    /// The session is being connected to this address.
    pub fn begin(&mut self, address: SocketAddr) {
        if let Some(at) = self.all().find(|of| of.address == address) {
            lock(&self.pool).begin(at);
            let pool = Arc::clone(&self.pool);
            self.begun.push(ServerUse { pool, at });
        }
    }

    /// The session cannot be connected to this address; whether the server is the reason.
    pub fn fail(&mut self, now: Time, address: SocketAddr, is_of_server: bool) {
        self.begun.retain(|of| of.at.address != address);
        if is_of_server && let Some(at) = self.all().find(|of| of.address == address) {
            lock(&self.pool).note_failed_session(now, at);
        }
    }

    /// The session is connected to this address, or (`None`) there was no answer in time. Servers that have not
    /// answered meanwhile have failed.
    pub fn end(&mut self, now: Time, connected: Option<SocketAddr>) -> Option<ServerUse> {
        let begun = std::mem::take(&mut self.begun).into_iter();
        let (kept, failed): (Vec<_>, Vec<_>) =
            begun.partition(|of| Some(of.at.address) == connected);
        for of in &failed {
            lock(&self.pool).note_failed_session(now, of.at);
        }
        kept.into_iter().next()
    }
}

/// No code panics while it holds these locks, so the content is always consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::servers::{Health, ServerSettings};

    fn pool() -> Arc<ServerPool> {
        let pool = ServerPool::default();
        let servers = ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"];
        let settings = ServerSettings {
            servers: servers
                .map(|text| Server::Address(text.parse().unwrap()))
                .to_vec(),
            health_check: None,
        };
        lock(&pool).set(Time::ZERO, &settings, &mut 0);
        Arc::new(pool)
    }

    fn sessions(pool: &ServerPool) -> Vec<u64> {
        let readings = lock(pool).readings(Time::ZERO);
        readings.into_iter().map(|of| of.sessions).collect()
    }

    fn suspects(pool: &ServerPool) -> Vec<bool> {
        let readings = lock(pool).readings(Time::ZERO);
        let is_suspect = |health| health == Some(Health::Suspect);
        readings
            .into_iter()
            .map(|of| is_suspect(of.health))
            .collect()
    }

    #[test]
    fn a_session_counts_where_it_is_and_the_failed_server_is_suspect() {
        let pool = pool();
        let mut choice = ServerChoice::new(&pool, Time::ZERO, |_| true).unwrap();
        let addresses = choice.addresses();
        assert_eq!(addresses.len(), 2);
        choice.begin(addresses[0]);
        assert_eq!(sessions(&pool), [1, 0, 0]);
        choice.fail(Time::ZERO, addresses[0], true);
        choice.begin(addresses[1]);
        assert_eq!(sessions(&pool), [0, 1, 0]);
        let kept = choice.end(Time::ZERO, Some(addresses[1])).unwrap();
        drop(choice);
        assert_eq!(sessions(&pool), [0, 1, 0]);
        assert_eq!(kept.server().unwrap().to_string(), "192.0.2.2:80");
        assert_eq!(suspects(&pool), [true, false, false]);
        drop(kept);
        assert_eq!(sessions(&pool), [0, 0, 0]);
    }

    #[test]
    fn a_server_without_an_answer_has_failed_and_one_without_a_fault_has_not() {
        let pool = pool();
        let mut choice = ServerChoice::new(&pool, Time::ZERO, |_| true).unwrap();
        choice.begin(choice.first());
        choice.fail(Time::ZERO, choice.first(), false);
        assert_eq!(suspects(&pool), [false; 3]);
        let second = choice.addresses()[1];
        choice.begin(second);
        assert!(choice.end(Time::ZERO, None).is_none());
        assert_eq!(suspects(&pool), [false, true, false]);
        assert_eq!(sessions(&pool), [0, 0, 0]);
    }

    #[test]
    fn only_addresses_that_may_be_used_are_chosen() {
        let pool = pool();
        let last: SocketAddr = "192.0.2.3:80".parse().unwrap();
        let choice = ServerChoice::new(&pool, Time::ZERO, |address| address == last).unwrap();
        assert_eq!(choice.addresses(), [last]);
        assert!(ServerChoice::new(&pool, Time::ZERO, |_| false).is_none());
    }
}
