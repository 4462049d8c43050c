//! The nodes of an overlay by their names, with the legs to them: what the search for routes needs, computed once.

use std::collections::BTreeMap;

use super::{NodeKind, NodeName, Overlay};

/// The nodes of an overlay that can be part of a route.
#[derive(Debug, Clone)]
pub struct Topology {
    own: NodeName,
    /// Nodes that carry hops on, in the order of the members, with the legs to them; not this one.
    transit: Vec<(NodeName, Vec<NodeName>)>,
    /// The legs to each node that accepts hops.
    legs: BTreeMap<NodeName, Vec<NodeName>>,
}

impl Topology {
    /// The topology of this overlay.
    pub fn of(overlay: &Overlay) -> Self {
        let reachable = overlay.nodes.iter().filter(|node| node.address.is_some());
        let carries = reachable
            .clone()
            .filter(|node| node.transit && node.kind == NodeKind::Midspan);
        Self {
            own: overlay.own.clone(),
            transit: carries
                .filter(|node| node.name != overlay.own)
                .map(|node| (node.name.clone(), overlay.legs_to(&node.name)))
                .collect(),
            legs: reachable
                .map(|node| (node.name.clone(), overlay.legs_to(&node.name)))
                .collect(),
        }
    }

    /// This node.
    pub const fn own(&self) -> &NodeName {
        &self.own
    }

    /// The nodes that carry hops on to this exit, and the exit, with the legs from this node to each.
    pub fn towards<'a>(
        &'a self,
        exit: &'a NodeName,
    ) -> impl Iterator<Item = (&'a NodeName, &'a [NodeName])> {
        let transit = self.transit.iter().filter(move |(name, _)| name != exit);
        let transit = transit.map(|(name, legs)| (name, legs.as_slice()));
        transit.chain([(exit, self.legs_to(exit))])
    }

    /// All nodes that carry hops on.
    pub fn transit(&self) -> impl Iterator<Item = &NodeName> {
        self.transit.iter().map(|(name, _)| name)
    }

    /// The legs from this node to another one; none if it accepts no hops.
    pub fn legs_to(&self, node: &NodeName) -> &[NodeName] {
        self.legs.get(node).map_or(&[], Vec::as_slice)
    }
}
