//! The servers of all listeners that have several.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use midspan_policy::servers::ServerReading;

use super::control::{Clock, Control};
use super::listener::Listener;
use super::server_pool::ServerPool;

/// The servers of all listeners that have several.
#[derive(Debug, Clone)]
pub struct SharedServers {
    lists: Arc<Mutex<Lists>>,
    /// Wakes the thread that checks the servers.
    control: Arc<Control>,
    clock: Clock,
}

/// By the name of the listener. Its servers belong to its acceptors and their sessions, and go with them.
type Lists = BTreeMap<String, (Weak<ServerPool>, Arc<Listener>)>;

/// The servers of one listener.
pub struct List {
    pub pool: Arc<ServerPool>,
    pub listener: Arc<Listener>,
}

impl SharedServers {
    /// No servers yet.
    pub fn new(control: Arc<Control>, clock: Clock) -> Self {
        Self {
            lists: Arc::default(),
            control,
            clock,
        }
    }

    /// The servers of a new or changed listener, if it has several. Those of a listener with the same name keep
    /// what is known of them.
    pub fn set(&self, listener: &Arc<Listener>) -> Option<Arc<ServerPool>> {
        let settings = listener.servers.as_ref()?;
        let mut lists = self.lock();
        let known = lists
            .get(&listener.name)
            .and_then(|(pool, _)| pool.upgrade());
        let new = || Arc::new(ServerPool::new(Arc::clone(&self.control)));
        let pool = known.unwrap_or_else(new);
        pool.lock().set(self.clock.now(), settings);
        let of_listener = (Arc::downgrade(&pool), Arc::clone(listener));
        lists.insert(listener.name.clone(), of_listener);
        Some(pool)
    }

    /// The servers of each listener by its name.
    pub fn readings(&self) -> BTreeMap<String, Vec<ServerReading>> {
        let now = self.clock.now();
        let lists = self.present().into_iter();
        lists
            .map(|list| (list.listener.name.clone(), list.pool.lock().readings(now)))
            .collect()
    }

    /// The lists of listeners that exist, or still have sessions.
    pub fn present(&self) -> Vec<List> {
        let mut lists = self.lock();
        lists.retain(|_, (pool, _)| pool.strong_count() > 0);
        let list = |(pool, listener): &(Weak<ServerPool>, Arc<Listener>)| {
            Some(List {
                pool: pool.upgrade()?,
                listener: Arc::clone(listener),
            })
        };
        lists.values().filter_map(list).collect()
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
