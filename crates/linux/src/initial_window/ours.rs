//! What our routes carry: a routing protocol number, and the table in which they stand.

use rtnetlink::packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol};

/// The routing protocol number that all our rules and routes carry (see `rt_protos`).
pub const PROTOCOL: u8 = 77;

pub(crate) const fn protocol() -> RouteProtocol {
    RouteProtocol::Other(PROTOCOL)
}

/// The table a route stands in.
pub(crate) fn table_of(route: &RouteMessage) -> u32 {
    let attribute = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    attribute.unwrap_or(u32::from(route.header.table))
}

pub(super) fn set_table(route: &mut RouteMessage, table: u32) {
    route
        .attributes
        .retain(|attribute| !matches!(attribute, RouteAttribute::Table(_)));
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.attributes.push(RouteAttribute::Table(table));
}

pub(crate) fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == protocol()
}
