//! Loss on a leg that is sent ahead of the client's window (TGW).

use std::io::{Read, Write};

use crate::narrow::{counter, counter_of, sessions};
use crate::support::*;

/// What may be under way.
const AHEAD: u64 = 512 << 10;
const PROFILE: &str = "[profile.narrow]\nclients = \"all\"\nsend_ahead = \"512 KiB\"\n";
const BYTES: usize = 8_000_000;
/// Every fortieth packet with much data, which may be many segments: no device cuts them here.
const LOSS: &str = "table inet path {\n chain in {\n type filter hook prerouting priority -450;\n \
    tcp sport 80 meta length > 1000 numgen inc mod 40 39 counter drop\n }\n}\n";

/// After a loss no more is sent again than was under way. How often that took a time-out or a
/// tail loss probe is printed.
pub fn no_more_is_resent_than_was_under_way() {
    let network = Network::new();
    let listener = network.listen(80);
    rules(&network.client, LOSS);
    let midspan = Midspan::ready(&network.gateway, &format!("{PROFILE}{TRANSPARENT}"));
    let socket = socket(&network.client, SERVER);
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let address = std::net::SocketAddr::new(SERVER.parse().unwrap(), 80);
    socket.connect_timeout(&address.into(), LIMIT).unwrap();
    let mut near = bounded(socket.into());
    let (mut far, _) = accept(&listener);
    let before = counter(&network.gateway, "Tcp", "RetransSegs");
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
    let lost = dropped(&output(&network.client, "nft", &["list", "ruleset"]));
    let again = (counter(&network.gateway, "Tcp", "RetransSegs") - before) * 1460;
    let extended = |name| counter_of(&network.gateway, "netstat", "TcpExt", name);
    let (timeouts, probes) = (extended("TCPTimeouts"), extended("TCPLossProbes"));
    let log = midspan.end();
    let seen = sessions(&log);
    let noticed = seen[0]["sending_ahead_losses"];
    println!(
        "{lost} packets lost, noticed {noticed} times; {} KB sent again, {timeouts} time-outs, \
         {probes} tail loss probes",
        again / 1000
    );
    assert!(lost > 0 && noticed > 0, "{log}");
    // A time-out that comes too early sends all again as well, and a busy client drops what it has
    // no room for.
    assert!(
        again <= (lost + noticed + timeouts) * AHEAD,
        "{again} bytes"
    );
}

/// What the only `counter` has counted.
fn dropped(ruleset: &str) -> u64 {
    let (_, rest) = ruleset.split_once("counter packets ").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}
