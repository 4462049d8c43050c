//! For fuzz targets: what the kernel, `nft` and `/proc` tell, given to what reads it.
//!
//! In no release: the feature `fuzzing` is for the crate of fuzz targets alone. Each function takes
//! any bytes, and panics where what is read is not what it must be.

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

/// The fragmenter's device, and the table of the copies.
const DEVICE: u32 = 9;
const TABLE: u32 = 7700;

/// What one `recv` of a route socket brings: routes, of which copies are made.
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
        // What the kernel shows of a copy is compared with what should be there.
        assert_eq!(copy_route(&copy, TABLE, marked, device), copy);
        assert!(!needs_gateway(&throw_route(&copy)));
        names(&copy);
    }
}

/// What `nft` prints: as JSON (`nft -j list ruleset`) or as its own text.
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

/// Names of lock files, and `/proc/net/netfilter/nfnetlink_queue`.
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
