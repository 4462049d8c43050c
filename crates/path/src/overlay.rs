//! The overlay nodes of a path, and the overlay routes over them.

use midspan_policy::overlay::MOST_HOPS;
use thiserror::Error;

use crate::{Flow, NodeIndex, NodeKind, OverlayRole, Path};

/// How the text of an overlay route names a session that leaves at its ingress.
pub const HERE: &str = "here";
/// The beginning of the name of a case with one overlay route. The text of the route follows, or
/// [`ALL_ROUTES`].
pub const STATIC_CASE: &str = "overlay-static=";
/// In place of the text of a route: each of [`Path::static_routes`].
pub const ALL_ROUTES: &str = "all";
/// Most transit nodes of [`Path::static_routes`].
pub const MOST_TRANSIT: usize = 3;

/// Most overlay routes that [`Path::overlay_routes`] lists.
pub const OVERLAY_ROUTE_LIMIT: usize = 1000;

/// The overlay nodes of a session after its ingress, in their order. The last one is the exit. There are
/// none if the session leaves at its ingress.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OverlayRoute(Vec<NodeIndex>);

/// An overlay route cannot carry a flow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverlayRouteError {
    /// The text names a node that does not exist.
    #[error("no node is called \"{name}\"; overlay nodes are {known}")]
    UnknownNode {
        /// The name.
        name: String,
        /// The overlay nodes.
        known: String,
    },
    /// No overlay node is on the flow's path, so its sessions have no ingress.
    #[error(
        "no overlay node is on the path of the flow \"{flow}\": give a proxy there the key `overlay`"
    )]
    NoIngress {
        /// The flow.
        flow: String,
    },
    /// A node of the route does not do what the route needs.
    #[error("\"{node}\" is no {role} of the overlay: see the key `overlay` of a proxy")]
    Role {
        /// The node.
        node: String,
        /// What the route needs.
        role: &'static str,
    },
    /// The route passes a node twice.
    #[error("the route passes \"{node}\" twice")]
    Twice {
        /// The node.
        node: String,
    },
    /// The route has too many nodes.
    #[error("the route has {nodes} nodes; at most {MOST_HOPS} come after the ingress")]
    TooLong {
        /// Number of its nodes after the ingress.
        nodes: usize,
    },
    /// There are too many routes.
    #[error("the path has more than {OVERLAY_ROUTE_LIMIT} overlay routes for the flow \"{flow}\"")]
    TooMany {
        /// The flow.
        flow: String,
    },
}

impl OverlayRoute {
    /// The route by these nodes, the exit last.
    #[must_use]
    pub const fn new(nodes: Vec<NodeIndex>) -> Self {
        Self(nodes)
    }

    /// The nodes after the ingress, the exit last.
    #[must_use]
    pub fn nodes(&self) -> &[NodeIndex] {
        &self.0
    }
}

impl Path {
    /// The overlay nodes, in the order of the file.
    pub fn overlay_nodes(&self) -> impl Iterator<Item = (NodeIndex, OverlayRole)> {
        self.proxies()
            .filter_map(|(node, proxy)| Some((node, proxy.overlay?)))
    }

    /// What a node does for the overlay; `None` if it is no overlay node, or does not exist.
    #[must_use]
    pub fn overlay_role(&self, node: NodeIndex) -> Option<OverlayRole> {
        match &self.nodes.get(node.0)?.kind {
            NodeKind::Proxy(proxy) => proxy.overlay,
            NodeKind::Host(_) | NodeKind::Router => None,
        }
    }

    /// Where the sessions of a flow enter the overlay: at the first overlay node after the client.
    ///
    /// # Errors
    /// No overlay node is on the path of the flow.
    pub fn ingress(&self, flow: &Flow) -> Result<NodeIndex, OverlayRouteError> {
        let nodes = self.nodes_between(flow.from, flow.to);
        let mut nodes = nodes.into_iter();
        nodes
            .find(|node| self.overlay_role(*node).is_some())
            .ok_or_else(|| OverlayRouteError::NoIngress {
                flow: flow.name.clone(),
            })
    }

    /// All overlay nodes that a session of a flow passes on this route, the ingress first.
    ///
    /// # Errors
    /// The flow has no ingress, or a node of the route is none of the overlay, comes twice, carries no
    /// sessions on, or is no exit.
    pub fn overlay_stops(
        &self,
        flow: &Flow,
        route: &OverlayRoute,
    ) -> Result<Vec<NodeIndex>, OverlayRouteError> {
        let mut stops = vec![self.ingress(flow)?];
        if route.0.len() > MOST_HOPS {
            let nodes = route.0.len();
            return Err(OverlayRouteError::TooLong { nodes });
        }
        for (place, node) in route.0.iter().enumerate() {
            let name = || {
                let node = self.nodes.get(node.0);
                node.map_or_else(String::new, |node| node.name.clone())
            };
            if stops.contains(node) {
                return Err(OverlayRouteError::Twice { node: name() });
            }
            let role = self.overlay_role(*node).unwrap_or_default();
            let is_last = place + 1 == route.0.len();
            let (has_role, role) = match is_last {
                true => (role.exit, "exit"),
                false => (role.transit, "transit node"),
            };
            if !has_role {
                return Err(OverlayRouteError::Role { node: name(), role });
            }
            stops.push(*node);
        }
        Ok(stops)
    }

    /// All overlay routes for a flow with at most `most_transit` transit nodes: the one that leaves at the
    /// ingress, then those with the fewest nodes, each in the order of the file.
    ///
    /// # Errors
    /// The flow has no ingress, or there are more than [`OVERLAY_ROUTE_LIMIT`] routes.
    pub fn overlay_routes(
        &self,
        flow: &Flow,
        most_transit: usize,
    ) -> Result<Vec<OverlayRoute>, OverlayRouteError> {
        let ingress = self.ingress(flow)?;
        let others: Vec<(NodeIndex, OverlayRole)> = self
            .overlay_nodes()
            .filter(|(node, _)| *node != ingress)
            .collect();
        let mut routes = vec![OverlayRoute::default()];
        // The transit nodes of the routes with this number of them.
        let mut transits: Vec<Vec<NodeIndex>> = vec![Vec::new()];
        for length in 0..=most_transit.min(MOST_HOPS - 1) {
            let mut longer = Vec::new();
            for transit in &transits {
                for (node, role) in &others {
                    if transit.contains(node) {
                        continue;
                    }
                    let with = [transit.as_slice(), &[*node]].concat();
                    if role.transit && length < most_transit {
                        longer.push(with.clone());
                    }
                    if role.exit {
                        routes.push(OverlayRoute(with));
                    }
                    if routes.len().max(longer.len()) > OVERLAY_ROUTE_LIMIT {
                        let flow = flow.name.clone();
                        return Err(OverlayRouteError::TooMany { flow });
                    }
                }
            }
            transits = longer;
        }
        Ok(routes)
    }

    /// The overlay routes that are compared with each other: those that all flows can take, with at most
    /// [`MOST_TRANSIT`] transit nodes.
    ///
    /// # Errors
    /// A flow has no ingress, or there are more than [`OVERLAY_ROUTE_LIMIT`] routes.
    pub fn static_routes(&self) -> Result<Vec<OverlayRoute>, OverlayRouteError> {
        let Some((first, others)) = self.flows.split_first() else {
            return Ok(Vec::new());
        };
        let mut routes = self.overlay_routes(first, MOST_TRANSIT)?;
        for flow in others {
            self.ingress(flow)?;
            routes.retain(|route| self.overlay_stops(flow, route).is_ok());
        }
        Ok(routes)
    }

    /// The overlay route of a text: the names of its nodes with "/" between them, or [`HERE`].
    ///
    /// # Errors
    /// There is no node of this name.
    pub fn find_overlay_route(&self, text: &str) -> Result<OverlayRoute, OverlayRouteError> {
        if text == HERE {
            return Ok(OverlayRoute::default());
        }
        let node = |name: &str| {
            self.find_node(name)
                .ok_or_else(|| OverlayRouteError::UnknownNode {
                    name: name.escape_debug().to_string(),
                    known: self.overlay_names(),
                })
        };
        let nodes = text.split('/').map(node).collect::<Result<_, _>>()?;
        Ok(OverlayRoute(nodes))
    }

    /// The text of an overlay route, from which [`Path::find_overlay_route`] finds it.
    #[must_use]
    pub fn overlay_route_text(&self, route: &OverlayRoute) -> String {
        if route.0.is_empty() {
            return HERE.to_owned();
        }
        let names = route.0.iter().map(|node| {
            let node = self.nodes.get(node.0);
            node.map_or("", |node| node.name.as_str())
        });
        names.collect::<Vec<_>>().join("/")
    }

    fn overlay_names(&self) -> String {
        let names: Vec<&str> = self
            .overlay_nodes()
            .map(|(node, _)| self.node(node).name.as_str())
            .collect();
        names.join(", ")
    }
}
