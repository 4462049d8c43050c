//! For fuzz targets: passes data of the kernel, `nft` and `/proc` to its parsers.
//!
//! Not in releases: only the crate of fuzz targets uses the feature `fuzzing`. Each function
//! accepts any bytes, and panics if the result breaks an invariant.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use rtnetlink::packet_route::AddressFamily;

use crate::nfnetlink::{Received, attributes, messages};
use crate::own_addresses::{OwnAddresses, OwnPrefix};
use crate::route_socket::Answer;
use crate::{connection_tracking, nftables, own_addresses, owner, packet_queue};

/// The data of one `recv` of a netfilter socket: packets of a queue, tracked connections, the
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
    let _ = nftables::counter::read(received);
}

/// The number of the request to which [`route_lists`] is given answers.
pub const LIST_NUMBER: u32 = 1;

/// A list of the kernel, as several `recv` of a route socket return it. The first byte selects the
/// list (interfaces, addresses, rules or routes) and the family. Each part follows its length (16
/// bits, little-endian).
pub fn route_lists(input: &[u8]) {
    let Some((&chosen, mut parts)) = input.split_first() else {
        return;
    };
    let family = match chosen & 1 {
        0 => AddressFamily::Inet,
        _ => AddressFamily::Inet6,
    };
    let mut own: Vec<OwnPrefix> = Vec::new();
    let mut answer = Answer::to(LIST_NUMBER);
    let mut is_over = false;
    while let Some((length, rest)) = parts.split_first_chunk() {
        let (part, rest) = rest
            .split_at_checked(usize::from(u16::from_le_bytes(*length)))
            .unwrap_or((rest, &[]));
        parts = rest;
        let mut seen = 0;
        let end = answer.take_in(part, &mut |content| {
            assert!(!is_over);
            seen += content.len();
            let understood = match chosen / 2 % 4 {
                0 => own_addresses::vrf_in(content).map(|_| ()),
                1 => own_addresses::address_in(content).map(|found| own.extend(found)),
                2 => own_addresses::table_in(family, content).map(|_| ()),
                _ => own_addresses::local_route_in(family, content).map(|found| own.extend(found)),
            };
            is_over = understood.is_none();
            match is_over {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        assert!(seen <= part.len());
        if end.is_some() {
            break;
        }
    }
    for prefix in &own {
        assert!(prefix.length <= if prefix.address.is_ipv4() { 32 } else { 128 });
    }
    let all: OwnAddresses = own.iter().copied().collect();
    for prefix in all.prefixes() {
        // No program connects to an IPv4 address that is written as an IPv6 address.
        let is_mapped = prefix.address != prefix.address.to_canonical();
        assert!(is_mapped || all.contains(SocketAddr::new(prefix.address, 1)));
    }
}

/// What `nft` prints as JSON (`nft -j list ruleset`).
pub fn nft_listings(listing: &[u8]) {
    if let Ok(chains) = nftables::listed(listing, "chain") {
        let found = nftables::chains_at("input", &chains);
        assert!(found.len() <= chains.len());
        assert!(found.is_sorted());
    }
}

/// The tables of TCP sockets in `/proc/net`.
pub fn socket_tables(table: &[u8]) {
    let text = String::from_utf8_lossy(table);
    for line in text.lines() {
        if let Some((address, _)) = owner::listener(line) {
            assert_eq!(address.ip(), address.ip().to_canonical());
        }
    }
}
