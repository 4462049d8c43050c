//! A node after this one on a route, and what is known of the legs between two such nodes.

use std::cell::Cell;

use midspan_units::{Time, TimeSpan};

use crate::overlay::known::{KnownOverlay, NodeState};
use crate::overlay::timed_legs::LegsOut;
use crate::overlay::{NodeName, RowLeg};

/// A node after this one, and what is known of it.
pub struct Stop<'a> {
    /// Its name.
    pub name: &'a NodeName,
    /// Its row, its load, and when it answered last.
    pub state: NodeState<'a>,
    /// Reported times of the legs that begin at it.
    timed: Option<&'a LegsOut>,
    /// The place of the leg to it in the row that was read last.
    near: Cell<usize>,
}

/// What is known of the leg between two nodes, neither of which is this one.
#[derive(Clone, Copy)]
pub struct Between<'a> {
    /// The round trip by the newest measurement.
    pub round_trip: Option<TimeSpan>,
    /// As the first and as the second one report it.
    pub reports: [Option<&'a RowLeg>; 2],
}

impl KnownOverlay {
    /// What is known of a node. The leg to it is probably near this place in the rows of other nodes.
    pub(super) fn stop<'a>(&'a self, now: Time, name: &'a NodeName, near: usize) -> Stop<'a> {
        Stop {
            name,
            state: self.node_state(now, name),
            timed: self.timed().from(name),
            near: Cell::new(near),
        }
    }
}

impl Between<'_> {
    /// The same leg from its other end.
    pub const fn reversed(&self) -> Self {
        let [one, other] = self.reports;
        Self {
            round_trip: self.round_trip,
            reports: [other, one],
        }
    }
}

impl<'a> Stop<'a> {
    /// The round trip of the leg to another node: that of [`between`](Self::between), mostly with one search only.
    pub fn round_trip_to(&self, now: Time, to: &Self) -> Option<TimeSpan> {
        let arrived = |stop: &Self| stop.state.row.map(|(at, _)| at);
        let (newer, other) = match arrived(to) > arrived(self) {
            true => (to, self),
            false => (self, to),
        };
        if let Some((at, row)) = newer.state.row
            && arrived(other) < Some(at)
        {
            let is_older = |stop: &Self| stop.timed.is_none_or(|legs| legs.newest() < at);
            if is_older(self)
                && is_older(to)
                && let Some(leg) = row.leg_near(other.name, &other.near)
            {
                return Some(leg.round_trip);
            }
        }
        self.between(now, to).round_trip
    }

    /// What is known of the leg to another node.
    pub fn between(&self, now: Time, to: &Self) -> Between<'a> {
        let reported = |from: &Self, to: &Self| {
            let (at, row) = from.state.row?;
            Some((at, row.leg_near(to.name, &to.near)?))
        };
        let reports = [reported(self, to), reported(to, self)];
        let of_reports = reports.iter().flatten();
        let of_reports = of_reports.map(|(at, leg)| (*at, leg.round_trip));
        // Of measurements at the same time, the longest one counts.
        let mut newest = of_reports.max();
        // A node that reports its other legs, and not this one, cannot use it at present.
        let is_silent = |stop: &Self| stop.state.row.is_none_or(|(_, row)| row.legs.is_empty());
        if newest.is_some() || (is_silent(self) && is_silent(to)) {
            for (from, to) in [(self, to), (to, self)] {
                let may_count = |legs: &LegsOut| newest.is_none_or(|(at, _)| legs.newest() >= at);
                if from.timed.is_some_and(may_count) {
                    newest = newest.max(from.timed_to(now, to));
                }
            }
        }
        Between {
            round_trip: newest.map(|(_, round_trip)| round_trip),
            reports: reports.map(|report| report.map(|(_, leg)| leg)),
        }
    }

    /// The round trip of the leg to another node, as times of sessions show it, and when the newest one was noted.
    fn timed_to(&self, now: Time, to: &Self) -> Option<(Time, TimeSpan)> {
        let legs = self.timed?;
        let estimate = match to.name.uplink() {
            None => legs.get(to.name),
            Some(_) => legs.get(&to.name.node()),
        }?;
        Some((estimate.noted()?, estimate.careful(now)?))
    }
}
