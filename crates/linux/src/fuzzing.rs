//! For fuzz targets: what the kernel, `nft` and `/proc` tell, given to what reads it.
//!
//! In no release: the feature `fuzzing` is for the crate of fuzz targets alone. Each function takes
//! any bytes, and panics where what is read is not what it must be.

use crate::nfnetlink::{Received, attributes, messages};
use crate::{
    claim, connection_tracking, initial_window, interception, nftables, owner, packet_queue,
    ruleset,
};

/// What one `recv` of a netfilter socket brings: packets of a queue, tracked connections, the
/// number of the ruleset.
pub fn netfilter_messages(received: &[u8]) {
    let mut read = 0;
    for message in messages(received) {
        let Received::Message(_, content) = message else {
            continue;
        };
        read += content.len();
        if let Some(packet) = packet_queue::parse(content) {
            assert!(content.len() >= packet.payload.len() + 4);
        }
        let _ = connection_tracking::tracked(content);
        let held: usize = attributes(content).map(|(_, value)| value.len()).sum();
        assert!(held <= content.len());
    }
    assert!(read <= received.len());
    let _ = nftables::generation::read(received);
}

/// What one `recv` of a route socket brings: routes and addresses, of which copies are made.
pub fn route_messages(received: &[u8]) {
    initial_window::fuzzing::route_messages(received);
}

/// What `nft` prints: as JSON (`nft -j list ruleset`) or as its own text.
pub fn nft_listings(listing: &[u8]) {
    if let Ok(rules) = nftables::listed(listing, "rule") {
        for rule in &rules {
            let uses = ruleset::uses_of(rule);
            assert!(uses.is_empty() || rule["expr"].is_array());
        }
    }
    if let Ok(chains) = nftables::listed(listing, "chain") {
        let found = nftables::chains_at("input", &chains);
        assert!(found.len() <= chains.len());
        assert!(found.is_sorted());
    }
    if let Ok(text) = std::str::from_utf8(listing) {
        interception::fuzzing::nft_text(text);
    }
}

/// Tables of `/proc/net`: sockets of TCP, packet queues; and names of lock files.
pub fn socket_tables(table: &[u8]) {
    let text = String::from_utf8_lossy(table);
    for line in text.lines() {
        if let Some((address, _)) = owner::listener(line) {
            assert_eq!(address.ip(), address.ip().to_canonical());
        }
        let name = claim::decode(line);
        assert_eq!(claim::decode(&claim::encode(&name)), name);
    }
    interception::fuzzing::queue_table(&text);
}
