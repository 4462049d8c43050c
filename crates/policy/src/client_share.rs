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

/// Chooses the sessions that are evicted, at most `most`, in this order. `sessions`: the number of
/// sessions of each client. `idle`: all or some of the [idle](IDLE) ones. Each step takes the
/// longest idle session of the client that has the most sessions at that point; if that client has
/// no idle session, the choice ends.
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
