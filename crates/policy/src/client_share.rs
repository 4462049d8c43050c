//! What one client may take of a proxy that others use as well, and who makes way for others.
//!
//! A client that opens many connections, or whose connections nobody ends, must not shut the others
//! out. So one client gets a [quarter](share_of_client) of what the proxy carries, and beyond
//! [7/8](is_crowded) a session makes way for each new one: the longest idle of the client that has
//! most. A client that moves data loses nothing, and neither does one that has few sessions.

use std::collections::{BTreeMap, BTreeSet};

use midspan_units::{Time, TimeSpan};

/// A client gets so many sessions however little the proxy carries.
pub const LEAST_SHARE: u64 = 100;

/// A session that has moved nothing for so long may make way.
pub const IDLE: TimeSpan = TimeSpan::from_seconds(60);

/// Sessions of one client, where so many can be carried in all.
#[must_use]
pub const fn share_of_client(carried: u64) -> u64 {
    let share = carried / 4;
    if share > LEAST_SHARE {
        share
    } else {
        LEAST_SHARE
    }
}

/// So much of something is in use that sessions make way: 7/8.
#[must_use]
pub const fn is_crowded(used: u64, most: u64) -> bool {
    used >= most - most / 8
}

/// A session that may make way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleSession<C, K> {
    /// Whose it is.
    pub client: C,
    /// When it moved anything last.
    pub since: Time,
    /// Its name.
    pub key: K,
}

/// Which sessions make way, at most so many, in this order. `sessions` are those of each client;
/// `idle` are all or some of those that are [idle](IDLE). Each time it is the turn of the client that
/// then has most; where it has none that is idle, nobody makes way.
pub fn makes_way<C: Ord + Copy, K: Ord + Copy>(
    sessions: &BTreeMap<C, u32>,
    idle: impl IntoIterator<Item = IdleSession<C, K>>,
    most: usize,
) -> Vec<K> {
    let mut of_client: BTreeMap<C, BTreeSet<(Time, K)>> = BTreeMap::new();
    for session in idle {
        let sessions = of_client.entry(session.client).or_default();
        sessions.insert((session.since, session.key));
    }
    // Of clients that have equally many, that with an idle session comes first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
