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
    /// Its present round trip, with a margin if it is noisy: for other nodes, it is always a leg of a route over transit nodes.
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
        let at = near.get();
        let there = |place: usize| self.legs.get(place).filter(|leg| leg.to == *node);
        if let Some(leg) = there(at) {
            return Some(leg);
        }
        // A row has no leg to its own node, so the places after this leg are lower by one than in another row.
        let guesses = [at.wrapping_sub(1), at.wrapping_add(1)];
        let place = guesses.into_iter().find(|place| there(*place).is_some());
        let place = place.unwrap_or_else(|| self.place_near(at, node));
        match there(place) {
            Some(leg) => {
                near.set(place);
                Some(leg)
            }
            // Rows have the names of nodes, without uplinks.
            None if node.uplink().is_some() => self.leg_near(&node.node(), near),
            None => None,
        }
    }

    /// The place of the first leg that is not before this node, by steps from another place that double.
    fn place_near(&self, at: usize, node: &NodeName) -> usize {
        let is_before = |place: usize| self.legs.get(place).is_some_and(|leg| leg.to < *node);
        let (mut low, mut high, mut step) = (at, at, 1);
        while low > 0 && !is_before(low - 1) {
            low = low.saturating_sub(step);
            step *= 2;
        }
        while is_before(high) {
            high = high.saturating_add(step);
            step *= 2;
        }
        let (low, high) = (low.min(self.legs.len()), high.min(self.legs.len()));
        let between = self.legs.get(low..high).unwrap_or(&[]);
        low + between.partition_point(|leg| leg.to < *node)
    }

    /// Keeps this number of legs, in the order of their names. Of several legs to the same node, the first one counts.
    pub(super) fn in_order(row: &mut Arc<Self>, most: usize) {
        let is_in_order = row.legs.is_sorted_by(|one, next| one.to < next.to);
        if row.legs.len() > most || !is_in_order {
            let row = Arc::make_mut(row);
            row.legs.truncate(most);
            row.legs.sort_by(|one, other| one.to.cmp(&other.to));
            row.legs.dedup_by(|next, one| next.to == one.to);
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
            round_trip: leg.round_trip.careful(now)?,
            loss: loss.or_else(|| Probability::from_f64(UNKNOWN_LOSS))?,
            rate: leg.rate.get(now),
            congestion: leg.congestion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(number: usize) -> NodeName {
        format!("n{number:02}").parse().unwrap()
    }

    fn row(nodes: impl IntoIterator<Item = usize>) -> Row {
        let leg = |to: usize| RowLeg {
            to: name(to),
            round_trip: TimeSpan::from_milliseconds(1 + to as u64),
            loss: Probability::ZERO,
            rate: None,
            congestion: Congestion::Cubic,
        };
        let legs = nodes.into_iter().map(leg).collect();
        Row {
            legs,
            ..Row::default()
        }
    }

    #[test]
    fn of_several_legs_to_a_node_the_first_one_counts() {
        let mut both = row([3, 1, 3]);
        both.legs[2].round_trip = TimeSpan::from_milliseconds(900);
        let mut both = Arc::new(both);
        Row::in_order(&mut both, MOST_ROW_LEGS);
        assert_eq!(*both, row([1, 3]));
    }

    proptest! {
        #[test]
        fn a_leg_is_found_from_any_place(
            nodes in proptest::collection::btree_set(0_usize..60, 0..40),
            wanted in proptest::collection::vec(0_usize..60, 0..40),
            near in 0_usize..70,
        ) {
            let (row, near) = (row(nodes.iter().copied()), Cell::new(near));
            for node in wanted {
                let found = row.leg_near(&name(node), &near);
                prop_assert_eq!(found.map(|leg| leg.to.clone()), nodes.contains(&node).then(|| name(node)));
            }
        }
    }
}
