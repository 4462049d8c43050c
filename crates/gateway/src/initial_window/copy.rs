//! Copying a route into another table, with metrics of a mark.
//!
//! Without I/O. The copy of a copy equals the copy. Therefore the routes that the kernel lists in
//! Midspan's tables can be compared with the routes that should be there.

use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHopFlags, RouteScope, RouteType,
};

use super::MarkedRoute;
use crate::ours::protocol;
use midspan_linux::routing::set_table;

/// The copy of `route` for `table`, with the metrics of `marked`. A route that leads nowhere
/// becomes a `throw` route. `device` is the index of the fragmenter's device, if there is one.
pub(crate) fn copy_route(
    route: &RouteMessage,
    table: u32,
    marked: MarkedRoute,
    device: Option<u32>,
) -> RouteMessage {
    let mut copy = configured(route);
    set_table(&mut copy, table);
    copy.header.protocol = protocol();
    if copy.header.kind != RouteType::Unicast {
        return throw_route(&copy);
    }
    marked.set(&mut copy, device);
    copy.attributes.sort_by_key(Nla::kind);
    copy
}

/// Converts a route from the form in which the kernel lists it to the form in which the kernel
/// accepts it.
pub(super) fn configured(route: &RouteMessage) -> RouteMessage {
    let mut configured = route.clone();
    configured.header.flags &= RouteFlags::Onlink;
    let by_identifier = has(route, |attribute| {
        matches!(attribute, RouteAttribute::NhId(_))
    });
    configured.attributes.retain(|attribute| {
        is_configuration(attribute) && !(by_identifier && is_next_hop(attribute))
    });
    for attribute in &mut configured.attributes {
        match attribute {
            RouteAttribute::MultiPath(hops) => {
                for hop in hops {
                    hop.flags &= RouteNextHopFlags::Onlink;
                }
            }
            // For IPv6, the kernel lists a hop limit of 0 if none is configured, and refuses it as
            // input.
            RouteAttribute::Metrics(metrics) => {
                metrics.retain(|metric| !matches!(metric, RouteMetric::Hoplimit(0)));
            }
            _ => {}
        }
    }
    configured
}

/// The route in place of `copy` that makes the kernel continue the lookup with the next rule.
pub(crate) fn throw_route(copy: &RouteMessage) -> RouteMessage {
    let mut throw = copy.clone();
    throw.header.kind = RouteType::Throw;
    throw.header.flags = RouteFlags::empty();
    throw.header.scope = RouteScope::Universe;
    throw.attributes.retain(|attribute| {
        matches!(
            attribute,
            RouteAttribute::Destination(_)
                | RouteAttribute::Source(_)
                | RouteAttribute::Priority(_)
                | RouteAttribute::Table(_)
        )
    });
    throw.attributes.sort_by_key(Nla::kind);
    throw
}

/// Whether the route leads through a gateway, which must be reachable itself.
pub(crate) fn needs_gateway(route: &RouteMessage) -> bool {
    has(route, |attribute| {
        matches!(
            attribute,
            RouteAttribute::Gateway(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::MultiPath(_)
                | RouteAttribute::NhId(_)
        )
    })
}

fn has(route: &RouteMessage, test: impl Fn(&RouteAttribute) -> bool) -> bool {
    route.attributes.iter().any(test)
}

/// Whether the attribute is configured. The kernel counts or derives the other attributes.
fn is_configuration(attribute: &RouteAttribute) -> bool {
    !matches!(
        attribute,
        RouteAttribute::CacheInfo(_)
            | RouteAttribute::Expires(_)
            | RouteAttribute::MulticastExpires(_)
            | RouteAttribute::MfcStats(_)
    )
}

/// Whether a next-hop object (`ip-nexthop(8)`) already contains the attribute.
fn is_next_hop(attribute: &RouteAttribute) -> bool {
    matches!(
        attribute,
        RouteAttribute::Oif(_)
            | RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::Encap(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::RouteMessageBuilder;
    use rtnetlink::packet_route::AddressFamily;
    use rtnetlink::packet_route::route::RouteProtocol;
    use std::net::Ipv4Addr;

    fn route() -> RouteMessage {
        let mut route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::new(192, 0, 2, 0), 24)
            .gateway(Ipv4Addr::new(198, 51, 100, 1))
            .output_interface(3)
            .priority(100)
            .build();
        route.header.flags = RouteFlags::Linkdown | RouteFlags::Onlink;
        let metrics = vec![RouteMetric::Mtu(1400), RouteMetric::InitCwnd(10)];
        route.attributes.push(RouteAttribute::Metrics(metrics));
        route
    }

    #[test]
    fn a_copy_has_the_window_and_keeps_the_rest() {
        let copy = copy_route(&route(), 7700, 200.into(), None);
        assert_eq!(midspan_linux::routing::table_of(&copy), 7700);
        assert_eq!(copy.header.protocol, RouteProtocol::Other(77));
        assert_eq!(copy.header.flags, RouteFlags::Onlink);
        let metrics = vec![RouteMetric::Mtu(1400), RouteMetric::InitCwnd(200)];
        assert!(copy.attributes.contains(&RouteAttribute::Metrics(metrics)));
        assert!(copy.attributes.contains(&RouteAttribute::Oif(3)));
        assert!(needs_gateway(&copy));
    }

    #[test]
    fn a_locked_mtu_takes_the_place_of_the_route_s_own() {
        let marked = MarkedRoute {
            initial_window: Some(2),
            locked_mtu: Some(4460),
            through_device: None,
        };
        let copy = copy_route(&route(), 7700, marked, None);
        let metrics = vec![
            RouteMetric::Lock(4),
            RouteMetric::Mtu(4460),
            RouteMetric::InitCwnd(2),
        ];
        assert!(copy.attributes.contains(&RouteAttribute::Metrics(metrics)));
        assert_eq!(copy_route(&copy, 7700, marked, None), copy);
        let mut six = route();
        six.header.address_family = AddressFamily::Inet6;
        let copy = copy_route(&six, 7700, marked, None);
        let metrics = vec![RouteMetric::Mtu(1400), RouteMetric::InitCwnd(2)];
        assert!(copy.attributes.contains(&RouteAttribute::Metrics(metrics)));
    }

    #[test]
    fn what_a_program_cuts_leaves_by_its_device_without_a_gateway() {
        let marked = |ipv4| MarkedRoute {
            initial_window: Some(2),
            locked_mtu: Some(4460),
            through_device: Some(super::super::ThroughDevice {
                ipv4,
                ipv6_mtu: 4444,
            }),
        };
        let mut six = route();
        six.header.address_family = AddressFamily::Inet6;
        let metrics = |mtu| {
            RouteAttribute::Metrics(vec![
                RouteMetric::Lock(4),
                RouteMetric::Mtu(mtu),
                RouteMetric::InitCwnd(2),
            ])
        };
        for (of, ipv4, mtu, is_through) in [
            (&six, false, 4444, true),
            (&route(), true, 4460, true),
            (&route(), false, 4460, false),
        ] {
            let copy = copy_route(of, 7700, marked(ipv4), Some(9));
            let device = if is_through { 9 } else { 3 };
            assert!(copy.attributes.contains(&RouteAttribute::Oif(device)));
            assert_eq!(needs_gateway(&copy), !is_through);
            assert!(copy.attributes.contains(&metrics(mtu)));
            assert_eq!(copy_route(&copy, 7700, marked(ipv4), Some(9)), copy);
        }
        // Without a device, the copy keeps the route's device.
        let copy = copy_route(&six, 7700, marked(true), None);
        assert!(copy.attributes.contains(&RouteAttribute::Oif(3)));
        assert!(!copy.attributes.contains(&metrics(4444)));
    }

    #[test]
    fn a_copy_of_a_copy_is_the_copy() {
        let copy = copy_route(&route(), 7700, 200.into(), None);
        assert_eq!(copy_route(&copy, 7700, 200.into(), None), copy);
        let throw = throw_route(&copy);
        assert_eq!(copy_route(&throw, 7700, 200.into(), None), throw);
    }

    #[test]
    fn a_route_that_leads_nowhere_is_left_to_the_main_table() {
        let mut nowhere = route();
        nowhere.header.kind = RouteType::Unreachable;
        let copy = copy_route(&nowhere, 7700, 200.into(), None);
        assert_eq!(copy.header.kind, RouteType::Throw);
        assert!(!needs_gateway(&copy));
        assert!(copy.attributes.contains(&RouteAttribute::Priority(100)));
    }

    #[test]
    fn a_next_hop_object_stands_for_the_whole_next_hop() {
        let mut object = route();
        object.attributes.push(RouteAttribute::NhId(5));
        let copy = copy_route(&object, 7700, 200.into(), None);
        assert!(copy.attributes.contains(&RouteAttribute::NhId(5)));
        assert!(!copy.attributes.contains(&RouteAttribute::Oif(3)));
    }
}
