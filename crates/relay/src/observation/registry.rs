//! The numbers of all listeners of all threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Ending, ListenerCounters, ListenerTotals};

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
    /// The counters, each with the number of its thread.
    counters: Vec<(usize, Arc<ListenerCounters>)>,
    /// The sums of counters to which no thread adds any more: published counters never decrease.
    former: BTreeMap<String, ListenerTotals>,
}

impl Registry {
    /// New counters for a listener in one thread. Counters of the same name are added up.
    pub fn counters(&self, thread: usize, name: &str) -> Arc<ListenerCounters> {
        let counters = Arc::new(ListenerCounters::new(name));
        let mut content = self.lock();
        content.retire(|_, counters| Arc::strong_count(counters) == 1);
        content.counters.push((thread, Arc::clone(&counters)));
        counters
    }

    /// A thread has been replaced, and its sessions have been reset: what it counts from now on does not
    /// matter.
    pub fn end_thread(&self, thread: usize) {
        self.lock().retire(|of, _| of == thread);
    }

    /// The number of the next session.
    pub fn next_session(&self) -> u64 {
        // This happens once per connection, so a shared cache line costs little.
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The largest number of a session so far.
    pub fn largest_session(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// The next sessions have larger numbers than this one, which is that of a session of another relay.
    pub fn note_session(&self, id: u64) {
        self.sessions.fetch_max(id, Ordering::Relaxed);
    }

    /// The numbers of each listener by its name.
    pub fn totals(&self) -> BTreeMap<String, ListenerTotals> {
        let content = self.lock();
        let mut totals = content.former.clone();
        for (_, counters) in &content.counters {
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
    /// Adds counters to the sums if no thread adds to them any more. Sessions that they still have as active
    /// have been reset.
    fn retire(&mut self, is_over: impl Fn(usize, &Arc<ListenerCounters>) -> bool) {
        let former = &mut self.former;
        self.counters.retain(|(thread, counters)| {
            if !is_over(*thread, counters) {
                return true;
            }
            let name = counters.name.to_string();
            if former.contains_key(&name) || former.len() < FORMER_LIMIT {
                let totals = former.entry(name).or_default();
                counters.add_to(totals);
                let active = std::mem::take(&mut totals.active);
                if let Some(ended) = totals.ended.get_mut(Ending::Drained.index()) {
                    *ended = ended.wrapping_add(active);
                }
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
        let first = registry.counters(0, "web");
        let second = registry.counters(0, "web");
        first.opened.add(2);
        second.opened.add(3);
        assert_eq!(registry.totals()["web"].opened, 5);
        drop(first);
        let third = registry.counters(0, "web");
        third.opened.add(1);
        registry.counters(0, "mail");
        assert_eq!(registry.totals()["web"].opened, 6);
        assert_eq!(registry.lock().counters.len(), 3);
    }

    #[test]
    fn the_sessions_of_a_replaced_thread_have_ended() {
        let registry = Registry::default();
        let stuck = registry.counters(1, "web");
        let other = registry.counters(0, "web");
        for counters in [&stuck, &other] {
            counters.opened.add(3);
            counters.active.add(2);
            counters.count_end(Ending::Closed);
        }
        registry.end_thread(1);
        // The thread continues, and its numbers do not count.
        stuck.active.decrement();
        stuck.count_end(Ending::Drained);
        let totals = &registry.totals()["web"];
        assert_eq!((totals.opened, totals.active), (6, 2));
        assert_eq!(totals.ended[Ending::Drained.index()], 2);
        assert_eq!(totals.ended[Ending::Closed.index()], 2);
    }
}
