//! Counts of the overlay: sessions by route, and for each other node its sessions, its failures and its refused hops.

use std::collections::BTreeMap;

use midspan_explicit::hop::HopFailure;
use midspan_policy::overlay::{HopRefusal, NodeName, Route};

use super::OverlayPart;

/// Most pairs of a listener and a route that are counted.
const MOST_ROUTES: usize = 1024;

/// What was counted since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverlayCounts {
    /// Of each other node, and of each leg to it over an uplink.
    pub nodes: BTreeMap<NodeName, NodeCounts>,
    /// Sessions of each listener by the nodes after this one; `None` for those that leave the overlay here.
    pub routes: BTreeMap<(String, Option<Route>), u64>,
}

/// The counts of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Sessions whose next node it is.
    pub sessions_to: u64,
    /// Sessions that come from it.
    pub sessions_from: u64,
    /// Calls that have failed at this node, or at the leg to it.
    pub calls_failed: u64,
    /// Its hops that this node has refused, in the order of [`RefusedHop::ALL`].
    pub hops_refused: [u64; RefusedHop::ALL.len()],
}

/// Why a hop was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedHop {
    /// The session has passed this node already, or its route is too long.
    Looping,
    /// Its `Via` does not end with the node that has sent it.
    Forged,
    /// This node carries no session on, is no exit, or does not know the next node.
    Unroutable,
    /// This node does not connect to the server, or not for this client.
    Access,
    /// The request is malformed.
    Malformed,
}

impl RefusedHop {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Looping,
        Self::Forged,
        Self::Unroutable,
        Self::Access,
        Self::Malformed,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Looping => "looping",
            Self::Forged => "forged",
            Self::Unroutable => "unroutable",
            Self::Access => "access",
            Self::Malformed => "malformed",
        }
    }
}

impl From<HopRefusal> for RefusedHop {
    fn from(refusal: HopRefusal) -> Self {
        match refusal {
            HopRefusal::Loop | HopRefusal::TooLong => Self::Looping,
            HopRefusal::Forged => Self::Forged,
            HopRefusal::NoTransit | HopRefusal::UnknownNode | HopRefusal::NoExit => {
                Self::Unroutable
            }
            HopRefusal::Stranger | HopRefusal::WrongKey | HopRefusal::ForeignClient => Self::Access,
            HopRefusal::NotEncrypted => Self::Malformed,
        }
    }
}

impl OverlayCounts {
    /// A session of this listener begins.
    pub fn note_session(&mut self, listener: &str, part: &OverlayPart) {
        let [before, next] = &part.nodes;
        if let Some(node) = before {
            self.node(node).sessions_from += 1;
        }
        if let Some(node) = next {
            self.node(node).sessions_to += 1;
        }
        let key = (listener.to_owned(), part.route.clone());
        if self.routes.len() < MOST_ROUTES || self.routes.contains_key(&key) {
            *self.routes.entry(key).or_default() += 1;
        }
    }

    /// A call by this route has failed, and the server is not the reason.
    pub fn note_failed(&mut self, route: &Route, failure: &HopFailure) {
        // What a node reports may be any name.
        let reporter = failure.node.as_ref();
        let mut nodes = route.nodes().iter();
        let at = nodes.find(|leg| reporter.is_some_and(|node| leg.is_node(node)));
        if let Some(node) = at.or_else(|| route.nodes().first()) {
            self.node(node).calls_failed += 1;
        }
    }

    /// This node has refused a hop of another one.
    pub fn note_refused(&mut self, node: &NodeName, reason: RefusedHop) {
        if let Some(count) = self.node(node).hops_refused.get_mut(reason as usize) {
            *count += 1;
        }
    }

    fn node(&mut self, node: &NodeName) -> &mut NodeCounts {
        self.nodes.entry(node.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use midspan_explicit::hop::HopError;

    use super::*;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    #[test]
    fn sessions_failures_and_refusals_belong_to_their_nodes() {
        let mut counts = OverlayCounts::default();
        let route = Route::new(vec![name("fra"), name("sin")]).unwrap();
        let server = "10.4.0.2".parse().unwrap();
        let part = OverlayPart::of_ingress(server, Some(route.clone()));
        counts.note_session("socks", &part);
        counts.note_session("socks", &OverlayPart::of_ingress(server, None));
        counts.note_session("socks", &part);
        let sessions = |route| counts.routes.get(&("socks".to_owned(), route)).copied();
        assert_eq!(sessions(Some(route.clone())), Some(2));
        assert_eq!(sessions(None), Some(1));
        for reporter in [Some("sin"), Some("ams"), Some("stranger"), None] {
            let failure = HopFailure {
                node: reporter.map(name),
                error: HopError::ConnectionTimeout,
            };
            counts.note_failed(&route, &failure);
        }
        counts.note_refused(&name("fra"), RefusedHop::Malformed);
        let fra = counts.nodes[&name("fra")];
        assert_eq!((fra.sessions_to, fra.calls_failed), (2, 3));
        assert_eq!(fra.hops_refused, [0, 0, 0, 0, 1]);
        assert_eq!(counts.nodes[&name("sin")].calls_failed, 1);
        assert_eq!(counts.nodes.len(), 2);
    }
}
