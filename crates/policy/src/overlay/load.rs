//! Nodes that get no new sessions for a while: because they are busy, or because they will end.
//!
//! A proxy's service time hardly matters until the proxy is overloaded (Bhole, Table 5: 0.25 or 1.5 ms
//! a packet, 2 % of throughput). So load is no part of a route's length, but a threshold.

use midspan_units::{Time, TimeSpan};

/// A node is busy with this share of its memory, or of the time of its threads, in 1/1000, …
const MEMORY: (u16, u16) = (875, 750);
const TIME: (u16, u16) = (800, 600);
/// … for this time; it is not busy any more below the second numbers.
const LASTING: TimeSpan = TimeSpan::from_seconds(5);
/// A node that has refused a session because it has no room is busy for this time.
const REFUSED: TimeSpan = TimeSpan::from_seconds(5);

/// Whether this node is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusyRule {
    since: Option<Time>,
    is_busy: bool,
}

impl BusyRule {
    /// Takes the used share of the memory budget, and of the time of the threads, both in 1/1000;
    /// returns whether the node is busy.
    pub fn note(&mut self, now: Time, memory: u16, busy_time: u16) -> bool {
        let is_above = memory >= MEMORY.0 || busy_time >= TIME.0;
        let is_below = memory < MEMORY.1 && busy_time < TIME.1;
        self.since = match is_above {
            true => self.since.or(Some(now)),
            false => None,
        };
        if self.since.is_some_and(|since| now.since(since) >= LASTING) {
            self.is_busy = true;
        } else if is_below {
            self.is_busy = false;
        }
        self.is_busy
    }
}

/// What is known of another node's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeLoad {
    is_busy: bool,
    is_draining: bool,
    refused: Option<Time>,
}

/// Why a node gets no new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// It has no room.
    Busy,
    /// It will end.
    Draining,
}

impl NodeLoad {
    /// The node has reported its state.
    pub const fn report(&mut self, is_busy: bool, is_draining: bool) {
        (self.is_busy, self.is_draining) = (is_busy, is_draining);
    }

    /// The node has refused a session because it has no room.
    pub const fn refuse(&mut self, now: Time) {
        self.refused = Some(now);
    }

    /// Why it gets no new sessions; `None` if it gets some.
    #[must_use]
    pub fn get(&self, now: Time) -> Option<Overload> {
        let has_refused = |refused: Time| now.since(refused) < REFUSED;
        match (self.is_draining, self.is_busy) {
            (true, _) => Some(Overload::Draining),
            (_, true) => Some(Overload::Busy),
            _ if self.refused.is_some_and(has_refused) => Some(Overload::Busy),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    #[test]
    fn a_node_is_busy_after_five_seconds_above_and_until_it_is_well_below() {
        let mut rule = BusyRule::default();
        assert!(!rule.note(at(0), 0, 900) && !rule.note(at(4), 0, 800));
        // A pause begins the time again.
        assert!(!rule.note(at(5), 0, 799) && !rule.note(at(6), 875, 0));
        assert!(!rule.note(at(10), 900, 0) && rule.note(at(11), 900, 0));
        assert!(rule.note(at(12), 750, 0) && rule.note(at(13), 0, 600));
        assert!(!rule.note(at(14), 749, 599));
    }

    #[test]
    fn a_refusal_counts_for_five_seconds_and_a_report_until_the_next() {
        let mut load = NodeLoad::default();
        assert_eq!(load.get(at(0)), None);
        load.refuse(at(0));
        assert_eq!(load.get(at(4)), Some(Overload::Busy));
        assert_eq!(load.get(at(5)), None);
        load.report(true, false);
        assert_eq!(load.get(at(100)), Some(Overload::Busy));
        load.report(true, true);
        assert_eq!(load.get(at(100)), Some(Overload::Draining));
        load.report(false, false);
        assert_eq!(load.get(at(100)), None);
    }
}
