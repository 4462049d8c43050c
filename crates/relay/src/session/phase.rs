//! The phase of a session's life.

use midspan_units::{Time, TimeSpan};

/// First and longest wait between two checks of an unacknowledged queue.
const FIRST_LOOK: TimeSpan = TimeSpan::from_milliseconds(2);
const LONGEST_LOOK: TimeSpan = TimeSpan::from_milliseconds(100);
/// How often the wait doubles from the first to the longest.
const MOST_DOUBLINGS: u8 = 6;

/// The phase of a session's life; the documentation of [`crate`] has the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The client is connected, and the server has not answered yet.
    Connecting,
    /// Both legs are connected.
    Relaying,
    /// One leg has failed; until the deadline, the other one gets the data that had arrived before.
    Settling {
        /// At this time the session is reset in any case.
        deadline: Time,
        /// How often the session checked whether all data is acknowledged.
        looks: u8,
    },
}

impl Phase {
    /// Begins or continues to settle.
    pub const fn settle_until(&mut self, deadline: Time) {
        if !matches!(self, Self::Settling { .. }) {
            *self = Self::Settling { deadline, looks: 0 };
        }
    }

    /// While settling: when to check next; `None` in other phases.
    pub fn next_look(&mut self, now: Time) -> Option<Time> {
        let Self::Settling { deadline, looks } = self else {
            return None;
        };
        let wait = (FIRST_LOOK * (1_u64 << (*looks).min(MOST_DOUBLINGS))).min(LONGEST_LOOK);
        *looks = looks.saturating_add(1);
        Some((now + wait).min(*deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_become_rarer_until_the_deadline() {
        let (start, milliseconds) = (Time::ZERO, TimeSpan::from_milliseconds);
        let mut phase = Phase::Relaying;
        assert_eq!(phase.next_look(start), None);
        phase.settle_until(start + milliseconds(1000));
        // A session that settles does not begin to settle again.
        phase.settle_until(start + milliseconds(5000));
        let mut now = start;
        let mut waits = Vec::new();
        while now < start + milliseconds(1000) {
            let next = phase.next_look(now).unwrap();
            waits.push(next.since(now));
            now = next;
        }
        assert_eq!(now, start + milliseconds(1000));
        let first = [2, 4, 8, 16, 32, 64, 100, 100].map(milliseconds);
        assert_eq!(waits[..8], first);
    }
}
