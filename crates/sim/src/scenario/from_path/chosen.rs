//! Scenarios in which overlay nodes choose the routes.

use midspan_path::{NodeIndex, OverlayRoute, Path};

use super::{Builder, Carriers, HopStart, PathScenario};
use crate::scenario::{
    Alternative, ChoosingNode, ChosenSession, ChosenSessions, NodeId, Scenario, ScenarioError,
};

/// Most transit nodes of the routes that the policy compares.
const MOST_TRANSIT: usize = 2;

/// The scenario of some flows of a path: each flow has parts for each overlay route.
pub(super) fn build(
    path: &Path,
    group: &[usize],
    start: HopStart,
) -> Result<PathScenario, ScenarioError> {
    let mut scenario = Scenario::network(path, true);
    let mut flows = Vec::new();
    let mut sessions = Vec::new();
    for index in group {
        let flow = &path.flows[*index];
        let mut alternatives = Vec::new();
        for route in path.overlay_routes(flow, MOST_TRANSIT)? {
            let mut builder = Builder {
                path,
                carriers: Carriers::Overlay(&route, start),
                scenario,
            };
            let mut parts = builder.add(*index)?;
            builder.set_policies(&parts);
            scenario = builder.scenario;
            alternatives.push(Alternative {
                stops: stops(path, &route, *index)?,
                flows: parts.requests.iter().chain(&parts.data).copied().collect(),
            });
            parts.route = Some(route);
            flows.push(parts);
        }
        sessions.push(ChosenSession {
            start: flow.start,
            client: NodeId(flow.from.0),
            server: NodeId(flow.to.0),
            alternatives,
        });
    }
    scenario.overlay = Some(ChosenSessions {
        nodes: nodes(path),
        sessions,
        knowledge: None,
    });
    Ok(PathScenario { scenario, flows })
}

fn stops(path: &Path, route: &OverlayRoute, flow: usize) -> Result<Vec<NodeId>, ScenarioError> {
    let stops = path.overlay_stops(&path.flows[flow], route)?;
    Ok(stops
        .into_iter()
        .map(|NodeIndex(node)| NodeId(node))
        .collect())
}

/// The overlay nodes. A path file has only names that overlay nodes may have.
fn nodes(path: &Path) -> Vec<ChoosingNode> {
    let nodes = path.overlay_nodes();
    nodes
        .filter_map(|(node, role)| {
            Some(ChoosingNode {
                node: NodeId(node.0),
                name: path.node(node).name.parse().ok()?,
                transit: role.transit,
                exit: role.exit,
            })
        })
        .collect()
}
