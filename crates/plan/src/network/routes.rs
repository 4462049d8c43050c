//! The routes that a pair of hosts could take if every node between hosts were an overlay node.

use midspan_model::placement::MOST_EXAMINED;
use midspan_path::{NodeIndex, NodeKind, Path, ProxySettings};
use midspan_policy::overlay::MOST_HOPS;

use super::Pair;

/// The routes of a pair.
#[derive(Debug)]
pub struct Routes {
    /// Each route, from the ingress to the exit; the first one has no node and is the direct connection.
    pub all: Vec<Vec<NodeIndex>>,
    /// Most nodes of a route. Longer routes were left out, because there are too many, if this is less than
    /// [`MOST_NODES`].
    pub longest: usize,
}

/// Most nodes of a route: the ingress, and those that a session may pass after it.
pub const MOST_NODES: usize = MOST_HOPS + 1;

/// The nodes at which a proxy may be: all that are no hosts.
pub fn places(path: &Path) -> Vec<NodeIndex> {
    let nodes = path.nodes.iter().enumerate();
    nodes
        .filter(|(_, node)| !matches!(node.kind, NodeKind::Host(_)))
        .map(|(index, _)| NodeIndex(index))
        .collect()
}

/// The settings of a proxy at this node: its own, or those of the first proxy of the path, or those of Linux.
pub fn settings_at<'a>(
    path: &'a Path,
    node: NodeIndex,
    otherwise: &'a ProxySettings,
) -> &'a ProxySettings {
    match &path.node(node).kind {
        NodeKind::Proxy(settings) => settings,
        NodeKind::Host(_) | NodeKind::Router => path
            .proxies()
            .next()
            .map_or(otherwise, |(_, settings)| settings),
    }
}

/// The routes of a pair over `places`. A session enters at a node on the way of its packets. Routes get longer as
/// long as there are at most [`MOST_EXAMINED`] in all.
pub fn routes(path: &Path, pair: &Pair, places: &[NodeIndex]) -> Routes {
    let ingresses = path.nodes_between(pair.client, pair.server);
    let ingresses = ingresses.into_iter().filter(|node| places.contains(node));
    let mut all = vec![Vec::new()];
    let mut last: Vec<Vec<NodeIndex>> = ingresses.map(|node| vec![node]).collect();
    let mut longest = 0;
    while !last.is_empty() && longest < MOST_NODES && all.len() + last.len() <= MOST_EXAMINED {
        longest += 1;
        all.extend(last.iter().cloned());
        let mut longer = Vec::new();
        'routes: for route in &last {
            for place in places.iter().filter(|place| !route.contains(place)) {
                // One more than can be examined, so that the loop ends.
                if all.len() + longer.len() > MOST_EXAMINED {
                    break 'routes;
                }
                longer.push([route.as_slice(), &[*place]].concat());
            }
        }
        last = longer;
    }
    // No route is left out if there is none.
    let longest = if last.is_empty() { MOST_NODES } else { longest };
    Routes { all, longest }
}
