//! The links lead from every node to every other, over routers and proxies.

use midspan_document::Located;

use super::Check;
use super::nodes::Placed;
use crate::link_table::LinkTable;
use crate::{Link, NodeIndex, NodeKind, first_hops};

/// Refuses a node that no links join to the others, and a host that would have to forward.
pub fn check(
    check: &Check<'_>,
    nodes: &[Placed],
    tables: &[LinkTable],
    links: &[Link],
) -> Result<(), Located> {
    let mut degrees = vec![0_usize; nodes.len()];
    for (table, link) in tables.iter().zip(links) {
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
    }
    let Some(first) = nodes.first() else {
        return Ok(());
    };
    let ends: Vec<[NodeIndex; 2]> = links.iter().map(|link| link.between).collect();
    let hops = first_hops(nodes.len(), &ends, NodeIndex(0));
    for (placed, hop) in nodes.iter().zip(hops).skip(1) {
        if hop.is_none() {
            let message = format!(
                "no links lead from `{}` to `{}`",
                placed.node.name, first.node.name
            );
            return Err(check.error(&placed.name, message));
        }
    }
    Ok(())
}
