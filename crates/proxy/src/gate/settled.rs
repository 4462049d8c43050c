//! SYNs that passed untouched, or were refused, in the last half second.
//!
//! The client may have repeated such a SYN just before, and the copy is already in the queue. If the copy
//! were treated as a new connection, Midspan would connect to its server again, and this attempt would get
//! the network's answer to the SYN that passed. Copies that arrive after a SYN has passed do not reach the
//! queue (`ct status confirmed`). After a refusal, the client's next attempt has another sequence number, so
//! it counts as new.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use midspan_policy::Request;

/// How long a copy may have waited: the gate drops older ones.
const KEPT: Duration = Duration::from_millis(500);
/// Most stored SYNs; beyond, the oldest are dropped.
const LIMIT: usize = 4096;

/// The sequence numbers of SYNs that were settled a moment ago.
#[derive(Debug, Default)]
pub(super) struct SettledSyns {
    sequences: BTreeMap<Request, (u32, Instant)>,
    order: VecDeque<(Instant, Request)>,
}

impl SettledSyns {
    /// The SYN with this sequence number has passed untouched, or was refused.
    pub fn note(&mut self, now: Instant, connection: Request, sequence: u32) {
        if self.order.len() >= LIMIT {
            self.forget_oldest();
        }
        self.sequences.insert(connection, (sequence, now));
        self.order.push_back((now, connection));
    }

    /// Whether a SYN is a copy of one of them.
    pub fn is_copy(&mut self, now: Instant, connection: Request, sequence: u32) -> bool {
        let old = |at: Instant| now.saturating_duration_since(at) > KEPT;
        while self.order.front().is_some_and(|(at, _)| old(*at)) {
            self.forget_oldest();
        }
        let known = self.sequences.get(&connection);
        known.is_some_and(|(known, _)| *known == sequence)
    }

    fn forget_oldest(&mut self) {
        let Some((at, connection)) = self.order.pop_front() else {
            return;
        };
        // Another SYN with the same addresses may have been settled since.
        if self
            .sequences
            .get(&connection)
            .is_some_and(|(_, known)| *known == at)
        {
            self.sequences.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16) -> Request {
        Request {
            client: ([192, 0, 2, 1], port).into(),
            server: ([198, 51, 100, 1], 80).into(),
        }
    }

    #[test]
    fn only_a_copy_is_known_and_only_for_a_moment() {
        let mut settled = SettledSyns::default();
        let start = Instant::now();
        let (one, other) = (connection(1000), connection(1001));
        settled.note(start, one, 7);
        assert!(settled.is_copy(start + KEPT, one, 7));
        // Another attempt from the same port, and another port.
        assert!(!settled.is_copy(start, one, 8));
        assert!(!settled.is_copy(start, other, 7));
        assert!(!settled.is_copy(start + 2 * KEPT, one, 7));
    }

    #[test]
    fn addresses_that_are_settled_again_are_kept_as_long_as_others() {
        let mut settled = SettledSyns::default();
        let start = Instant::now();
        settled.note(start, connection(1000), 7);
        settled.note(start + KEPT, connection(1000), 8);
        let later = start + KEPT + KEPT / 2;
        assert!(settled.is_copy(later, connection(1000), 8));
        assert!(!settled.is_copy(later, connection(1000), 7));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut settled = SettledSyns::default();
        let now = Instant::now();
        for port in 0..=u16::MAX {
            settled.note(now, connection(port), 7);
        }
        assert_eq!(
            (settled.order.len(), settled.sequences.len()),
            (LIMIT, LIMIT)
        );
        assert!(settled.is_copy(now, connection(u16::MAX), 7));
        assert!(!settled.is_copy(now, connection(0), 7));
    }
}
