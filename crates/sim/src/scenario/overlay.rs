//! Sessions whose overlay route is chosen when they begin.

use std::collections::BTreeMap;

use midspan_policy::overlay::{KnownOverlay, NodeName};
use midspan_units::{Time, TimeSpan};

use super::{FlowId, NodeId, Scenario};

/// What the overlay nodes of a simulation know of each other: a later simulation of the same network can
/// begin with it.
#[derive(Debug, Clone)]
pub struct OverlayKnowledge {
    pub(crate) known: BTreeMap<NodeId, KnownOverlay>,
    /// The nodes' clock.
    pub(crate) clock: Time,
}

/// The overlay nodes, and the sessions for which they choose a route.
#[derive(Debug, Clone)]
pub(crate) struct ChosenSessions {
    pub(crate) nodes: Vec<ChoosingNode>,
    pub(crate) sessions: Vec<ChosenSession>,
    /// What the nodes know at the start; `None`: only the round trips between them.
    pub(crate) knowledge: Option<OverlayKnowledge>,
}

/// An overlay node.
#[derive(Debug, Clone)]
pub(crate) struct ChoosingNode {
    pub(crate) node: NodeId,
    pub(crate) name: NodeName,
    pub(crate) transit: bool,
    pub(crate) exit: bool,
}

/// A session that takes one of several overlay routes.
#[derive(Debug, Clone)]
pub(crate) struct ChosenSession {
    pub(crate) start: TimeSpan,
    pub(crate) client: NodeId,
    pub(crate) server: NodeId,
    /// The first one leaves at the ingress.
    pub(crate) alternatives: Vec<Alternative>,
}

/// One overlay route of a session.
#[derive(Debug, Clone)]
pub(crate) struct Alternative {
    /// The overlay nodes, the ingress first.
    pub(crate) stops: Vec<NodeId>,
    /// The flows that carry the session on this route.
    pub(crate) flows: Vec<FlowId>,
}

impl Scenario {
    /// Lets overlay nodes that choose routes begin with this knowledge, as it is five seconds later. Does
    /// nothing if they choose none.
    pub fn begin_with(&mut self, knowledge: OverlayKnowledge) {
        if let Some(overlay) = &mut self.overlay {
            overlay.knowledge = Some(knowledge);
        }
    }
}
