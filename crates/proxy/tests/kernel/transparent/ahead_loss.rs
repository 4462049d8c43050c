//! Loss on a leg on which Midspan sends ahead of the client's window (TGW).

use std::io::{Read, Write};

use super::narrow::{counter_of, sessions};
use super::support::*;

/// The most data that may be in flight, in bytes.
const AHEAD: u64 = 512 << 10;
/// The client's window in bytes.
const WINDOW: u64 = 64 << 10;
/// The client's counters of packets that it discarded because its window had no room.
const DISCARDED: [&str; 4] = [
    "BeyondWindow",
    "TCPZeroWindowDrop",
    "TCPBacklogDrop",
    "TCPRcvQDrop",
];
/// The client's counters of packets that it received twice.
const TWICE: [&str; 2] = ["TCPDSACKOldSent", "TCPDSACKOfoSent"];
const PROFILE: &str = "[profile.narrow]\nclients = \"all\"\nsend_ahead = \"512 KiB\"\n";
const BYTES: usize = 8_000_000;
/// A rule that drops every fortieth packet with much data. Such a packet may contain several
/// segments, because no device splits them here.
const LOSS: &str = "table inet path {\n chain in {\n type filter hook prerouting priority -450;\n \
    tcp sport 80 meta length > 1000 numgen inc mod 40 39 counter drop\n }\n}\n";

/// After a loss, Midspan retransmits at most as much data as was in flight beyond the client's
/// window, with at most one time-out or tail loss probe for each loss.
///
/// A packet is also lost if the client discards it because its window has no room; the client's
/// kernel counts these packets.
#[kernel_test]
fn no_more_is_resent_than_was_under_way() {
    let network = Network::new();
    let listener = network.listen(80);
    rules(&network.client, LOSS);
    let midspan = Midspan::ready(&network.gateway, &format!("{PROFILE}{TRANSPARENT}"));
    let socket = socket(&network.client, SERVER);
    socket.set_recv_buffer_size(WINDOW as usize).unwrap();
    let address = std::net::SocketAddr::new(SERVER.parse().unwrap(), 80);
    socket.connect_timeout(&address.into(), LIMIT).unwrap();
    let mut near = bounded(socket.into());
    let (mut far, _) = accept(&listener);
    let data: Vec<u8> = (0..BYTES).map(|i| ((i * 7) >> 5) as u8).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        far.write_all(&sent).unwrap();
        far
    });
    let mut received = vec![0; data.len()];
    near.read_exact(&mut received).unwrap();
    assert!(received == data);
    drop(writer.join().unwrap());
    drop(near);
    wait_until("closed", || network.taken(80) == 0);
    let (lost, lost_bytes) = dropped(&output(&network.client, "nft", &["list", "ruleset"]));
    let of = |namespace, name| counter_of(namespace, "netstat", "TcpExt", name);
    let probes = of(&network.gateway, "TCPLossProbes").unwrap();
    let discarded: Option<u64> = DISCARDED.iter().map(|name| of(&network.client, name)).sum();
    let twice: u64 = TWICE
        .map(|name| of(&network.client, name).unwrap())
        .iter()
        .sum();
    let log = midspan.end();
    let seen = sessions(&log);
    let noticed = seen[0]["sending_ahead_losses"];
    let again = seen[0]["client_retransmitted_bytes"];
    let timeouts = seen[0]["client_timeouts"];
    println!(
        "{lost} packets of {} KB lost, {discarded:?} discarded, noticed {noticed} times; {} KB sent \
         again, {twice} packets without need, {timeouts} time-outs, {probes} tail loss probes",
        lost_bytes / 1000,
        again / 1000
    );
    assert!(lost > 0 && noticed > 0, "{log}");
    // At the first loss, everything is in flight; at a later one, the client's window or twice
    // that.
    let beyond = AHEAD + noticed * 2 * WINDOW;
    assert!(again <= lost_bytes + beyond, "{again} bytes");
    match discarded {
        Some(discarded) => assert!(timeouts + probes <= lost + discarded + twice, "{log}"),
        None => skip_part("this kernel does not count the packets that a client discards"),
    }
}

/// The packets and bytes of the only `counter` in a ruleset.
fn dropped(ruleset: &str) -> (u64, u64) {
    let (_, rest) = ruleset.split_once("counter packets ").unwrap();
    let mut words = rest.split_whitespace();
    let packets = words.next().unwrap().parse().unwrap();
    (packets, words.nth(1).unwrap().parse().unwrap())
}
