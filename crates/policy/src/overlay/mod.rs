//! An overlay of several proxies: its nodes, its routes, and what a node does with a hop.
//!
//! The session of an overlay passes several proxies, the *nodes*. The node at which the client arrives
//! is the *ingress*. It chooses the *route*: the nodes after it, in their order. The last one is the
//! *exit*, which connects to the server; those before it are *transit nodes*. The connection from one
//! node to the next one is a *hop*.
//!
//! | decision | who decides | moment |
//! | --- | --- | --- |
//! | [`RouteDecision`] | the ingress, by a [`RoutePolicy`] | before it connects to a server |
//! | [`HopStep`] or [`HopRefusal`] | each node after it, by [`Overlay::receive`] | when it has read the request of a hop |
//!
//! A node connects only to addresses of its own list of members, or, as an exit, to servers that it
//! [serves](Node::serves()). What others name in a request are names of nodes, never their addresses.

mod hop;
mod node;
mod node_name;
mod routes;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use hop::{HopRefusal, HopStep, NextHop, ReceivedHop};
pub use node::{Node, NodeKind};
pub use node_name::{InvalidNodeName, LONGEST_NODE_NAME, NodeName};
pub use routes::{
    OperatorRoute, OperatorRoutes, Route, RouteDecision, RouteDestination, RoutePolicy, Wanted,
    WantedHost,
};

/// Most nodes of a route. The measurements of Maki and Bhole show that each further proxy gains less
/// than the one before, and each adds a failure.
pub const MOST_HOPS: usize = 4;

/// The overlay as one of its nodes sees it. Plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlay {
    /// The name of this node.
    pub own: NodeName,
    /// All nodes, this one included.
    pub nodes: Vec<Node>,
    /// The routes that the operator has written, in their order.
    pub routes: Vec<OperatorRoute>,
}

impl Overlay {
    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    /// This node.
    #[must_use]
    pub fn own_node(&self) -> Option<&Node> {
        self.node(&self.own)
    }

    /// Whether hops may come from this address.
    #[must_use]
    pub fn has_sender(&self, address: IpAddr) -> bool {
        self.senders(address).next().is_some()
    }

    /// The nodes from which a hop with this source address may come; several behind one NAT.
    fn senders(&self, address: IpAddr) -> impl Iterator<Item = &Node> {
        let others = self.nodes.iter().filter(|node| node.name != self.own);
        others.filter(move |node| node.sends_from(address))
    }
}
