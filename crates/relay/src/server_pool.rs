//! The servers of listeners that have several, as all threads share them, and the choice of one for each session.
//! [`Servers`] has the rules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use midspan_policy::servers::{Server, ServerAddress, ServerReading, Servers};
use midspan_units::Time;

use super::control::Clock;
use super::listener::Listener;

/// The servers of all listeners that have several.
#[derive(Debug, Clone)]
pub struct SharedServers {
    lists: Arc<Mutex<Lists>>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Lists {
    /// By the name of the listener. Its servers belong to its acceptors and their sessions, and go with them.
    of_listeners: BTreeMap<String, (Weak<ServerPool>, Arc<Listener>)>,
    /// The last number that a server got.
    last_id: u64,
}

/// The servers of one listener.
#[derive(Debug, Default)]
pub struct ServerPool(Mutex<Servers>);

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

impl SharedServers {
    /// No servers yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            lists: Arc::default(),
            clock,
        }
    }

    /// The servers of a new or changed listener, if it has several. Those of a listener with the same name keep
    /// what is known of them.
    pub fn set(&self, listener: &Arc<Listener>) -> Option<Arc<ServerPool>> {
        let settings = listener.servers.as_ref()?;
        let mut lists = lock(&self.lists);
        let known = lists.of_listeners.get(&listener.name);
        let known = known.and_then(|(pool, _)| pool.upgrade());
        let pool = known.unwrap_or_default();
        (pool.lock()).set(self.clock.now(), settings, &mut lists.last_id);
        let of_listener = (Arc::downgrade(&pool), Arc::clone(listener));
        (lists.of_listeners).insert(listener.name.clone(), of_listener);
        Some(pool)
    }

    /// The servers of each listener that exists, or still has sessions.
    pub fn present(&self) -> Vec<(Arc<ServerPool>, Arc<Listener>)> {
        let mut lists = lock(&self.lists);
        (lists.of_listeners).retain(|_, (pool, _)| pool.strong_count() > 0);
        let all = lists.of_listeners.values();
        all.filter_map(|(pool, listener)| Some((pool.upgrade()?, Arc::clone(listener))))
            .collect()
    }

    /// The servers of each listener by its name, for observers.
    pub fn readings(&self) -> BTreeMap<String, Vec<ServerReading>> {
        let now = self.clock.now();
        let all = self.present().into_iter();
        all.map(|(pool, listener)| (listener.name.clone(), pool.lock().readings(now)))
            .collect()
    }
}

impl ServerPool {
    /// The rules and what is known.
    pub fn lock(&self) -> MutexGuard<'_, Servers> {
        lock(&self.0)
    }
}

impl ServerUse {
    /// The server, if it still belongs to the listener.
    pub fn server(&self) -> Option<Server> {
        self.pool.lock().get(self.at.server).cloned()
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        self.pool.lock().end(self.at.server);
    }
}

impl ServerChoice {
    /// The servers for a session that `may` use only some addresses; `None` if there is none.
    pub fn new(
        pool: &Arc<ServerPool>,
        now: Time,
        may: impl Fn(SocketAddr) -> bool,
    ) -> Option<Self> {
        let servers = pool.lock();
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
            self.pool.lock().begin(at);
            let pool = Arc::clone(&self.pool);
            self.begun.push(ServerUse { pool, at });
        }
    }

    /// The session cannot be connected to this address; whether the server is the reason.
    pub fn fail(&mut self, now: Time, address: SocketAddr, is_of_server: bool) {
        self.begun.retain(|of| of.at.address != address);
        if is_of_server && let Some(at) = self.all().find(|of| of.address == address) {
            self.pool.lock().note_failed_session(now, at);
        }
    }

    /// The session is connected to this address, or (`None`) there was no answer in time. Servers that have not
    /// answered meanwhile have failed.
    pub fn end(&mut self, now: Time, connected: Option<SocketAddr>) -> Option<ServerUse> {
        let begun = std::mem::take(&mut self.begun).into_iter();
        let (kept, failed): (Vec<_>, Vec<_>) =
            begun.partition(|of| Some(of.at.address) == connected);
        for of in &failed {
            self.pool.lock().note_failed_session(now, of.at);
        }
        kept.into_iter().next()
    }
}

/// No code panics while it holds these locks, so the content is always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        pool.lock().set(Time::ZERO, &settings, &mut 0);
        Arc::new(pool)
    }

    fn sessions(pool: &ServerPool) -> Vec<u64> {
        let readings = pool.lock().readings(Time::ZERO);
        readings.into_iter().map(|of| of.sessions).collect()
    }

    fn suspects(pool: &ServerPool) -> Vec<bool> {
        let readings = pool.lock().readings(Time::ZERO);
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
