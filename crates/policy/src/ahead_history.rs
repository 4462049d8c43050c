//! What earlier sessions have shown about clients to which data was sent ahead of their window.
//!
//! A client that has acknowledged data beyond its window gets such data from its first flight on. If a segment
//! is lost while data is ahead, either the loss is chance, or the client has discarded the data. The next
//! session with this client then measures the rate before it sends ahead. After two such sessions, or four if
//! the client has ever acknowledged data beyond its window, nothing is sent ahead. A session without such a
//! loss, in which the client acknowledges data beyond its window, ends the count. After each ten minutes
//! without such a loss, one such session is forgiven.
//!
//! If a path loses more than 3 in 1,000 segments, each loss costs more than sending ahead gains. So nothing is
//! sent ahead there either.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{BitRate, Time};
use serde::{Deserialize, Serialize};

use crate::half_life::HalfLife;
use crate::hosts::Hosts;
use crate::part_limit::part_limit;
use crate::prefix::host_prefix;

/// Largest number of remembered clients, if the memory is not divided.
const CLIENTS: usize = 65_536;
/// A client gets nothing ahead after this many sessions in a row in which it failed: if it has
/// never taken data beyond its window, and if it has.
const REFUSED: (u8, u8) = (2, 4);
/// A path is too lossy if more than `LOST` in a thousand segments were sent again, of at least
/// `EVIDENCE`.
const LOST: u64 = 3;
const EVIDENCE: u64 = 500;
/// The counts are halved above this.
const MOST_COUNTED: u64 = 1 << 14;

/// What one session has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AheadRecord {
    /// The client has acknowledged data that was sent beyond its window, and nothing was lost until
    /// then.
    pub is_taken: bool,
    /// A segment was lost while data was beyond the window.
    pub has_failed: bool,
    /// Segments sent, and of these sent again, while nothing was beyond the window.
    pub sent: u32,
    /// Segments sent again.
    pub lost: u32,
    /// The highest rate at which ACKs arrived for longer than a moment.
    pub rate: Option<BitRate>,
}

/// What is known of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AheadHistory {
    has_taken: bool,
    /// Sessions in a row in which data ahead was lost.
    failures: u8,
    sent: u64,
    lost: u64,
}

impl AheadHistory {
    /// Whether data was lost ahead of the window of a client that has never taken any.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        !self.has_taken && self.failures > 0
    }

    /// Whether a session with the client has ended.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.has_taken || self.failures > 0 || self.sent > 0
    }

    /// Whether the client gets data ahead of its window from its first flight on.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.has_taken && self.failures == 0
    }

    /// Whether the client gets nothing ahead of its window.
    #[must_use]
    pub const fn is_refused(&self) -> bool {
        let (never, once) = REFUSED;
        let most = if self.has_taken { once } else { never };
        let is_lossy = self.sent >= EVIDENCE && self.lost * 1000 > self.sent * LOST;
        self.failures >= most || is_lossy
    }

    fn note(&mut self, record: &AheadRecord) {
        self.has_taken |= record.is_taken;
        if record.has_failed {
            self.failures = self.failures.saturating_add(1);
        } else if record.is_taken {
            self.failures = 0;
        }
        self.sent = self.sent.saturating_add(record.sent.into());
        self.lost = self.lost.saturating_add(record.lost.into());
        while self.sent > MOST_COUNTED {
            (self.sent, self.lost) = (self.sent / 2, self.lost / 2);
        }
    }

    /// After this number of half-lives: each forgives one failure, and halves the counts of losses. Without one,
    /// all is forgotten.
    fn aged(mut self, halvings: Option<u8>) -> Self {
        let Some(halvings) = halvings else {
            return Self::default();
        };
        self.failures = self.failures.saturating_sub(halvings);
        (self.sent, self.lost) = (self.sent >> halvings, self.lost >> halvings);
        self
    }
}

/// What is known of all clients.
#[derive(Debug, Clone)]
pub struct AheadHistories {
    clients: BTreeMap<IpNet, (AheadHistory, HalfLife)>,
    /// The clients in the order in which they came.
    order: VecDeque<IpNet>,
    /// Largest number of remembered clients.
    limit: usize,
}

impl Default for AheadHistories {
    fn default() -> Self {
        Self::part_of(1)
    }
}

impl AheadHistories {
    /// One of `parts` parts of a divided memory.
    #[must_use]
    pub(crate) const fn part_of(parts: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            order: VecDeque::new(),
            limit: part_limit(CLIENTS, parts),
        }
    }

    /// What is known of a client.
    #[must_use]
    pub fn of(&self, now: Time, client: IpAddr) -> AheadHistory {
        let known = self.clients.get(&host_prefix(client));
        known.map_or_else(AheadHistory::default, |(history, age)| {
            history.aged(age.halvings(now))
        })
    }

    /// A session with this client has ended.
    pub fn note(&mut self, now: Time, client: IpAddr, record: &AheadRecord) {
        if !record.is_taken && !record.has_failed && record.sent == 0 {
            return;
        }
        let client = host_prefix(client);
        let known = self.clients.get(&client).copied();
        let (history, mut age) = known.unwrap_or((AheadHistory::default(), HalfLife::begin(now)));
        let mut history = history.aged(age.advance(now));
        history.note(record);
        // The ten minutes after which a failure is forgiven begin with the newest failure.
        if record.has_failed {
            age = HalfLife::begin(now);
        }
        if self.clients.insert(client, (history, age)).is_none() {
            self.order.push_back(client);
            while self.order.len() > self.limit {
                if let Some(oldest) = self.order.pop_front() {
                    self.clients.remove(&oldest);
                }
            }
        }
    }

    /// Forgets at most `most` of these clients; returns how many.
    pub(crate) fn forget(&mut self, hosts: &Hosts, most: usize) -> usize {
        hosts.forget(&mut self.clients, &mut self.order, most)
    }

    /// Number of known clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether no client is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_units::TimeSpan;
    use proptest::prelude::*;

    const TAKEN: AheadRecord = AheadRecord {
        is_taken: true,
        has_failed: false,
        sent: 100,
        lost: 0,
        rate: None,
    };
    const FAILED: AheadRecord = AheadRecord {
        is_taken: false,
        has_failed: true,
        sent: 100,
        lost: 0,
        rate: None,
    };

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn after(records: &[AheadRecord]) -> AheadHistory {
        let mut histories = AheadHistories::default();
        for record in records {
            histories.note(seconds(0), client(1), record);
        }
        histories.of(seconds(1), client(1))
    }

    #[test]
    fn a_client_that_took_data_is_trusted_until_it_fails_and_refused_after_four_failures() {
        assert!(!after(&[]).is_doubted() && !after(&[]).is_trusted() && !after(&[]).is_known());
        assert!(after(&[TAKEN]).is_known() && after(&[FAILED]).is_known());
        assert!(after(&[TAKEN]).is_trusted());
        let failed = after(&[TAKEN, FAILED, FAILED, FAILED]);
        assert!(!failed.is_trusted() && !failed.is_doubted() && !failed.is_refused());
        assert!(after(&[TAKEN, FAILED, FAILED, FAILED, FAILED]).is_refused());
        assert!(after(&[TAKEN, FAILED, FAILED, TAKEN]).is_trusted());
    }

    #[test]
    fn a_client_that_never_took_any_is_refused_and_tried_again_later() {
        assert!(!after(&[FAILED]).is_refused() && after(&[FAILED]).is_doubted());
        let mut histories = AheadHistories::default();
        histories.note(seconds(0), client(1), &FAILED);
        histories.note(seconds(0), client(1), &FAILED);
        assert!(histories.of(seconds(599), client(1)).is_refused());
        assert!(!histories.of(seconds(600), client(1)).is_refused());
        histories.note(seconds(600), client(1), &FAILED);
        assert!(histories.of(seconds(601), client(1)).is_refused());
        let unknown = AheadHistory::default();
        assert_eq!(histories.of(seconds(4_200), client(1)), unknown);
        assert_eq!(histories.of(seconds(601), client(2)), unknown);
    }

    /// A client that is refused gets nothing ahead, so its sessions show nothing new. They must not make its failures
    /// young again.
    #[test]
    fn a_client_with_many_sessions_is_tried_again_too() {
        let plain = AheadRecord {
            is_taken: false,
            ..TAKEN
        };
        let mut histories = AheadHistories::default();
        histories.note(seconds(0), client(1), &FAILED);
        histories.note(seconds(0), client(1), &FAILED);
        for second in 1..600 {
            histories.note(seconds(second), client(1), &plain);
            assert!(histories.of(seconds(second), client(1)).is_refused());
        }
        histories.note(seconds(600), client(1), &plain);
        assert!(!histories.of(seconds(601), client(1)).is_refused());
    }

    #[test]
    fn a_lossy_path_is_refused_and_a_little_loss_is_not() {
        let lost = |sent, lost| {
            after(&[
                TAKEN,
                AheadRecord {
                    sent,
                    lost,
                    ..AheadRecord::default()
                },
            ])
        };
        assert!(lost(7_000, 70).is_refused());
        assert!(!lost(7_000, 7).is_refused());
        // Too few segments to judge by.
        assert!(!lost(300, 3).is_refused());
    }

    #[test]
    fn the_number_of_clients_is_bounded() {
        let mut histories = AheadHistories::default();
        for number in 0..70_000_u32 {
            let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            histories.note(seconds(0), address, &TAKEN);
        }
        assert_eq!((histories.len(), histories.order.len()), (CLIENTS, CLIENTS));
        // A session that has found out nothing takes no place.
        let mut empty = AheadHistories::default();
        empty.note(seconds(0), client(1), &AheadRecord::default());
        assert!(empty.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_overflows(
            records in proptest::collection::vec(
                (any::<bool>(), any::<bool>(), any::<u32>(), any::<u32>(), 0_u64..2_000), 0..60),
        ) {
            let mut histories = AheadHistories::default();
            let mut now = 0;
            for (is_taken, has_failed, sent, lost, later) in records {
                now += later;
                let record = AheadRecord { is_taken, has_failed, sent, lost, rate: None };
                histories.note(seconds(now), client(1), &record);
                let history = histories.of(seconds(now), client(1));
                prop_assert!(history.sent <= MOST_COUNTED);
                prop_assert!(!(history.is_doubted() && history.is_trusted()));
            }
        }
    }
}
