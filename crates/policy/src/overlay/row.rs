//! What a node reports to the nodes that ask for it: the legs out of it, and its load.

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
