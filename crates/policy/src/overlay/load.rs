//! Nodes that get no new sessions for a while: because they are busy, or because they will end.
//!
//! A proxy's service time hardly matters until the proxy is overloaded (Bhole, Table 5: 0.25 or 1.5 ms
//! a packet, 2 % of throughput). So load is no part of a route's length, but a threshold. Before it is reached, the
//! [share](super::kept_share) of the sessions that a node keeps falls; so only a sudden load, or one without
//! other routes, reaches it.

use midspan_units::{Time, TimeSpan};

/// A node is busy with this share of its memory, or of the time of its threads, for this time; it is not busy any more below
/// the second share. All shares are in 1/1000. Memory runs out at once. Of time, the shares of the sessions that nodes
/// keep take care: with 5 s instead of 30 s, a node at 90 % was busy again and again, its sessions made another one busy, and
/// the loads swung by 25 %.
const MEMORY: Limit = Limit {
    busy: 875,
    free: 750,
    lasting: TimeSpan::from_seconds(5),
};
const TIME: Limit = Limit {
    busy: 950,
    free: 800,
    lasting: TimeSpan::from_seconds(30),
};
/// A node that has refused a session because it has no room is busy for this time.
const REFUSED: TimeSpan = TimeSpan::from_seconds(5);

/// When a node is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    busy: u16,
    free: u16,
    lasting: TimeSpan,
}

/// Whether one share has reached its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Reached {
    since: Option<Time>,
    is_busy: bool,
}

impl Reached {
    fn note(&mut self, now: Time, share: u16, limit: &Limit) {
        self.since = match share >= limit.busy {
            true => self.since.or(Some(now)),
            false => None,
        };
        if self
            .since
            .is_some_and(|since| now.since(since) >= limit.lasting)
        {
            self.is_busy = true;
        } else if share < limit.free {
            self.is_busy = false;
        }
    }
}

/// Whether this node is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusyRule {
    memory: Reached,
    time: Reached,
}

impl BusyRule {
    /// Takes the used share of the memory budget, and of the time of the threads, both in 1/1000;
    /// returns whether the node is busy.
    pub fn note(&mut self, now: Time, memory: u16, busy_time: u16) -> bool {
        self.memory.note(now, memory, &MEMORY);
        self.time.note(now, busy_time, &TIME);
        self.memory.is_busy || self.time.is_busy
    }
}

/// The time over which reported loads are smoothed: some reports, which are 2 s old on average and arrive every 2 s. So
/// ingresses that share a node do not all follow each report of it at once.
const SMOOTHED: TimeSpan = TimeSpan::from_seconds(10);

/// What is known of another node's load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NodeLoad {
    is_busy: bool,
    is_draining: bool,
    refused: Option<Time>,
    /// The smoothed load in 1/1000, and when the newest report arrived.
    smoothed: Option<(f64, Time)>,
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

    /// The node has reported this load in 1/1000.
    pub fn note(&mut self, now: Time, load: u16) {
        let load = f64::from(load);
        let smoothed = self.smoothed.map_or(load, |(before, at)| {
            let elapsed = now.since(at).as_seconds();
            before + (load - before) * elapsed / (elapsed + SMOOTHED.as_seconds())
        });
        self.smoothed = Some((smoothed, now));
    }

    /// The smoothed load in 1/1000; 0 without a report.
    #[must_use]
    pub fn smoothed(&self) -> u16 {
        // Between 0 and 65,535, like all loads.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        self.smoothed.map_or(0, |(load, _)| load.round() as u16)
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
    fn a_node_is_busy_after_five_seconds_without_memory_and_until_it_is_well_below() {
        let mut rule = BusyRule::default();
        assert!(!rule.note(at(0), 875, 0) && !rule.note(at(4), 1_000, 0));
        // A pause begins the time again.
        assert!(!rule.note(at(5), 874, 0) && !rule.note(at(6), 875, 0));
        assert!(!rule.note(at(10), 900, 0) && rule.note(at(11), 900, 0));
        assert!(rule.note(at(12), 750, 0) && !rule.note(at(13), 749, 0));
    }

    #[test]
    fn a_node_is_busy_after_thirty_seconds_without_time() {
        let mut rule = BusyRule::default();
        assert!(!rule.note(at(0), 0, 950) && !rule.note(at(29), 0, 1_000));
        assert!(rule.note(at(30), 0, 950) && rule.note(at(31), 0, 800));
        assert!(!rule.note(at(32), 749, 799));
    }

    #[test]
    fn loads_are_smoothed_over_ten_seconds() {
        let mut load = NodeLoad::default();
        assert_eq!(load.smoothed(), 0);
        load.note(at(0), 600);
        assert_eq!(load.smoothed(), 600);
        // After 10 s, an old and a new load count the same.
        load.note(at(10), 200);
        assert_eq!(load.smoothed(), 400);
        for second in 11..60 {
            load.note(at(second), 900);
        }
        assert!((890..=900).contains(&load.smoothed()));
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
