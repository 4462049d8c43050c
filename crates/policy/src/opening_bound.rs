//! How many connections may be in the process of opening at a time: enough for long paths, few for a flood.
//!
//! By Little's law, the number of openings at a time is the rate of new connections times the
//! duration of one opening: over a satellite (0.6 s), 10,000 a second are 6,000 at a time. A fixed limit
//! is therefore a limit of the rate, and the longer the path is, the lower this rate. But connections
//! that are never completed, because their SYNs were forged or their servers are dead, must not take
//! up descriptors and memory without a bound.
//!
//! So the configured limit grows by the connections that were *completed* in the last [`WINDOW`]. That is
//! rate times window, which is more than rate times opening time wherever an opening takes less than the
//! window. A forged SYN is never completed, so a flood does not raise the limit. The limit of one
//! client grows in the same way, up to a quarter of the limit of all, so that many hosts behind one
//! address are served and other clients keep their part. The limit of all grows to at most a quarter of the
//! process's descriptors, and to at most 65,536.
//!
//! The configured limit decides how fast the rate may grow: like the window of a slow start, the
//! connections of one opening time make room for those of the next.

use std::collections::BTreeMap;

use midspan_units::{Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// Completed connections count for at least this long.
pub const WINDOW: TimeSpan = TimeSpan::from_seconds(2);
/// Time of one of the counts of which the window consists.
const SLOT: TimeSpan = TimeSpan::from_seconds(1);
/// Counts: those of the window, and the one that is being filled.
const SLOTS: usize = 3;
/// The part of all openings that one client may have, however many it completes, as a divisor.
const SHARE: usize = 4;
/// Clients without openings are remembered if they completed at least this many connections
/// together, …
const NOTABLE: u64 = 32;
/// … and if no more clients than this are known.
const CLIENTS: usize = 16_384;

/// The upper limit of all openings on any machine, and the part of the descriptors that they may
/// take, as a divisor. Each opening has one.
const MOST: usize = 65_536;
const DESCRIPTORS: u64 = 4;

/// Limits of connections that are being opened at a time; none by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpeningLimits {
    /// By all clients together, while none is completed.
    pub all: usize,
    /// By one client, while it completes none.
    pub per_client: usize,
    /// By all clients together, however many are completed; at least `all`.
    pub most: usize,
}

impl OpeningLimits {
    /// The configured limits of all clients together and of each, in a process that may have this many
    /// descriptors (`None`: any number).
    #[must_use]
    pub fn new(all: usize, per_client: usize, descriptors: Option<u64>) -> Self {
        let by_descriptors = descriptors.map_or(u64::MAX, |most| most / DESCRIPTORS);
        let most = usize::try_from(by_descriptors).unwrap_or(usize::MAX);
        Self {
            all,
            per_client,
            most: most.min(MOST).max(all),
        }
    }

    /// The descriptors with which this many connections may be being opened at a time; `None` if they
    /// are too many for any machine.
    #[must_use]
    pub const fn descriptors_for(openings: u64) -> Option<u64> {
        if openings > MOST as u64 {
            return None;
        }
        Some(openings * DESCRIPTORS)
    }
}

/// Why no further connection may be opened at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// This client has too many.
    OfClient,
    /// All clients together have too many.
    All,
}

/// Counts connections that are being opened, in all and by each client `C`.
#[derive(Debug, Clone)]
pub struct OpeningBound<C> {
    limits: OpeningLimits,
    all: Account,
    clients: BTreeMap<C, Account>,
}

/// Connections that are being opened, and those that were completed.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    openings: usize,
    completed: Completed,
}

/// Connections that were completed in the last seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Completed {
    /// The number of the newest second.
    slot: u64,
    /// Of this second and of those before it.
    counts: [u64; SLOTS],
}

impl<C: Ord + Copy> OpeningBound<C> {
    /// No connections yet.
    #[must_use]
    pub const fn new(limits: OpeningLimits) -> Self {
        const NONE: Account = Account {
            openings: 0,
            completed: Completed {
                slot: 0,
                counts: [0; SLOTS],
            },
        };
        Self {
            limits,
            all: NONE,
            clients: BTreeMap::new(),
        }
    }

    /// Changes the limits; connections that are being opened continue.
    pub const fn change_limits(&mut self, limits: OpeningLimits) {
        self.limits = limits;
    }

    /// A connection of this client begins to be opened.
    ///
    /// # Errors
    /// There are too many; then nothing is counted.
    pub fn begin(&mut self, now: Time, client: C) -> Result<(), Full> {
        let most = self.limit(now);
        let of_client = self.clients.get(&client).copied().unwrap_or_default();
        if of_client.openings >= self.limit_of(now, &of_client) {
            return Err(Full::OfClient);
        }
        if self.all.openings >= most {
            return Err(Full::All);
        }
        self.all.openings += 1;
        self.clients.entry(client).or_default().openings += 1;
        Ok(())
    }

    /// A connection of this client has become a session.
    pub fn complete(&mut self, now: Time, client: C) {
        self.all.completed.note(now);
        if let Some(account) = self.clients.get_mut(&client) {
            account.completed.note(now);
        }
        self.end(now, client);
    }

    /// A connection of this client will not become a session.
    pub fn give_up(&mut self, now: Time, client: C) {
        self.end(now, client);
    }

    /// Forgets clients whose completed connections count no longer. To be called about once a second.
    pub fn forget_old(&mut self, now: Time) {
        self.clients
            .retain(|_, account| account.openings > 0 || account.completed.count(now) > 0);
    }

    /// The present limit of all clients together.
    #[must_use]
    pub fn limit(&self, now: Time) -> usize {
        let OpeningLimits { all, most, .. } = self.limits;
        grown(all, self.all.completed.count(now), most)
    }

    /// Number of connections that are being opened.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.all.openings
    }

    fn limit_of(&self, now: Time, account: &Account) -> usize {
        let most = self.limit(now) / SHARE;
        grown(self.limits.per_client, account.completed.count(now), most)
    }

    fn end(&mut self, now: Time, client: C) {
        self.all.openings = self.all.openings.saturating_sub(1);
        let has_room = self.clients.len() <= CLIENTS;
        if let Some(account) = self.clients.get_mut(&client) {
            account.openings = account.openings.saturating_sub(1);
            let is_kept = has_room && account.completed.count(now) >= NOTABLE;
            if account.openings == 0 && !is_kept {
                self.clients.remove(&client);
            }
        }
    }
}

/// A limit that has grown by the completed connections, up to `most`.
fn grown(limit: usize, completed: u64, most: usize) -> usize {
    let completed = usize::try_from(completed).unwrap_or(usize::MAX);
    limit.saturating_add(completed).min(most.max(limit))
}

impl Completed {
    fn note(&mut self, now: Time) {
        self.turn_to(slot(now));
        self.counts[0] = self.counts[0].saturating_add(1);
    }

    /// Those of the last [`WINDOW`] at least.
    fn count(mut self, now: Time) -> u64 {
        self.turn_to(slot(now));
        self.counts.iter().sum()
    }

    fn turn_to(&mut self, slot: u64) {
        let passed = slot.saturating_sub(self.slot);
        for _ in 0..passed.min(SLOTS as u64) {
            self.counts.rotate_right(1);
            self.counts[0] = 0;
        }
        self.slot = self.slot.max(slot);
    }
}

const fn slot(now: Time) -> u64 {
    now.nanoseconds() / SLOT.nanoseconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const LIMITS: OpeningLimits = OpeningLimits {
        all: 4096,
        per_client: 128,
        most: 32_768,
    };

    fn milliseconds(milliseconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
    }

    /// A client opens this many connections at a time, and all are completed.
    fn together(bound: &mut OpeningBound<u64>, now: Time, client: u64, count: usize) {
        for _ in 0..count {
            bound.begin(now, client).unwrap();
        }
        for _ in 0..count {
            bound.complete(now, client);
        }
    }

    /// For some seconds, this many clients open this many connections a second each, which take this
    /// many milliseconds. Returns how many of the last second's connections were refused.
    fn refused(clients: u64, rate: u64, takes: u64, seconds: u64) -> u64 {
        let mut bound = OpeningBound::new(LIMITS);
        let mut opening: VecDeque<(u64, u64)> = VecDeque::new();
        let mut refused = 0;
        for millisecond in 0..seconds * 1000 {
            let now = milliseconds(millisecond);
            while let Some((done, client)) = opening.front().copied()
                && done <= millisecond
            {
                opening.pop_front();
                bound.complete(now, client);
            }
            for client in 0..clients {
                let before = rate * millisecond / 1000;
                for _ in before..rate * (millisecond + 1) / 1000 {
                    match bound.begin(now, client) {
                        Ok(()) => opening.push_back((millisecond + takes, client)),
                        Err(_) if millisecond >= (seconds - 1) * 1000 => refused += 1,
                        Err(_) => {}
                    }
                }
            }
            if millisecond % 1000 == 0 {
                bound.forget_old(now);
            }
        }
        refused
    }

    #[test]
    fn openings_take_at_most_a_quarter_of_the_descriptors() {
        let most = |descriptors| OpeningLimits::new(4096, 128, descriptors).most;
        assert_eq!(most(Some(100_000)), 25_000);
        assert_eq!([most(Some(1 << 30)), most(None)], [65_536; 2]);
        let of = |openings: u64| OpeningLimits::descriptors_for(openings);
        assert_eq!([of(25_000), of(65_537)], [Some(100_000), None]);
        // What the operator has configured holds in any case.
        assert_eq!(most(Some(1024)), 4096);
    }

    #[test]
    fn a_satellite_carries_any_rate_after_a_few_round_trips() {
        // With a fixed limit of 4,096, 6,800 a second were the most; for one client, 213.
        assert_eq!(refused(100, 120, 600, 4), 0);
        assert_eq!(refused(20, 1000, 600, 6), 0);
        assert_eq!(refused(1, 2000, 600, 8), 0);
        // An opening that takes as long as the window.
        assert_eq!(refused(1, 100, 2000, 8), 0);
    }

    #[test]
    fn what_is_never_completed_finds_the_configured_limit() {
        let mut bound = OpeningBound::new(LIMITS);
        let flood = |bound: &mut OpeningBound<u64>, now, clients: u64| {
            let each = |client| std::iter::repeat_n(client, 1000);
            let all = (0..clients).flat_map(each);
            all.filter(|client| bound.begin(now, *client).is_ok())
                .count()
        };
        assert_eq!(flood(&mut bound, milliseconds(0), 10), 1280);
        assert_eq!(flood(&mut bound, milliseconds(10), 1000), 4096 - 1280);
        assert_eq!(bound.begin(milliseconds(20), 9_999), Err(Full::All));
        assert_eq!(bound.begin(milliseconds(20), 3), Err(Full::OfClient));
        for client in 0..32 {
            for _ in 0..128 {
                bound.give_up(milliseconds(30), client);
            }
        }
        // What was given up earns nothing.
        assert_eq!((bound.count(), bound.limit(milliseconds(40))), (0, 4096));
    }

    #[test]
    fn what_was_completed_counts_for_two_seconds_and_not_for_four() {
        let mut bound = OpeningBound::new(LIMITS);
        together(&mut bound, milliseconds(999), 1, 100);
        assert_eq!(bound.limit(milliseconds(999)), 4196);
        assert_eq!(bound.limit(milliseconds(2_999)), 4196);
        assert_eq!(bound.limit(milliseconds(4_000)), 4096);
        assert_eq!(bound.clients.len(), 1);
        bound.forget_old(milliseconds(2_999));
        assert_eq!(bound.clients.len(), 1);
        bound.forget_old(milliseconds(4_000));
        assert_eq!(bound.clients.len(), 0);
    }

    #[test]
    fn one_client_has_at_most_a_quarter_and_all_have_an_upper_limit() {
        let mut bound = OpeningBound::new(LIMITS);
        for _ in 0..1000 {
            together(&mut bound, milliseconds(1), 1, 100);
        }
        let begun = (0..100_000).filter(|_| bound.begin(milliseconds(2), 1).is_ok());
        assert_eq!(begun.count(), 32_768 / 4);
        assert_eq!(bound.begin(milliseconds(2), 2), Ok(()));
        assert_eq!(bound.limit(milliseconds(2)), 32_768);
    }

    #[test]
    fn the_number_of_remembered_clients_is_bounded() {
        let mut bound = OpeningBound::new(LIMITS);
        for client in 0..20_000 {
            together(&mut bound, milliseconds(1), client, 32);
        }
        assert_eq!(bound.clients.len(), CLIENTS);
        // One connection after the other needs no more room.
        for _ in 0..100 {
            together(&mut bound, milliseconds(1), 99_999, 1);
        }
        assert_eq!(bound.clients.len(), CLIENTS);
    }

    proptest! {
        #[test]
        fn counts_stay_right_and_within_the_limits(
            steps in proptest::collection::vec((0_u64..600, 0_u8..4, 0_u8..3), 1..300),
        ) {
            let limits = OpeningLimits { all: 8, per_client: 3, most: 12 };
            let mut bound = OpeningBound::new(limits);
            let mut openings = [0_usize; 4];
            let mut now = Time::ZERO;
            for (pause, client, step) in steps {
                now += TimeSpan::from_milliseconds(pause);
                let own = &mut openings[usize::from(client)];
                match step {
                    0 => *own += usize::from(bound.begin(now, client).is_ok()),
                    _ if *own == 0 => bound.forget_old(now),
                    1 => {
                        *own -= 1;
                        bound.complete(now, client);
                    }
                    _ => {
                        *own -= 1;
                        bound.give_up(now, client);
                    }
                }
                prop_assert_eq!(bound.count(), openings.iter().sum::<usize>());
                prop_assert!(bound.count() <= 12);
                for (client, openings) in (0_u8..).zip(openings) {
                    let counted = bound.clients.get(&client).map_or(0, |it| it.openings);
                    prop_assert_eq!(counted, openings);
                }
            }
        }
    }
}
