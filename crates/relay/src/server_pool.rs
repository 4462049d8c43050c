//! The servers of a listener that has several, as its threads share them, and the choice of one for each
//! session. [`Servers`] has the rules.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use midspan_policy::servers::{Server, ServerAddress, ServerId, Servers};
use midspan_units::Time;
use rustix::io::Errno;

use super::control::Control;

/// The servers of one listener.
#[derive(Debug)]
pub struct ServerPool {
    servers: Mutex<Servers>,
    /// Wakes the thread that checks the servers.
    control: Arc<Control>,
}

/// A session at a server, or one that is being connected to it, until this is dropped.
#[derive(Debug)]
pub struct ServerUse {
    pool: Arc<ServerPool>,
    server: ServerId,
}

/// The servers that one session tries: the second one if the first fails.
#[derive(Debug)]
pub struct ServerChoice {
    pool: Arc<ServerPool>,
    first: ServerAddress,
    second: Option<ServerAddress>,
    /// Those to which it is being connected.
    begun: Vec<(ServerAddress, ServerUse)>,
}

impl ServerPool {
    /// No servers yet.
    pub fn new(control: Arc<Control>) -> Self {
        Self {
            servers: Mutex::default(),
            control,
        }
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    pub fn lock(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failed(&self, now: Time, at: ServerAddress) {
        let has_changed = self.lock().note_failed_session(now, at);
        if has_changed {
            tracing::debug!(server = %at.address, "a server is suspect: a session cannot connect");
            self.control.wake();
        }
    }
}

impl ServerUse {
    /// The server, if it still belongs to the listener.
    pub fn server(&self) -> Option<Server> {
        self.pool.lock().get(self.server).cloned()
    }
}

impl Drop for ServerUse {
    fn drop(&mut self) {
        self.pool.lock().end(self.server);
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
        let second = servers.choose(now, Some(first.address), &may);
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
            let begun = ServerUse {
                pool: Arc::clone(&self.pool),
                server: at.server,
            };
            self.begun.push((at, begun));
        }
    }

    /// The session cannot be connected to this address.
    pub fn fail(&mut self, now: Time, address: SocketAddr, error: Errno) {
        self.begun.retain(|(of, _)| of.address != address);
        if is_of_server(error)
            && let Some(at) = self.all().find(|of| of.address == address)
        {
            self.pool.note_failed(now, at);
        }
    }

    /// The session is connected to this address, or (`None`) there was no answer in time. Servers that have not
    /// answered meanwhile have failed.
    pub fn end(&mut self, now: Time, connected: Option<SocketAddr>) -> Option<ServerUse> {
        let mut kept = None;
        for (at, begun) in std::mem::take(&mut self.begun) {
            if Some(at.address) == connected {
                kept = Some(begun);
            } else {
                self.pool.note_failed(now, at);
            }
        }
        kept
    }
}

/// Whether a server, or the network, is the reason for this error, and not this machine.
pub const fn is_of_server(error: Errno) -> bool {
    !matches!(
        error,
        Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::ADDRNOTAVAIL
            | Errno::ACCESS
            | Errno::PERM
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_policy::servers::{Health, ServerSettings};

    fn pool() -> Arc<ServerPool> {
        let pool = ServerPool::new(Arc::new(Control::new().unwrap()));
        let servers = ["192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"];
        let settings = ServerSettings {
            servers: servers
                .map(|text| Server::Address(text.parse().unwrap()))
                .to_vec(),
            health_check: None,
        };
        pool.lock().set(Time::ZERO, &settings);
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
        choice.fail(Time::ZERO, addresses[0], Errno::CONNREFUSED);
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
        choice.fail(Time::ZERO, choice.first(), Errno::MFILE);
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
