//! What all our routes and routing rules carry: a routing protocol number.

use midspan_linux::routing::Which;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};

/// The routing protocol number that all our rules and routes carry (see `rt_protos`).
pub const PROTOCOL: u8 = 77;

/// Our routes, in whatever table.
pub(crate) const OUR_ROUTES: Which = Which::Protocol(PROTOCOL);

pub(crate) const fn protocol() -> RouteProtocol {
    RouteProtocol::Other(PROTOCOL)
}

pub(crate) fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == protocol()
}

pub(crate) fn is_our_rule(rule: &RuleMessage) -> bool {
    rule.attributes
        .contains(&RuleAttribute::Protocol(protocol()))
}
