//! One overlay node: the proxy's choice and knowledge, and how the simulation names nodes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use midspan_policy::overlay::{
    ChoiceSettings, ChosenRoutes, CompletionTimes, KnownOverlay, Node, NodeName, OperatorRoute,
    Overlay, RouteBy, RouteDestination, Row,
};
use midspan_units::{ByteSize, Probability, Time, TimeSpan};

use crate::network::{Network, Role};

/// A node reports the same row for this time.
const ROW_FOR: TimeSpan = TimeSpan::from_seconds(2);
/// Where nodes accept hops.
const HOP_PORT: u16 = 7704;

/// One overlay node.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: NodeName,
    /// What it has measured.
    pub known: KnownOverlay,
    /// The choice of its routes; `None` if no session begins at it.
    pub choice: Option<ChosenRoutes>,
    row: Option<(Time, Arc<Row>)>,
}

/// The names of all nodes. Those of transit nodes are the first ones in order, so that a row of limited length has
/// the legs to all of them.
pub fn names(network: &Network) -> Vec<NodeName> {
    let mut is_transit = vec![false; network.len()];
    for node in network.nodes(Role::Transit) {
        if let Some(place) = is_transit.get_mut(node) {
            *place = true;
        }
    }
    let texts = is_transit
        .iter()
        .enumerate()
        .map(|(node, transit)| match transit {
            true => format!("t{node:03}"),
            false => format!("x{node:03}"),
        });
    // Each text has a letter and three digits.
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// The address of a node, of the clients at it, and of the servers behind it.
pub fn address(node: usize, last: u8) -> IpAddr {
    let [high, low] = u16::try_from(node).unwrap_or(u16::MAX).to_be_bytes();
    Ipv4Addr::new(10, high, low, last).into()
}

/// The network of the servers behind a node.
fn site(node: usize) -> Option<IpNet> {
    let IpAddr::V4(address) = address(node, 0) else {
        return None;
    };
    Ipv4Net::new(address, 24).ok().map(IpNet::V4)
}

fn node(name: &NodeName, number: usize, transit: bool) -> Node {
    Node {
        transit,
        serves: match transit {
            true => Vec::new(),
            false => site(number).into_iter().map(Into::into).collect(),
        },
        ..Node::new(name.clone(), Some((address(number, 1), HOP_PORT).into()))
    }
}

impl Member {
    /// A node that is no ingress.
    pub fn new(name: NodeName, seed: u64, nodes: usize, times: &Arc<dyn CompletionTimes>) -> Self {
        let known = KnownOverlay::new(seed);
        Self {
            name,
            known: known.for_large_simulations(nodes, Arc::clone(times)),
            choice: None,
            row: None,
        }
    }

    /// Makes it an ingress of sessions to these exits. Its list of members has itself, the transit nodes and
    /// the exits.
    pub fn choose(
        &mut self,
        own: usize,
        transit: &[usize],
        exits: &[usize],
        (names, transfer): (&[NodeName], ByteSize),
    ) {
        let named = |number: &usize, transit| Some(node(names.get(*number)?, *number, transit));
        let mut nodes: Vec<Node> = named(&own, false).into_iter().collect();
        nodes.extend(transit.iter().filter_map(|number| named(number, true)));
        nodes.extend(exits.iter().filter_map(|number| named(number, false)));
        let routes = exits.iter().filter_map(|exit| {
            Some(OperatorRoute {
                destinations: vec![RouteDestination::Network(site(*exit)?.into())],
                by: RouteBy::Exits {
                    exits: vec![names.get(*exit)?.clone()],
                    or_here: false,
                },
            })
        });
        self.choice = Some(ChosenRoutes::new(Overlay {
            routes: routes.collect(),
            choice: ChoiceSettings {
                exchange: true,
                transfer,
                control: Probability::ZERO,
                ..ChoiceSettings::default()
            },
            warm: true,
            ..Overlay::new(self.name.clone(), nodes)
        }));
    }

    /// What it reports.
    pub fn row(&mut self, now: Time) -> Arc<Row> {
        match &self.row {
            Some((at, row)) if now.since(*at) < ROW_FOR => Arc::clone(row),
            _ => {
                let row = Arc::new(self.known.own_row(now));
                self.row = Some((now, Arc::clone(&row)));
                row
            }
        }
    }
}
