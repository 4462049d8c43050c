//! Which of the connections that are being opened makes room for a new one when the table is full.
//!
//! A real host repeats its SYN: after 1 s, then after twice the time before (RFC 6298, sections 2
//! and 5.5). A host whose SYN was forged, or that has given up, does not. So after every copy of
//! its SYN, a connection waits for the next copy, and one whose client is *overdue* makes room. A
//! client is overdue after one and a half times the interval at which it repeats:
//!
//! | copies that have arrived | overdue after the last one |
//! | --- | --- |
//! | 1 | 1.5 s |
//! | 2 | 3 s |
//! | 3 | 6 s |
//!
//! No connection is given up while there is room, so a slow client loses nothing unless the table
//! is full.

use std::collections::{BTreeMap, BTreeSet};

use midspan_units::{Time, TimeSpan};

/// How long the second copy of a SYN is awaited.
pub const PATIENCE: TimeSpan = TimeSpan::from_milliseconds(1500);

/// Further copies than this do not make the wait longer.
const MOST_DOUBLINGS: u32 = 6;

/// Connections whose SYN is held, ordered by when their clients are overdue. `C` is a client, `K` a
/// connection. All operations take logarithmic time; there are as many entries as connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited<C, K> {
    entries: BTreeMap<K, Entry<C>>,
    due: BTreeSet<(Time, K)>,
    due_of_client: BTreeMap<C, BTreeSet<(Time, K)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<C> {
    client: C,
    due: Time,
    repetitions: u32,
}

impl<C, K> Default for Awaited<C, K> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            due_of_client: BTreeMap::new(),
        }
    }
}

impl<C: Ord + Copy, K: Ord + Copy> Awaited<C, K> {
    /// The first SYN of a connection has arrived, or the client starts again: the next copy is
    /// awaited.
    pub fn begin(&mut self, now: Time, client: C, connection: K) {
        self.set(now, client, connection, 0);
    }

    /// Another copy of the SYN has arrived. Does nothing if the connection is unknown.
    pub fn repeat(&mut self, now: Time, connection: K) {
        if let Some(entry) = self.entries.get(&connection) {
            let (client, repetitions) = (entry.client, entry.repetitions.saturating_add(1));
            self.set(now, client, connection, repetitions);
        }
    }

    /// The SYN is no longer held.
    pub fn end(&mut self, connection: K) {
        if let Some(entry) = self.entries.remove(&connection) {
            self.due.remove(&(entry.due, connection));
            if let Some(due) = self.due_of_client.get_mut(&entry.client) {
                due.remove(&(entry.due, connection));
                if due.is_empty() {
                    self.due_of_client.remove(&entry.client);
                }
            }
        }
    }

    /// The connection, of any client, that has been overdue for longest.
    #[must_use]
    pub fn overdue(&self, now: Time) -> Option<K> {
        let (due, connection) = self.due.first()?;
        (*due <= now).then_some(*connection)
    }

    /// The connection of one client that has been overdue for longest.
    #[must_use]
    pub fn overdue_of(&self, now: Time, client: C) -> Option<K> {
        let (due, connection) = self.due_of_client.get(&client)?.first()?;
        (*due <= now).then_some(*connection)
    }

    /// Number of awaited connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    fn set(&mut self, now: Time, client: C, connection: K, repetitions: u32) {
        self.end(connection);
        let due = now + PATIENCE * (1 << repetitions.min(MOST_DOUBLINGS));
        let entry = Entry {
            client,
            due,
            repetitions,
        };
        self.entries.insert(connection, entry);
        self.due.insert((due, connection));
        let of_client = self.due_of_client.entry(client).or_default();
        of_client.insert((due, connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    #[test]
    fn the_longest_overdue_makes_room_and_whoever_repeats_does_not() {
        let mut awaited = Awaited::default();
        awaited.begin(at(0), 'a', 1);
        awaited.begin(at(100), 'b', 2);
        awaited.begin(at(200), 'a', 3);
        assert_eq!(awaited.overdue(at(1499)), None);
        assert_eq!(awaited.overdue(at(1500)), Some(1));
        // The client of the first repeats its SYN after 1 s, 3 s and 7 s, as Linux does.
        awaited.repeat(at(1000), 1);
        assert_eq!(awaited.overdue(at(1600)), Some(2));
        assert_eq!(awaited.overdue_of(at(1600), 'a'), None);
        assert_eq!(awaited.overdue_of(at(1700), 'a'), Some(3));
        awaited.end(2);
        awaited.end(3);
        for (time, copy) in [(3999, 3000), (8999, 7000)] {
            assert_eq!(awaited.overdue(at(time)), None);
            awaited.repeat(at(copy), 1);
        }
        assert_eq!(awaited.overdue(at(18_999)), None);
        assert_eq!(awaited.overdue(at(19_000)), Some(1));
    }

    #[test]
    fn a_connection_that_begins_anew_is_awaited_anew() {
        let mut awaited = Awaited::default();
        awaited.begin(at(0), 'a', 1);
        awaited.repeat(at(1000), 1);
        awaited.begin(at(2000), 'a', 1);
        assert_eq!((awaited.count(), awaited.overdue(at(3499))), (1, None));
        assert_eq!(awaited.overdue(at(3500)), Some(1));
        awaited.repeat(at(2000), 7);
        awaited.end(7);
        assert_eq!(awaited.count(), 1);
    }

    #[test]
    fn very_many_copies_do_no_harm() {
        let mut awaited = Awaited::default();
        awaited.begin(at(0), 'a', 1);
        for _ in 0..1000 {
            awaited.repeat(at(0), 1);
        }
        assert_eq!(awaited.overdue(at(96_000)), Some(1));
    }

    proptest! {
        /// The indexes agree with the entries, whatever happens.
        #[test]
        fn nothing_stays_behind(steps in proptest::collection::vec((0..3, 0_u64..4, 0_u32..8, 0_u64..900), 1..200)) {
            let mut awaited = Awaited::default();
            let mut now = 0;
            for (what, client, connection, later) in steps {
                now += later;
                match what {
                    0 => awaited.begin(at(now), client, connection),
                    1 => awaited.repeat(at(now), connection),
                    _ => awaited.end(connection),
                }
                let of_clients: usize = awaited.due_of_client.values().map(BTreeSet::len).sum();
                prop_assert_eq!(awaited.due.len(), awaited.count());
                prop_assert_eq!(of_clients, awaited.count());
                if let Some(overdue) = awaited.overdue(at(now)) {
                    let entry = awaited.entries[&overdue];
                    prop_assert!(entry.due <= at(now));
                    prop_assert!(awaited.overdue_of(at(now), entry.client).is_some());
                }
            }
        }
    }
}
