//! See [`crate::fuzzing`].

use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::RouteMessage;

use super::copy::{copy_route, needs_gateway, throw_route};
use super::{MarkedRoute, ThroughDevice, mirror, ours, tables};

/// The fragmenter's device, and the table of the copies.
const DEVICE: u32 = 9;
const TABLE: u32 = 7700;

/// Messages of a route socket, one behind the other.
pub fn route_messages(mut received: &[u8]) {
    while let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(received) {
        if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) = &message.payload
        {
            one_route(route);
        }
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        if length == 0 {
            break;
        }
        received = received
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
}

fn one_route(route: &RouteMessage) {
    let _ = (tables::is_configured(route), ours::is_ours(route));
    let through = |ipv4| MarkedRoute {
        initial_window: Some(2),
        locked_mtu: Some(4460),
        through_device: Some(ThroughDevice {
            ipv4,
            ipv6_mtu: 4444,
        }),
    };
    for (marked, device) in [
        (MarkedRoute::from(200), None),
        (through(false), Some(DEVICE)),
        (through(true), Some(DEVICE)),
    ] {
        let copy = copy_route(route, TABLE, marked, device);
        assert_eq!(ours::table_of(&copy), TABLE);
        assert!(ours::is_ours(&copy));
        // What the kernel shows of a copy is compared with what should be there.
        assert_eq!(copy_route(&copy, TABLE, marked, device), copy);
        assert!(!needs_gateway(&throw_route(&copy)));
        mirror::names(&copy);
    }
}
