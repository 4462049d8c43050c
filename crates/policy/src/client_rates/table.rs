//! A table of a bounded number of prefixes. The prefix that was not used for longest makes room for a new one.
//!
//! Entries are in one list, which grows up to the limit and never shrinks. Each entry is part of a chain of entries
//! with the same place, and of a chain in the order of use. So every operation takes constant time, and a full table
//! allocates nothing.

use midspan_units::{Time, TimeSpan};

use super::bucket::{Bucket, BucketRate};
use super::prefix::{ClientPrefix, PrefixKey};
use super::recent::RecentCount;

/// No entry.
const NONE: u32 = u32::MAX;
/// Most bytes that a session may read at once.
const MOST_AT_ONCE: u64 = 1 << 20;
/// Bounds of the bytes for which a session waits: one segment, and a full pipe of the usual size.
const LEAST_WAITED_FOR: u64 = 1460;
const MOST_WAITED_FOR: u64 = 64 << 10;
/// How often in a second a single session that is held back reads.
const READS_PER_SECOND: u64 = 100;

/// Bytes that a session may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// How many.
    pub bytes: u64,
    /// From when on.
    pub from: Time,
}

/// What is known of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixRates {
    /// The prefix.
    pub prefix: ClientPrefix,
    /// New connections per second, in the last 10 s, also those that were refused.
    pub connections_per_second: u64,
    /// Bytes per second of both directions, in the last 10 s.
    pub bytes_per_second: u64,
    /// Connections that were refused, or passed untouched, since the prefix came into the table.
    pub refused: u64,
    /// Time since the prefix was last used.
    pub unused: TimeSpan,
}

#[derive(Debug)]
struct Entry {
    key: PrefixKey,
    connections: Bucket,
    bytes: Bucket,
    recent_connections: RecentCount,
    recent_bytes: RecentCount,
    refused: u64,
    used: Time,
    /// The next entry with the same place.
    next_at_place: u32,
    newer: u32,
    older: u32,
}

impl Entry {
    fn new(key: PrefixKey, now: Time) -> Self {
        Self {
            key,
            connections: Bucket::default(),
            bytes: Bucket::default(),
            recent_connections: RecentCount::default(),
            recent_bytes: RecentCount::default(),
            refused: 0,
            used: now,
            next_at_place: NONE,
            newer: NONE,
            older: NONE,
        }
    }
}

/// The buckets of a bounded number of prefixes.
#[derive(Debug)]
pub struct PrefixTable {
    entries: Vec<Entry>,
    /// For each place, its first entry. Empty until there is an entry.
    places: Vec<u32>,
    most: usize,
    newest: u32,
    oldest: u32,
}

impl PrefixTable {
    /// An empty table for at most this many prefixes, and at least one.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
            most: if most == 0 { 1 } else { most },
            newest: NONE,
            oldest: NONE,
        }
    }

    /// The number of prefixes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no prefix.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all prefixes.
    pub fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// A new connection of this prefix: whether it is within the rate.
    #[must_use]
    pub fn admit(&mut self, key: PrefixKey, rate: BucketRate, now: Time) -> bool {
        let entry = self.used(key, now);
        entry.recent_connections.add(1, now);
        let is_within = entry.connections.take(rate, 1, now);
        entry.refused += u64::from(!is_within);
        is_within
    }

    /// Bytes for a session of this prefix. They are taken from the bucket now; if they have not come yet, the
    /// session waits for them. So several sessions get their bytes one after the other.
    pub fn grant(&mut self, key: PrefixKey, rate: BucketRate, now: Time) -> Grant {
        let bytes = &mut self.used(key, now).bytes;
        let waited_for = (rate.per_second() / READS_PER_SECOND)
            .clamp(LEAST_WAITED_FOR, MOST_WAITED_FOR)
            .min(rate.burst());
        let granted = bytes.level(rate, now).min(MOST_AT_ONCE).max(waited_for);
        Grant {
            bytes: granted,
            from: bytes.reserve(rate, granted, now),
        }
    }

    /// A session was granted this many bytes, and has read this many. Those that it has not read go back, and
    /// those beyond are taken.
    pub fn settle(&mut self, key: PrefixKey, rate: BucketRate, grant: (u64, u64), now: Time) {
        let (granted, read) = grant;
        let entry = self.used(key, now);
        entry.recent_bytes.add(read, now);
        entry.bytes.give_back(rate, granted.saturating_sub(read));
        if read > granted {
            entry.bytes.reserve(rate, read - granted, now);
        }
    }

    /// All prefixes, in no particular order.
    pub fn rows(&self, now: Time) -> impl Iterator<Item = PrefixRates> {
        self.entries.iter().map(move |entry| PrefixRates {
            prefix: entry.key.prefix(),
            connections_per_second: entry.recent_connections.per_second(now),
            bytes_per_second: entry.recent_bytes.per_second(now),
            refused: entry.refused,
            unused: now.since(entry.used),
        })
    }

    /// The entry of a prefix, which is used now.
    fn used(&mut self, key: PrefixKey, now: Time) -> &mut Entry {
        let at = match self.find(key) {
            Some(at) => {
                self.leave_order(at);
                at
            }
            None => self.insert(key, now),
        };
        self.join_order(at);
        let entry = &mut self.entries[at as usize];
        entry.used = entry.used.max(now);
        entry
    }

    fn find(&self, key: PrefixKey) -> Option<u32> {
        let mut at = *self.places.get(key.place(self.places.len()))?;
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.key.prefix() == key.prefix() {
                return Some(at);
            }
            at = entry.next_at_place;
        }
        None
    }

    /// Adds a prefix that is not in the table, outside of the order of use.
    fn insert(&mut self, key: PrefixKey, now: Time) -> u32 {
        if self.places.is_empty() {
            self.places = vec![NONE; self.most];
        }
        let at = if self.entries.len() < self.most {
            self.entries.push(Entry::new(key, now));
            u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
        } else {
            let oldest = self.oldest;
            self.leave_order(oldest);
            self.leave_place(oldest);
            self.entries[oldest as usize] = Entry::new(key, now);
            oldest
        };
        let place = key.place(self.places.len());
        self.entries[at as usize].next_at_place = std::mem::replace(&mut self.places[place], at);
        at
    }

    /// Takes an entry out of the chain of its place.
    fn leave_place(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (next, place) = (entry.next_at_place, entry.key.place(self.places.len()));
        if self.places[place] == at {
            self.places[place] = next;
            return;
        }
        let mut before = self.places[place];
        while let Some(entry) = self.entries.get_mut(before as usize) {
            if entry.next_at_place == at {
                entry.next_at_place = next;
                return;
            }
            before = entry.next_at_place;
        }
    }

    /// Takes an entry out of the order of use.
    fn leave_order(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (newer, older) = (entry.newer, entry.older);
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Adds an entry to the order of use, as the newest.
    fn join_order(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older) = (NONE, newest);
        match self.entries.get_mut(newest as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::super::prefix::PrefixLengths;
    use super::*;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    fn key(number: u8) -> PrefixKey {
        ClientPrefix::of(IpAddr::from([192, 0, 2, number]), PrefixLengths::default()).keyed(1)
    }

    /// The prefixes of the table, the one that was used last first; checks both chains.
    fn in_order(table: &PrefixTable) -> Vec<ClientPrefix> {
        let mut order = Vec::new();
        let (mut at, mut newer) = (table.newest, NONE);
        while let Some(entry) = table.entries.get(at as usize) {
            assert_eq!(entry.newer, newer);
            assert_eq!(table.find(entry.key), Some(at));
            order.push(entry.key.prefix());
            (newer, at) = (at, entry.older);
        }
        assert_eq!((newer, order.len()), (table.oldest, table.len()));
        order
    }

    #[test]
    fn one_prefix_is_refused_while_another_is_admitted() {
        let rate = BucketRate::new(2, 2);
        let mut table = PrefixTable::new(8);
        let admitted = |table: &mut PrefixTable, number, now| {
            (0..5)
                .filter(|_| table.admit(key(number), rate, at(now)))
                .count()
        };
        assert_eq!(admitted(&mut table, 1, 0), 2);
        assert_eq!(admitted(&mut table, 2, 0), 2);
        assert_eq!(admitted(&mut table, 1, 500), 1);
        let rows: Vec<PrefixRates> = table.rows(at(500)).collect();
        let refused: BTreeSet<u64> = rows.iter().map(|row| row.refused).collect();
        assert_eq!(refused, [3, 7].into());
        assert!(rows.iter().any(|row| row.connections_per_second == 1));
        table.clear();
        assert!(table.is_empty());
        assert_eq!(admitted(&mut table, 1, 500), 2);
    }

    #[test]
    fn sessions_of_a_prefix_get_their_bytes_one_after_the_other() {
        let rate = BucketRate::new(1_000_000, 1_000_000);
        let mut table = PrefixTable::new(8);
        let first = table.grant(key(1), rate, at(0));
        assert_eq!((first.bytes, first.from), (1_000_000, at(0)));
        let second = table.grant(key(1), rate, at(0));
        assert_eq!((second.bytes, second.from), (10_000, at(10)));
        assert_eq!(table.grant(key(1), rate, at(0)).from, at(20));
        // Another prefix does not wait.
        assert_eq!(table.grant(key(2), rate, at(0)).from, at(0));
        // What was not read is there for the next one.
        table.settle(key(1), rate, (first.bytes, 400_000), at(30));
        let next = table.grant(key(1), rate, at(30));
        assert_eq!((next.bytes, next.from), (610_000, at(30)));
        let row = table.rows(at(30)).find(|row| row.prefix == key(1).prefix());
        assert_eq!(row.unwrap().bytes_per_second, 40_000);
    }

    #[test]
    fn a_slow_rate_grants_a_segment_at_a_time() {
        let rate = BucketRate::new(8000, 16_384);
        let mut table = PrefixTable::new(1);
        assert_eq!(table.grant(key(1), rate, at(0)).bytes, 16_384);
        let next = table.grant(key(1), rate, at(0));
        assert_eq!(
            (next.bytes, next.from),
            (1460, Time::from_nanoseconds(182_500_000))
        );
    }

    proptest! {
        /// The table is the newest part of a list without a limit.
        #[test]
        fn the_least_recently_used_makes_room(
            most in 1_usize..12,
            uses in prop::collection::vec(0_u8..30, 0..200),
        ) {
            let mut table = PrefixTable::new(most);
            let rate = BucketRate::new(1, 1);
            let mut model: Vec<ClientPrefix> = Vec::new();
            let mut now = at(0);
            for number in uses {
                now += TimeSpan::from_milliseconds(1);
                let (was_full, capacity) = (table.len() == most, table.entries.capacity());
                let is_known = model.contains(&key(number).prefix());
                let is_admitted = table.admit(key(number), rate, now);
                // A prefix that had to make room begins with a full bucket.
                prop_assert_eq!(is_admitted, !is_known);
                model.retain(|prefix| *prefix != key(number).prefix());
                model.insert(0, key(number).prefix());
                model.truncate(most);
                prop_assert!(table.len() <= most);
                prop_assert_eq!(in_order(&table), model.clone());
                prop_assert!(!was_full || capacity == table.entries.capacity());
            }
        }
    }
}
