//! The present threads of a relay, and what former threads have counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Mailbox;
use crate::statistics::{Counters, Statistics};

/// The threads, for everyone who observes the relay. A thread that is replaced leaves its numbers here.
#[derive(Debug, Default)]
pub struct Roster {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    present: Vec<(Arc<Counters>, Arc<Mailbox>)>,
    former: Statistics,
}

impl Roster {
    /// Adds a thread, whose number is the next one.
    pub fn add(&self, counters: Arc<Counters>, mailbox: Arc<Mailbox>) {
        self.lock().present.push((counters, mailbox));
    }

    /// Another thread has this number now. What the former one counts from now on does not matter.
    pub fn replace(&self, number: usize, counters: Arc<Counters>, mailbox: Arc<Mailbox>) {
        let mut content = self.lock();
        let Some(place) = content.present.get_mut(number) else {
            return;
        };
        let (former, old_mailbox) = std::mem::replace(place, (counters, mailbox));
        let mut last = Statistics::default();
        former.add_to(&mut last);
        content.former.add(&last.without_thread());
        content.former.threads_replaced += 1;
        drop(content);
        // Queries that wait get no answer.
        drop(old_mailbox.take());
    }

    /// The numbers of all threads together.
    pub fn statistics(&self) -> Statistics {
        let content = self.lock();
        let mut sum = content.former;
        for (counters, _) in &content.present {
            counters.add_to(&mut sum);
        }
        sum
    }

    /// How many turns each thread has made.
    pub fn turns(&self) -> Vec<u64> {
        let content = self.lock();
        let turns = |(counters, _): &(Arc<Counters>, _)| counters.turns.get();
        content.present.iter().map(turns).collect()
    }

    /// Where the threads get queries.
    pub fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        let content = self.lock();
        let mailbox = |(_, mailbox): &(_, Arc<Mailbox>)| Arc::clone(mailbox);
        content.present.iter().map(mailbox).collect()
    }

    /// Number of threads.
    pub fn len(&self) -> usize {
        self.lock().present.len()
    }

    /// No code panics while it holds this lock, so the content is always consistent.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_replaced_thread_has_counted_stays() {
        let roster = Roster::default();
        let counters: Vec<_> = (0..2).map(|_| Arc::<Counters>::default()).collect();
        for counters in &counters {
            counters.threads_running.set(1);
            counters.turns.add(7);
            counters.sessions_opened.add(5);
            counters.sessions_active.add(3);
            counters.sessions_closed.add(2);
            roster.add(Arc::clone(counters), Arc::default());
        }
        let new = Arc::<Counters>::default();
        new.threads_running.set(1);
        roster.replace(1, Arc::clone(&new), Arc::default());
        // The replaced thread continues.
        counters[1].sessions_active.decrement();
        counters[1].sessions_reset.add(1);
        let now = roster.statistics();
        assert_eq!((now.threads_replaced, now.threads_running), (1, 2));
        assert_eq!((now.sessions_opened, now.sessions_active), (10, 3));
        assert_eq!((now.sessions_closed, now.sessions_reset), (4, 3));
        assert_eq!(roster.turns(), [7, 0]);
        roster.replace(9, Arc::clone(&new), Arc::default());
        assert_eq!(roster.statistics(), now);
        assert_eq!(roster.mailboxes().len(), roster.len());
    }
}
