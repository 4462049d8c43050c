//! The choice of a route.

use std::net::IpAddr;

use midspan_units::Time;
use serde::{Deserialize, Serialize};

use super::{MOST_HOPS, NodeName};
use crate::network::Network;

/// The nodes of a session after the ingress, the exit last: 1 to [`MOST_HOPS`], each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route(Vec<NodeName>);

/// The server that a client has requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The client.
    pub client: IpAddr,
    /// The server's host.
    pub host: WantedHost<'a>,
    /// The server's port.
    pub port: u16,
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
}

/// Chooses the routes of the sessions that enter at one node. A policy that measures legs is another
/// implementation.
pub trait RoutePolicy {
    /// Called once when a client has requested a server, and again with the server's address if the
    /// answer for its name was [`RouteDecision::ByAddress`].
    fn route(&mut self, now: Time, wanted: &Wanted<'_>) -> RouteDecision;
}

/// A route that the operator has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRoute {
    /// The servers for which it is used.
    pub destinations: Vec<RouteDestination>,
    /// The nodes, the exit last; empty if these sessions leave at the ingress.
    pub through: Vec<NodeName>,
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

impl Route {
    /// A route by these nodes; `None` if there are none, too many, or one of them twice.
    #[must_use]
    pub fn new(nodes: Vec<NodeName>) -> Option<Self> {
        let is_first = |(place, node): (usize, &NodeName)| !nodes[..place].contains(node);
        let fits = (1..=MOST_HOPS).contains(&nodes.len());
        (fits && nodes.iter().enumerate().all(is_first)).then_some(Self(nodes))
    }

    /// The nodes, the exit last.
    #[must_use]
    pub fn nodes(&self) -> &[NodeName] {
        &self.0
    }
}

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
}

impl RoutePolicy for OperatorRoutes {
    fn route(&mut self, _: Time, wanted: &Wanted<'_>) -> RouteDecision {
        let matches = |route: &&OperatorRoute| {
            let mut destinations = route.destinations.iter();
            destinations.any(|destination| destination.matches(wanted.host))
        };
        let found = self.0.iter().find(matches);
        match (found, wanted.host) {
            (Some(route), _) => match Route::new(route.through.clone()) {
                Some(route) => RouteDecision::Through(route),
                None => RouteDecision::Here,
            },
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
            through: names(through),
        });
        OperatorRoutes::new(routes.collect()).route(
            Time::ZERO,
            &Wanted {
                client: [192, 0, 2, 1].into(),
                host,
                port: 443,
            },
        )
    }

    fn through(nodes: &[&str]) -> RouteDecision {
        RouteDecision::Through(Route::new(names(nodes)).unwrap())
    }

    #[test]
    fn a_route_has_few_nodes_each_once() {
        assert!(Route::new(Vec::new()).is_none());
        assert!(Route::new(names(&["a", "b", "a"])).is_none());
        assert!(Route::new(names(&["a", "b", "c", "d", "e"])).is_none());
        let four = Route::new(names(&["a", "b", "c", "d"])).unwrap();
        assert_eq!(four.nodes().last(), Some(&"d".parse().unwrap()));
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
