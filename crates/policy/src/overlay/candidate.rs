//! One route from the ingress to an exit, as it is at present.

use std::fmt;

use midspan_units::{Probability, Time, TimeSpan};

use super::liveness::Health;
use super::load::Overload;
use super::{NodeName, Route};

/// A route that could be taken, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The route.
    pub route: Route,
    /// The predicted completion time up to the exit; `None` if a leg is not measured.
    pub prediction: Option<TimeSpan>,
    /// Why it is not taken, whatever the prediction; `None` if nothing is against it.
    pub obstacle: Option<Box<Obstacle>>,
    /// The load of its busiest transit node in 1/1000, as the nodes have reported it, smoothed over 10 s.
    pub load: u16,
    /// The share of new sessions that its transit nodes keep; the others take another route.
    pub kept: Probability,
    /// When each of its transit nodes had answered at last: the oldest of these times. `None` if one has never answered.
    /// Without transit nodes, the time of the comparison.
    pub transit_heard: Option<Time>,
}

/// Why a route is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The round trip of a leg is unknown. Unknown is not zero: such a route has no rank.
    Unmeasured {
        /// The node at the leg's beginning.
        from: NodeName,
        /// The node at its end.
        to: NodeName,
    },
    /// A call over a leg between two other nodes has failed recently.
    Broken {
        /// The node at the leg's beginning.
        from: NodeName,
        /// The node at its end.
        to: NodeName,
    },
    /// The next node is not up.
    Unwell(NodeName, Health),
    /// A node gets no new sessions.
    Overloaded(NodeName, Overload),
}

impl Candidate {
    /// The prediction, if the route may be taken.
    #[must_use]
    pub fn rank(&self) -> Option<TimeSpan> {
        self.prediction.filter(|_| self.obstacle.is_none())
    }

    /// Whether it may be tried although it has no rank: nothing has shown that it does not work.
    #[must_use]
    pub fn may_work(&self) -> bool {
        match self.obstacle.as_deref() {
            None | Some(Obstacle::Unmeasured { .. }) => true,
            Some(Obstacle::Unwell(_, health)) => {
                matches!(health, Health::Unknown | Health::Probation)
            }
            Some(Obstacle::Broken { .. } | Obstacle::Overloaded(..)) => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmeasured { from, to } => write!(f, "{from} to {to} is not measured"),
            Self::Broken { from, to } => write!(f, "{from} to {to} has failed"),
            Self::Unwell(node, Health::Unknown) => write!(f, "nothing was heard from {node}"),
            Self::Unwell(node, Health::Probation) => write!(f, "{node} is on probation"),
            Self::Unwell(node, health) => write!(f, "{node} is {}", health.name()),
            Self::Overloaded(node, Overload::Busy) => write!(f, "{node} is busy"),
            Self::Overloaded(node, Overload::Draining) => write!(f, "{node} is draining"),
        }
    }
}
