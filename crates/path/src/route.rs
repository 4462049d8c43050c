//! Routes through the tree of links.

use std::collections::VecDeque;

use crate::{Direction, Flow, LinkIndex, NodeIndex, NodeKind, Path};

/// One step of a route: over a link, in a direction, to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The link that the step crosses.
    pub link: LinkIndex,
    /// The direction in which it crosses the link.
    pub direction: Direction,
    /// The node that it reaches.
    pub node: NodeIndex,
}

impl Path {
    /// The links at a node, each with the direction away from the node and the node at its other
    /// end.
    pub fn neighbours(&self, node: NodeIndex) -> impl Iterator<Item = Hop> {
        self.links
            .iter()
            .enumerate()
            .filter_map(move |(index, link)| {
                let [first, second] = link.between;
                let (direction, to) = if first == node {
                    (Direction::Up, second)
                } else if second == node {
                    (Direction::Down, first)
                } else {
                    return None;
                };
                Some(Hop {
                    link: LinkIndex(index),
                    direction,
                    node: to,
                })
            })
    }

    /// The first step from a node towards another; `None` if they are the same or not connected.
    #[must_use]
    pub fn next_hop(&self, node: NodeIndex, destination: NodeIndex) -> Option<Hop> {
        self.way(node, destination).into_iter().next()
    }

    /// The steps from one node to another; empty if they are the same or not connected.
    #[must_use]
    pub fn way(&self, from: NodeIndex, to: NodeIndex) -> Vec<Hop> {
        // Searched backwards, so that each node gets its own first step towards `to`.
        let mut towards: Vec<Option<Hop>> = vec![None; self.nodes.len()];
        let mut reached = VecDeque::from([to]);
        while let Some(node) = reached.pop_front() {
            for back in self.neighbours(node) {
                let Some(unset) = towards.get_mut(back.node.0).filter(|hop| hop.is_none()) else {
                    continue;
                };
                if back.node != to {
                    *unset = Some(Hop {
                        link: back.link,
                        direction: back.direction.other(),
                        node,
                    });
                    reached.push_back(back.node);
                }
            }
        }
        let step = |node: NodeIndex| towards.get(node.0).copied().flatten();
        std::iter::successors(step(from), |hop| step(hop.node)).collect()
    }

    /// The nodes strictly between two others, in order.
    #[must_use]
    pub fn nodes_between(&self, from: NodeIndex, to: NodeIndex) -> Vec<NodeIndex> {
        let mut nodes: Vec<NodeIndex> = self.way(from, to).iter().map(|hop| hop.node).collect();
        nodes.pop();
        nodes
    }

    /// The steps of a flow's data: from the server to the client, except for uploads. Its ACKs
    /// cross the same links in the opposite direction.
    #[must_use]
    pub fn data_way(&self, flow: &Flow) -> Vec<Hop> {
        if flow.workload.is_upload() {
            self.way(flow.from, flow.to)
        } else {
            self.way(flow.to, flow.from)
        }
    }

    /// The proxies that a flow passes, from the client's side to the server's.
    #[must_use]
    pub fn proxies_of(&self, flow: &Flow) -> Vec<NodeIndex> {
        let mut nodes = self.nodes_between(flow.from, flow.to);
        nodes.retain(|index| matches!(self.node(*index).kind, NodeKind::Proxy(_)));
        nodes
    }
}
