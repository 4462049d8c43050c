//! What a node reports to the nodes that ask for it: the legs out of it, and its load.

use std::cell::Cell;
use std::sync::Arc;

use midspan_units::{BitRate, Probability, Time, TimeSpan};

use super::NodeName;
use super::estimate::{Congestion, LegEstimate};
use super::loss::UNKNOWN_LOSS;

/// Most legs of a row: one to each other node of the largest overlay.
pub const MOST_ROW_LEGS: usize = 64;

/// The legs out of one node, as it has measured them, and its load. Rows are not passed on: a node
/// gets the legs of another node from that node itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The legs to nodes that are up; at most [`MOST_ROW_LEGS`].
    pub legs: Vec<RowLeg>,
    /// The larger one of the used shares of its memory and of its busiest thread's time, in 1/1000.
    pub load: u16,
    /// It has no room for more sessions.
    pub is_busy: bool,
    /// It will end.
    pub is_draining: bool,
}

/// One leg of a row: from the node that reports it to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLeg {
    /// The node at its other end.
    pub to: NodeName,
    /// Its present round trip.
    pub round_trip: TimeSpan,
    /// Its loss, in the direction of the node at its other end.
    pub loss: Probability,
    /// Its rate in the same direction; `None` if it is unknown.
    pub rate: Option<BitRate>,
    /// The congestion control of its sender.
    pub congestion: Congestion,
}

impl Row {
    /// The leg to this node. The legs are in the order of their names.
    pub(super) fn leg_to(&self, node: &NodeName) -> Option<&RowLeg> {
        self.leg_near(node, &Cell::new(0))
    }

    /// The same, where the leg is probably near this place, as in the row of another node. Stores its place there.
    pub(super) fn leg_near(&self, node: &NodeName, near: &Cell<usize>) -> Option<&RowLeg> {
        if node.uplink().is_some() {
            return self.leg_near(&node.node(), near);
        }
        let at = near.get();
        // Of several legs to the same node, the first one counts.
        let is_first = |place: &usize| {
            let before = place.checked_sub(1).and_then(|place| self.legs.get(place));
            self.legs.get(*place).is_some_and(|leg| leg.to == *node)
                && before.is_none_or(|leg| leg.to != *node)
        };
        let guesses = [Some(at), at.checked_sub(1), at.checked_add(1)];
        let place = guesses.into_iter().flatten().find(is_first);
        let place = place.unwrap_or_else(|| self.legs.partition_point(|leg| leg.to < *node));
        let leg = self.legs.get(place).filter(|leg| leg.to == *node)?;
        near.set(place);
        Some(leg)
    }

    /// The largest rate to this node.
    pub(super) fn rate_to(&self, node: &NodeName) -> Option<BitRate> {
        let first = self.legs.partition_point(|leg| leg.to < *node);
        let legs = self.legs.iter().skip(first);
        let to_it = legs.take_while(|leg| leg.to == *node);
        to_it.filter_map(|leg| leg.rate).max()
    }

    /// Keeps this number of legs, in the order of their names.
    pub(super) fn in_order(row: &mut Arc<Self>, most: usize) {
        let is_in_order = row.legs.is_sorted_by(|one, next| one.to <= next.to);
        if row.legs.len() > most || !is_in_order {
            let row = Arc::make_mut(row);
            row.legs.truncate(most);
            row.legs.sort_by(|one, other| one.to.cmp(&other.to));
        }
    }
}

impl RowLeg {
    /// The leg to this node; `None` if its round trip is unknown.
    #[must_use]
    pub fn of(now: Time, to: NodeName, leg: &LegEstimate) -> Option<Self> {
        let loss = Probability::from_f64(leg.loss.get(now));
        Some(Self {
            to,
            round_trip: leg.round_trip.get(now)?,
            loss: loss.or_else(|| Probability::from_f64(UNKNOWN_LOSS))?,
            rate: leg.rate.get(now),
            congestion: leg.congestion,
        })
    }
}
