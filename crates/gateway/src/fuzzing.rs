//! For fuzz targets: functions that give the output of the kernel, `nft` and `/proc` to its
//! parsers.
//!
//! No release contains this module: only the crate of fuzz targets enables the feature `fuzzing`.
//! Each function takes any bytes, and panics if the parsed values contradict each other.

use midspan_linux::nftables;
use midspan_linux::routing::table_of;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::route::RouteMessage;

use crate::initial_window::copy::{copy_route, needs_gateway, throw_route};
use crate::initial_window::mirror::names;
use crate::initial_window::tables::is_configured;
use crate::initial_window::{MarkedRoute, ThroughDevice};
use crate::interception::{own_tables, survey};
use crate::{claim, ours, ruleset};

/// The index of the fragmenter's device, and the number of the table of the copies.
const DEVICE: u32 = 9;
const TABLE: u32 = 7700;

/// The messages of one `recv` from a route socket: routes, of which copies are made.
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
    let _ = (is_configured(route), ours::is_ours(route));
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
        assert_eq!(table_of(&copy), TABLE);
        assert!(ours::is_ours(&copy));
        // `mirror` compares the copies that the kernel lists with the copies that should be there.
        assert_eq!(copy_route(&copy, TABLE, marked, device), copy);
        assert!(!needs_gateway(&throw_route(&copy)));
        names(&copy);
    }
}

/// The output of `nft`, as JSON (`nft -j list ruleset`) or as text.
pub fn nft_listings(listing: &[u8]) {
    if let Ok(rules) = nftables::listed(listing, "rule") {
        for rule in &rules {
            let uses = ruleset::uses_of(rule);
            assert!(uses.is_empty() || rule["expr"].is_array());
        }
    }
    if let Ok(text) = std::str::from_utf8(listing) {
        for table in own_tables::tables(text) {
            let named = format!("table {} {}", table.family, table.name);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&named), "{named}");
        }
    }
}

/// Names of lock files, and the contents of `/proc/net/netfilter/nfnetlink_queue`.
pub fn files_and_queues(table: &[u8]) {
    let text = String::from_utf8_lossy(table);
    for line in text.lines() {
        let name = claim::decode(line);
        assert_eq!(claim::decode(&claim::encode(&name)), name);
    }
    for queue in [0, 7700, u16::MAX] {
        if survey::holder(queue, &text).is_some() {
            assert!(text.contains(&queue.to_string()));
        }
    }
}
