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
//! There are two policies of routes. [`OperatorRoutes`] uses what the operator has written.
//! [`ChosenRoutes`] does the same, and where the operator leaves a choice, it takes the route with the
//! shortest predicted completion time. Its measurements are a [`KnownOverlay`]:
//!
//! | concept | content |
//! | --- | --- |
//! | [`LegEstimate`] | round trip, loss and rate of a leg, measured by the node that sends on it |
//! | [`Row`] | the legs out of one node, as this node reports them to others |
//! | [`Health`] | whether a node can be used, judged by its answers |
//! | [`Overload`] | nodes that get no new sessions; before that, a busy node keeps a share of them (`kept_share.rs`) |
//! | [`completion_time`] | the prediction; large simulations use other [`CompletionTimes`] |
//! | [`Candidate`] | one route to an exit, with its prediction and its obstacle |
//! | [`PresentRoute`] | the present route to an exit, and when it changes |
//! | [`Uplink`] | one of several links of this node; each has a leg to each other node |
//! | [`Warmth`] | how many connections to a node are kept for the next sessions |
//!
//! A node connects only to addresses of its own list of members, or, as an exit, to servers that it
//! [serves](Node::serves()). What others name in a request are names of nodes, never their addresses.

mod aging;
mod assumed_rates;
mod candidate;
mod candidates;
mod choice;
mod comparison;
mod completion_times;
mod dice;
mod estimate;
mod hop;
mod kept_share;
mod known;
mod lazy_rates;
mod leg_noise;
mod liveness;
mod load;
mod loss;
mod node;
mod node_key;
mod node_name;
mod prediction;
mod present_route;
mod rate;
mod round_trip;
mod route;
mod routes;
mod row;
mod settings;
mod steady_row;
mod sticky_exits;
mod timed_legs;
mod topology;
mod uplink;
mod warmth;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use candidate::{Candidate, Obstacle};
pub use choice::{ChosenRoutes, Decided, MOST_TRIES, Permitted, Reason};
pub use comparison::Left;
pub use completion_times::{CompletionTimes, ExactTimes};
pub use estimate::{Congestion, LegEstimate, LegReading};
pub use hop::{HopRefusal, HopStep, NextHop, ReceivedHop};
pub use known::{CallFailure, IDLE_INTERVAL, KnownOverlay, USED_INTERVAL};
pub use liveness::Health;
pub use load::Overload;
pub use node::{Node, NodeKind};
pub use node_key::{InvalidNodeKey, LegKeys, NodeKey, NodeSecret};
pub use node_name::{InvalidNodeName, LONGEST_NODE_NAME, NodeName};
pub use prediction::{RouteLeg, completion_time, completion_time_apart};
pub use present_route::{Changes, PresentRoute};
pub use round_trip::RoundTripEstimate;
pub use route::Route;
pub use routes::{
    OperatorRoute, OperatorRoutes, RouteBy, RouteDecision, RouteDestination, RoutePolicy, Wanted,
    WantedHost,
};
pub use row::{MOST_ROW_LEGS, Row, RowLeg};
pub use settings::ChoiceSettings;
pub use uplink::Uplink;
pub use warmth::Warmth;

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
    /// How routes are chosen by measurements.
    pub choice: ChoiceSettings,
    /// Whether connections to nodes are kept for the next sessions.
    pub warm: bool,
    /// Whether a client's first data is sent with the request of a hop.
    #[serde(default)]
    pub first_data: bool,
    /// The uplinks of this node; empty if there is no choice among them.
    pub uplinks: Vec<Uplink>,
    /// The private key of this node; `None` if all its legs are plain.
    #[serde(default)]
    pub secret: Option<NodeSecret>,
}

impl Overlay {
    /// The overlay of these nodes, as `own` sees it: no routes of the operator, no uplinks, and no key. Connections to
    /// nodes are not kept, and hops carry no first data.
    #[must_use]
    pub fn new(own: NodeName, nodes: Vec<Node>) -> Self {
        Self {
            own,
            nodes,
            routes: Vec::new(),
            choice: ChoiceSettings::default(),
            warm: false,
            first_data: false,
            uplinks: Vec::new(),
            secret: None,
        }
    }

    /// The node of this name, or at the other end of this leg.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name.is_node(name))
    }

    /// This node.
    #[must_use]
    pub fn own_node(&self) -> Option<&Node> {
        self.node(&self.own)
    }

    /// Whether the operator leaves a choice to measurements.
    #[must_use]
    pub fn has_choice(&self) -> bool {
        let is_open = |route: &OperatorRoute| matches!(route.by, RouteBy::Exits { .. });
        self.choice.for_all || self.routes.iter().any(is_open)
    }

    /// What chooses the routes of the sessions that enter at one listener of this node.
    #[must_use]
    pub fn route_policy(&self) -> Box<dyn RoutePolicy + Send> {
        match self.has_choice() {
            true => Box::new(ChosenRoutes::new(self.clone())),
            false => Box::new(OperatorRoutes::new(self.routes.clone())),
        }
    }

    /// Whether hops may come from this address.
    #[must_use]
    pub fn has_sender(&self, address: IpAddr) -> bool {
        self.others().any(|node| node.sends_from(address))
    }

    /// The node from which hops with this source address and this key come, if there is only one.
    #[must_use]
    pub fn only_sender(&self, address: IpAddr, key: Option<NodeKey>) -> Option<&Node> {
        let mut senders = self.senders(address, key);
        senders.next().filter(|_| senders.next().is_none())
    }

    /// The keys of the nodes from which hops with this source address may come; empty if they are not encrypted.
    #[must_use]
    pub fn keys_from(&self, address: IpAddr) -> Vec<NodeKey> {
        let at = self.others().filter(|node| node.sends_from(address));
        at.filter_map(|node| Some(self.keys_to(&node.name)?.peer))
            .collect()
    }

    /// The nodes from which a hop with this source address and this key may come; several behind one NAT, if they have
    /// no keys.
    fn senders(&self, address: IpAddr, key: Option<NodeKey>) -> impl Iterator<Item = &Node> {
        self.others().filter(move |node| {
            let expected = self.keys_to(&node.name).map(|keys| keys.peer);
            node.sends_from(address) && expected == key
        })
    }

    fn others(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.name != self.own)
    }
}
