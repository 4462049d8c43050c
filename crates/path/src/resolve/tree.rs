//! The links form one tree: there is exactly one route from any node to any other.

use midspan_document::Located;

use super::Check;
use super::nodes::Placed;
use crate::link_table::LinkTable;
use crate::{Link, NodeIndex, NodeKind};

/// Refuses a second route between two nodes, a node without links, and a host that would have to
/// forward.
pub fn check(
    check: &Check<'_>,
    nodes: &[Placed],
    tables: &[LinkTable],
    links: &[Link],
) -> Result<(), Located> {
    let mut groups = Groups::new(nodes.len());
    let mut degrees = vec![0_usize; nodes.len()];
    for (table, link) in tables.iter().zip(links) {
        let [first, second] = link.between;
        for (end, place) in link.between.iter().zip(table.between.get_ref()) {
            degrees[end.0] += 1;
            let node = &nodes[end.0].node;
            if degrees[end.0] > 1 && matches!(node.kind, NodeKind::Host(_)) {
                let message = format!(
                    "host `{}` has a link already: only routers and proxies join several",
                    node.name
                );
                return Err(check.error(place, message));
            }
        }
        if !groups.join(first, second) {
            let name = |end: NodeIndex| &nodes[end.0].node.name;
            let message = format!(
                "`{}` and `{}` are joined already: only one way leads from a node to another",
                name(first),
                name(second)
            );
            return Err(check.error(&table.name, message));
        }
    }
    let Some(first) = nodes.first() else {
        return Ok(());
    };
    let reached = groups.of(NodeIndex(0));
    for (index, placed) in nodes.iter().enumerate() {
        if groups.of(NodeIndex(index)) != reached {
            let message = format!(
                "no links lead from `{}` to `{}`",
                placed.node.name, first.node.name
            );
            return Err(check.error(&placed.name, message));
        }
    }
    Ok(())
}

/// The nodes that are connected so far: each group has the index of one of its nodes.
struct Groups(Vec<usize>);

impl Groups {
    fn new(nodes: usize) -> Self {
        Self((0..nodes).collect())
    }

    fn of(&self, node: NodeIndex) -> usize {
        self.0[node.0]
    }

    /// Connects two nodes; false if they were connected before.
    fn join(&mut self, first: NodeIndex, second: NodeIndex) -> bool {
        let (kept, gone) = (self.of(first), self.of(second));
        for group in &mut self.0 {
            if *group == gone {
                *group = kept;
            }
        }
        kept != gone
    }
}
