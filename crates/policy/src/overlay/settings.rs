//! Settings of the choice of routes.

use midspan_units::{ByteSize, Probability};
use serde::{Deserialize, Serialize};

/// How routes are chosen by measurements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceSettings {
    /// This node measures its legs to other nodes, and reads their measurements.
    pub exchange: bool,
    /// Routes are also chosen for destinations that no route of the operator has.
    pub for_all: bool,
    /// The size of a transfer whose completion time is predicted.
    pub transfer: ByteSize,
    /// The share of sessions, and of pairs of a client and a network of servers, that take another
    /// choice than the best one.
    pub explore: Probability,
    /// The share of pairs that leave at the ingress, so that the others can be compared with them.
    pub control: Probability,
}

impl Default for ChoiceSettings {
    /// 1 MB, 2 % and 1 %; for routes of the operator only, without exchanges.
    fn default() -> Self {
        let share = |share| Probability::from_f64(share).unwrap_or_default();
        Self {
            exchange: false,
            for_all: false,
            transfer: ByteSize::from_bytes(1_000_000),
            explore: share(0.02),
            control: share(0.01),
        }
    }
}
