//! The routing protocol number that all routes and routing rules of Midspan have.

use midspan_linux::routing::Which;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};

/// The routing protocol number of all rules and routes of Midspan (see `rt_protos`).
pub const PROTOCOL: u8 = 77;

/// Midspan's routes, in all tables.
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
