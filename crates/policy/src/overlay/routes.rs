//! The choice of a route: the question, the answer, and the routes that the operator has written.

use std::net::IpAddr;

use midspan_units::Time;
use serde::{Deserialize, Serialize};

use super::{KnownOverlay, NodeName, Route};
use crate::network::Network;

/// The server that a client has requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The client.
    pub client: IpAddr,
    /// The server's host.
    pub host: WantedHost<'a>,
    /// The server's port.
    pub port: u16,
    /// The routes that have failed for this client's request.
    pub tried: &'a [Route],
}

/// A server's host, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedHost<'a> {
    /// Its address.
    Address(IpAddr),
    /// Its name in lower case, without a dot at its end.
    Name(&'a str),
}

/// Where a session leaves the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteDecision {
    /// Here: the ingress connects to the server itself.
    Here,
    /// By these nodes.
    Through(Route),
    /// It depends on the server's address: the ingress looks the name up and calls again. Never the
    /// answer for an address.
    ByAddress,
    /// Nowhere: there is no route, and the session may not leave here.
    Nowhere,
}

/// Chooses the routes of the sessions that enter at one node.
///
/// `known` has the measurements of this node. The caller owns it, since several policies share it.
pub trait RoutePolicy {
    /// Called once when a client has requested a server; again with the server's address if the answer
    /// for its name was [`RouteDecision::ByAddress`]; and again after each route that has failed before
    /// the client got an answer.
    fn route(&mut self, now: Time, wanted: &Wanted<'_>, known: &mut KnownOverlay) -> RouteDecision;
}

/// A route that the operator has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRoute {
    /// The servers for which it is used.
    pub destinations: Vec<RouteDestination>,
    /// How these sessions go.
    pub by: RouteBy,
}

/// How the sessions of an operator's route go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteBy {
    /// By these nodes, the exit last; if there are none, they leave at the ingress.
    Nodes(Vec<NodeName>),
    /// To the best one of these exits, by the best route.
    Exits {
        /// The exits; at least one.
        exits: Vec<NodeName>,
        /// Whether they may leave at the ingress.
        or_here: bool,
    },
}

/// Servers for which a route is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteDestination {
    /// All.
    All,
    /// Those with an address of this prefix.
    Network(Network),
    /// The one with this name, in lower case.
    Name(String),
    /// Those whose name ends with a dot and this name, in lower case.
    Under(String),
}

/// The operator's routes: the first one that matches is used, and without one the session leaves at
/// the ingress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRoutes(Vec<OperatorRoute>);

impl RouteDestination {
    fn matches(&self, host: WantedHost<'_>) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Network(network), WantedHost::Address(address)) => network.contains(address),
            (Self::Name(own), WantedHost::Name(name)) => own == name,
            (Self::Under(own), WantedHost::Name(name)) => {
                let start = name.strip_suffix(own.as_str());
                start.is_some_and(|start| start.ends_with('.'))
            }
            (Self::Network(_), WantedHost::Name(_))
            | (Self::Name(_) | Self::Under(_), WantedHost::Address(_)) => false,
        }
    }
}

impl OperatorRoutes {
    /// These routes, in their order.
    #[must_use]
    pub const fn new(routes: Vec<OperatorRoute>) -> Self {
        Self(routes)
    }

    /// The first route that matches.
    #[must_use]
    pub fn find(&self, host: WantedHost<'_>) -> Option<&RouteBy> {
        let matches = |route: &&OperatorRoute| {
            let mut destinations = route.destinations.iter();
            destinations.any(|destination| destination.matches(host))
        };
        self.0.iter().find(matches).map(|route| &route.by)
    }
}

/// The decision for sessions by these nodes: no other route replaces one that the operator has written.
pub(super) fn by_nodes(nodes: &[NodeName], tried: &[Route]) -> RouteDecision {
    match Route::new(nodes.to_vec()) {
        None => RouteDecision::Here,
        Some(route) if tried.contains(&route) => RouteDecision::Nowhere,
        Some(route) => RouteDecision::Through(route),
    }
}

impl RoutePolicy for OperatorRoutes {
    fn route(&mut self, _: Time, wanted: &Wanted<'_>, _: &mut KnownOverlay) -> RouteDecision {
        match (self.find(wanted.host), wanted.host) {
            (Some(RouteBy::Nodes(nodes)), _) => by_nodes(nodes, wanted.tried),
            // Without measurements, the first exit is the best one.
            (Some(RouteBy::Exits { exits, .. }), _) => {
                by_nodes(exits.get(..1).unwrap_or(&[]), wanted.tried)
            }
            (None, WantedHost::Name(_)) => RouteDecision::ByAddress,
            (None, WantedHost::Address(_)) => RouteDecision::Here,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::IpNet;

    fn names(texts: &[&str]) -> Vec<NodeName> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn decide(routes: &[(&[RouteDestination], &[&str])], host: WantedHost<'_>) -> RouteDecision {
        let routes = routes.iter().map(|(destinations, through)| OperatorRoute {
            destinations: destinations.to_vec(),
            by: RouteBy::Nodes(names(through)),
        });
        OperatorRoutes::new(routes.collect()).route(
            Time::ZERO,
            &Wanted {
                client: [192, 0, 2, 1].into(),
                host,
                port: 443,
                tried: &[],
            },
            &mut KnownOverlay::new(0),
        )
    }

    fn through(nodes: &[&str]) -> RouteDecision {
        RouteDecision::Through(Route::new(names(nodes)).unwrap())
    }

    #[test]
    fn the_first_route_that_matches_decides() {
        let network = |text: &str| RouteDestination::Network(text.parse::<IpNet>().unwrap().into());
        let (near, site) = ([network("203.0.113.0/28")], [network("203.0.113.0/24")]);
        let names = [
            RouteDestination::Name("www.example.org".to_owned()),
            RouteDestination::Under("corp.example".to_owned()),
        ];
        let routes: [(&[RouteDestination], &[&str]); 3] =
            [(&near, &[]), (&site, &["fra", "sin"]), (&names, &["sin"])];
        let address = |text: &str| decide(&routes, WantedHost::Address(text.parse().unwrap()));
        assert_eq!(address("203.0.113.1"), RouteDecision::Here);
        assert_eq!(address("203.0.113.99"), through(&["fra", "sin"]));
        assert_eq!(address("::ffff:203.0.113.99"), through(&["fra", "sin"]));
        assert_eq!(address("192.0.2.1"), RouteDecision::Here);
        let name = |text| decide(&routes, WantedHost::Name(text));
        assert_eq!(name("www.example.org"), through(&["sin"]));
        assert_eq!(name("a.b.corp.example"), through(&["sin"]));
        for other in ["example.org", "corp.example", "xcorp.example", "org"] {
            assert_eq!(name(other), RouteDecision::ByAddress, "{other}");
        }
    }

    #[test]
    fn all_means_names_and_addresses() {
        let routes: [(&[RouteDestination], &[&str]); 1] = [(&[RouteDestination::All], &["sin"])];
        for host in [
            WantedHost::Name("a.example"),
            WantedHost::Address([192, 0, 2, 1].into()),
            WantedHost::Address(std::net::Ipv6Addr::LOCALHOST.into()),
        ] {
            assert_eq!(decide(&routes, host), through(&["sin"]));
        }
    }
}
