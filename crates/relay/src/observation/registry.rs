//! The numbers of all listeners of all threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ListenerCounters, ListenerTotals};

/// Most names of removed listeners whose counters are kept.
const FORMER_LIMIT: usize = 1000;

/// The counters of all threads; threads and listeners may be added and removed.
#[derive(Debug, Default)]
pub struct Registry {
    content: Mutex<Content>,
    sessions: AtomicU64,
}

#[derive(Debug, Default)]
struct Content {
    counters: Vec<Arc<ListenerCounters>>,
    /// The sums of counters to which no thread adds any more: published counters never decrease.
    former: BTreeMap<String, ListenerTotals>,
}

impl Registry {
    /// New counters for a listener in one thread. Counters of the same name are added up.
    pub fn counters(&self, name: &str) -> Arc<ListenerCounters> {
        let counters = Arc::new(ListenerCounters::new(name));
        let mut content = self.lock();
        content.retire();
        content.counters.push(Arc::clone(&counters));
        counters
    }

    /// The number of the next session.
    pub fn next_session(&self) -> u64 {
        // This happens once per connection, so a shared cache line costs little.
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The numbers of each listener by its name.
    pub fn totals(&self) -> BTreeMap<String, ListenerTotals> {
        let content = self.lock();
        let mut totals = content.former.clone();
        for counters in &content.counters {
            let name = counters.name.to_string();
            counters.add_to(totals.entry(name).or_default());
        }
        totals
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Adds counters to the sums if no listener and no session refers to them any more.
    fn retire(&mut self) {
        let former = &mut self.former;
        self.counters.retain(|counters| {
            if Arc::strong_count(counters) > 1 {
                return true;
            }
            let name = counters.name.to_string();
            if former.contains_key(&name) || former.len() < FORMER_LIMIT {
                counters.add_to(former.entry(name).or_default());
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_stays_when_the_listener_goes() {
        let registry = Registry::default();
        let first = registry.counters("web");
        let second = registry.counters("web");
        first.opened.add(2);
        second.opened.add(3);
        assert_eq!(registry.totals()["web"].opened, 5);
        drop(first);
        let third = registry.counters("web");
        third.opened.add(1);
        registry.counters("mail");
        assert_eq!(registry.totals()["web"].opened, 6);
        assert_eq!(registry.lock().counters.len(), 3);
    }
}
