//! Ways through the links.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::{Direction, Flow, LinkIndex, NodeIndex, NodeKind, Path};

/// One step of a way: over a link, in a direction, to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The link that the step crosses.
    pub link: LinkIndex,
    /// The direction in which it crosses the link.
    pub direction: Direction,
    /// The node that it reaches.
    pub node: NodeIndex,
}

/// The first step of each of `nodes` nodes towards the node `to`. `ends` are the two ends of each
/// link. A node has `None` if it is `to` itself, or if no way leads from it to `to`.
///
/// The way is the one with the fewest links. Of two ways with equally many, it is the one with the
/// earliest link among those that only one of the two crosses. Every part of such a way is the way
/// between its own ends, and the way in the opposite direction crosses the same links: so it is enough that each node has
/// its first step, and packets in both directions meet on all links.
#[must_use]
pub fn first_hops(nodes: usize, ends: &[[NodeIndex; 2]], to: NodeIndex) -> Vec<Option<Hop>> {
    // Searched backwards from `to`: a node is reached after all nodes that are nearer to it.
    let mut hops: Vec<Option<Hop>> = vec![None; nodes];
    let mut distances = vec![0_usize; nodes];
    // A path built in code may have a link to a node that does not exist: no way leads there.
    let mut reached: VecDeque<_> = (to.0 < nodes).then_some((to, 0)).into_iter().collect();
    while let Some((node, distance)) = reached.pop_front() {
        for back in joined(ends, node).filter(|back| back.node != to && back.node.0 < nodes) {
            let before = back.node.0;
            let hop = Hop {
                link: back.link,
                direction: back.direction.other(),
                node,
            };
            match hops[before] {
                None => {
                    hops[before] = Some(hop);
                    distances[before] = distance + 1;
                    reached.push_back((back.node, distance + 1));
                }
                Some(known) if distances[before] == distance + 1 => {
                    if compare(&hops, hop, known) == Ordering::Less {
                        hops[before] = Some(hop);
                    }
                }
                Some(_) => {}
            }
        }
    }
    hops
}

/// Compares two ways with equally many links by their first steps: the lesser one is preferred.
fn compare(hops: &[Option<Hop>], one: Hop, other: Hop) -> Ordering {
    let links = |first: Hop| {
        let rest = along(hops, first.node);
        let mut links: Vec<LinkIndex> = rest.iter().map(|hop| hop.link).collect();
        links.push(first.link);
        links.sort_unstable();
        links
    };
    links(one).cmp(&links(other))
}

/// The steps from a node on, by the first step of each node.
fn along(hops: &[Option<Hop>], from: NodeIndex) -> Vec<Hop> {
    let step = |node: NodeIndex| hops.get(node.0).copied().flatten();
    std::iter::successors(step(from), |hop| step(hop.node)).collect()
}

/// The links at a node, each with the direction away from the node and the node at its other end.
fn joined(ends: &[[NodeIndex; 2]], node: NodeIndex) -> impl Iterator<Item = Hop> {
    ends.iter().enumerate().filter_map(move |(index, ends)| {
        let (direction, to) = match *ends {
            [first, second] if first == node => (Direction::Up, second),
            [first, second] if second == node => (Direction::Down, first),
            _ => return None,
        };
        Some(Hop {
            link: LinkIndex(index),
            direction,
            node: to,
        })
    })
}

impl Path {
    /// The links at a node, each with the direction away from the node and the node at its other
    /// end.
    #[must_use]
    pub fn neighbours(&self, node: NodeIndex) -> Vec<Hop> {
        joined(&self.ends(), node).collect()
    }

    /// The two ends of each link.
    fn ends(&self) -> Vec<[NodeIndex; 2]> {
        self.links.iter().map(|link| link.between).collect()
    }

    /// The first step from a node towards another; `None` if they are the same or not connected.
    #[must_use]
    pub fn next_hop(&self, node: NodeIndex, destination: NodeIndex) -> Option<Hop> {
        self.way(node, destination).into_iter().next()
    }

    /// The steps from one node to another over the fewest links; empty if they are the same or not
    /// connected. Among several such ways, the order of the links decides ([`first_hops`]), so the way
    /// in the opposite direction crosses the same links.
    #[must_use]
    pub fn way(&self, from: NodeIndex, to: NodeIndex) -> Vec<Hop> {
        along(&first_hops(self.nodes.len(), &self.ends(), to), from)
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
