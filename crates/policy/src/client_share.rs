//! The share of one client in a proxy that other clients use too, and which sessions are evicted.
//!
//! A client that opens many connections, or whose connections never end, must not shut out other
//! clients. So one client gets a [quarter](share_of_client) of the sessions that the proxy can carry, but at
//! least [`LEAST_SHARE`]. If [7/8](is_crowded) of the places for sessions are in use, an idle session is
//! evicted for each new one: the longest idle session of the client with the most sessions. Sessions that
//! have moved data recently ([`IDLE`]) are never evicted, and a client loses none while another client has
//! more sessions.

use std::collections::{BTreeMap, BTreeSet};

use midspan_units::{Time, TimeSpan};

/// Every client gets this many sessions, however few the proxy can carry.
pub const LEAST_SHARE: u64 = 100;

/// A session that has moved no data for this long may be evicted.
pub const IDLE: TimeSpan = TimeSpan::from_seconds(60);

/// How many sessions one client may have if the proxy can carry `carried` in all.
#[must_use]
pub const fn share_of_client(carried: u64) -> u64 {
    let share = carried / 4;
    if share > LEAST_SHARE {
        share
    } else {
        LEAST_SHARE
    }
}

/// Whether so much is in use (7/8 of `most`) that sessions are evicted.
#[must_use]
pub const fn is_crowded(used: u64, most: u64) -> bool {
    used >= most - most / 8
}

/// A session that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleSession<C, K> {
    /// The client that the session belongs to.
    pub client: C,
    /// When the session last moved data.
    pub since: Time,
    /// Identifies the session.
    pub key: K,
}

/// Idle sessions, found one after the other, of which some are [chosen](Self::choose) to be evicted.
///
/// A proxy may have very many of them. Only the clients with the most sessions are kept, and of each client only the
/// longest idle sessions: the choice is the same as if all were kept.
#[derive(Debug)]
pub struct IdleSessions<C, K> {
    most: usize,
    clients: BTreeMap<C, BTreeSet<(Time, K)>>,
    /// The same clients, by the number of all their sessions.
    order: BTreeSet<(u32, C)>,
}

impl<C: Ord + Copy, K: Ord + Copy> IdleSessions<C, K> {
    /// None yet; at most this many will be chosen.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self {
            most,
            clients: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// A session is [idle](IDLE), and its client has `count` sessions in all.
    pub fn offer(&mut self, count: u32, session: IdleSession<C, K>) {
        let client = session.client;
        if !self.clients.contains_key(&client) {
            if self.clients.len() >= self.most {
                let least = self.order.first().copied();
                let Some(least) = least.filter(|least| *least < (count, client)) else {
                    return;
                };
                self.order.remove(&least);
                self.clients.remove(&least.1);
            }
            self.order.insert((count, client));
        }
        let idle = self.clients.entry(client).or_default();
        idle.insert((session.since, session.key));
        if idle.len() > self.most {
            idle.pop_last();
        }
    }

    /// Whether idle sessions of this client are kept.
    #[must_use]
    pub fn has(&self, client: &C) -> bool {
        self.clients.contains_key(client)
    }

    /// Chooses the sessions that are evicted, in this order, each with the time since which it is idle. `others`: the
    /// largest number of sessions of a client of which none is [kept](Self::has). Each step takes the longest idle
    /// session of the client that has the most sessions at that point; if that client has no idle session, the choice
    /// ends. Of clients with equally many sessions, one with an idle session comes first.
    #[must_use]
    pub fn choose(mut self, mut others: Option<u32>) -> Vec<(K, Time)> {
        let mut chosen = Vec::new();
        while chosen.len() < self.most
            && let Some((count, client)) = self.order.pop_last()
            && others.is_none_or(|others| others <= count)
            && let Some(idle) = self.clients.get_mut(&client)
            && let Some((since, key)) = idle.pop_first()
        {
            chosen.push((key, since));
            let left = count.saturating_sub(1);
            if idle.is_empty() {
                others = others.max(Some(left));
            } else {
                self.order.insert((left, client));
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The choice from all idle sessions, written as plainly as possible. `sessions`: the number of sessions of each client.
    fn plain<C: Ord + Copy, K: Ord + Copy>(
        sessions: &BTreeMap<C, u32>,
        idle: impl IntoIterator<Item = IdleSession<C, K>>,
        most: usize,
    ) -> Vec<K> {
        let mut of_client: BTreeMap<C, BTreeSet<(Time, K)>> = BTreeMap::new();
        for session in idle {
            let sessions = of_client.entry(session.client).or_default();
            sessions.insert((session.since, session.key));
        }
        // Of clients with equally many sessions, one with an idle session comes first.
        let has_idle = |client| of_client.contains_key(client);
        let mut order: BTreeSet<(u32, bool, C)> = sessions
            .iter()
            .map(|(client, count)| (*count, has_idle(client), *client))
            .collect();
        let mut chosen = Vec::new();
        while chosen.len() < most
            && let Some((count, _, client)) = order.pop_last()
            && let Some(idle) = of_client.get_mut(&client)
            && let Some((_, key)) = idle.pop_first()
        {
            chosen.push(key);
            order.insert((count.saturating_sub(1), !idle.is_empty(), client));
        }
        chosen
    }

    /// The choice from sessions that are offered one after the other.
    fn makes_way<C: Ord + Copy, K: Ord + Copy>(
        sessions: &BTreeMap<C, u32>,
        idle: impl IntoIterator<Item = IdleSession<C, K>>,
        most: usize,
    ) -> Vec<K> {
        let mut all = IdleSessions::new(most);
        for session in idle {
            if let Some(count) = sessions.get(&session.client) {
                all.offer(*count, session);
            }
        }
        let others = sessions.iter().filter(|(client, _)| !all.has(client));
        let others = others.map(|(_, count)| *count).max();
        let chosen = all.choose(others).into_iter();
        chosen.map(|(key, _)| key).collect()
    }

    fn idle(client: char, second: u64, key: u32) -> IdleSession<char, u32> {
        IdleSession {
            client,
            since: Time::ZERO + TimeSpan::from_seconds(second),
            key,
        }
    }

    #[test]
    fn a_client_has_a_quarter_and_a_hundred_at_least() {
        let share = [0, 100, 399, 400, 404, 40_000].map(share_of_client);
        assert_eq!(share, [100, 100, 100, 100, 101, 10_000]);
    }

    #[test]
    fn crowded_begins_at_seven_eighths() {
        assert!(!is_crowded(6, 8) && is_crowded(7, 8) && is_crowded(8, 8));
        assert!(!is_crowded(0, 1) && is_crowded(1, 1));
        assert!(!is_crowded(u64::MAX / 2, u64::MAX));
    }

    #[test]
    fn the_longest_idle_of_the_client_with_most_makes_way() {
        let sessions = BTreeMap::from([('a', 2), ('b', 4), ('c', 3)]);
        let all = [
            idle('a', 1, 1),
            idle('b', 9, 2),
            idle('b', 5, 3),
            idle('c', 3, 4),
            idle('c', 2, 5),
        ];
        assert_eq!(makes_way(&sessions, all, 1), [3]);
        // Then both have three, and in the end all have two, of which the last is idle.
        assert_eq!(makes_way(&sessions, all, 9), [3, 5, 2, 4, 1]);
    }

    #[test]
    fn whoever_has_most_and_is_busy_costs_nobody_a_session() {
        let sessions = BTreeMap::from([('a', 2), ('b', 3)]);
        assert!(makes_way(&sessions, [idle('a', 1, 1)], 9).is_empty());
        let equal = BTreeMap::from([('a', 3), ('b', 3)]);
        assert_eq!(makes_way(&equal, [idle('a', 1, 1)], 9), [1]);
        assert!(makes_way::<char, u32>(&BTreeMap::new(), [idle('x', 1, 1)], 9).is_empty());
    }

    proptest! {
        #[test]
        fn keeping_some_gives_the_same_choice_as_keeping_all(
            clients in proptest::collection::vec((1_u32..6, 0_u32..6), 1..40),
            order in proptest::collection::vec(0_u64..1000, 240),
            most in 0_usize..12,
        ) {
            let counts: BTreeMap<usize, u32> =
                clients.iter().map(|(count, _)| *count).enumerate().collect();
            let mut idle = Vec::new();
            for (client, (count, number)) in clients.iter().enumerate() {
                for number in 0..*number.min(count) {
                    let at = order[client * 6 + number as usize];
                    idle.push(IdleSession {
                        client,
                        since: Time::from_nanoseconds(at % 20),
                        key: (at, client, number),
                    });
                }
            }
            let expected = plain(&counts, idle.clone(), most);
            prop_assert_eq!(&makes_way(&counts, idle.clone(), most), &expected);
            idle.sort_by_key(|session| session.key);
            prop_assert_eq!(&makes_way(&counts, idle, most), &expected);
        }

        /// No client gets below another's number by more than one.
        #[test]
        fn those_with_few_keep_theirs(
            counts in proptest::collection::btree_map(0_u8..6, 1_u32..20, 1..6),
            most in 0_usize..60,
        ) {
            let idle = counts.iter().flat_map(|(client, count)| (0..*count).map(|number| IdleSession {
                client: *client,
                since: Time::from_nanoseconds(u64::from(number)),
                key: (*client, number),
            }));
            let chosen = makes_way(&counts, idle, most);
            let all: u32 = counts.values().sum();
            prop_assert_eq!(chosen.len(), most.min(all as usize));
            let mut left = counts.clone();
            for (client, _) in chosen {
                let highest = *left.values().max().unwrap();
                let own = left.get_mut(&client).unwrap();
                prop_assert_eq!(*own, highest);
                *own -= 1;
            }
        }
    }
}
