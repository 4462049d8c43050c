//! The servers of all listeners that have several.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use midspan_policy::servers::ServerReading;
use midspan_units::Time;

use super::listener::Listener;
use super::server_pool::{ServerPool, lock};

/// The servers of all listeners that have several.
#[derive(Debug, Clone, Default)]
pub struct SharedServers(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    /// By the name of the listener. Its servers belong to its acceptors and their sessions, and go with them.
    of_listeners: BTreeMap<String, (Weak<ServerPool>, Arc<Listener>)>,
    /// The last number that a server got.
    last_id: u64,
}

impl SharedServers {
    /// The servers of a new or changed listener, if it has several. Those of a listener with the same name keep
    /// what is known of them.
    pub fn set(&self, now: Time, listener: &Arc<Listener>) -> Option<Arc<ServerPool>> {
        let settings = listener.servers.as_ref()?;
        let mut lists = lock(&self.0);
        let known = lists.of_listeners.get(&listener.name);
        let pool = known.and_then(|(pool, _)| pool.upgrade());
        let pool = pool.unwrap_or_default();
        lock(&pool).set(now, settings, &mut lists.last_id);
        let of_listener = (Arc::downgrade(&pool), Arc::clone(listener));
        (lists.of_listeners).insert(listener.name.clone(), of_listener);
        Some(pool)
    }

    /// The servers of each listener that exists, or still has sessions.
    pub fn present(&self) -> Vec<(Arc<ServerPool>, Arc<Listener>)> {
        let mut lists = lock(&self.0);
        (lists.of_listeners).retain(|_, (pool, _)| pool.strong_count() > 0);
        let all = lists.of_listeners.values();
        all.filter_map(|(pool, listener)| Some((pool.upgrade()?, Arc::clone(listener))))
            .collect()
    }

    /// The servers of each listener by its name, for observers.
    pub fn readings(&self, now: Time) -> BTreeMap<String, Vec<ServerReading>> {
        let all = self.present().into_iter();
        all.map(|(pool, listener)| (listener.name.clone(), lock(&pool).readings(now)))
            .collect()
    }
}
