//! Many connections of one client at a time, on a path that loses fragments.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::narrow::counter;
use super::support::*;

const CONNECTIONS: usize = 50;
const BYTES: usize = 300_000;
const PROFILE: &str = "[profile.narrow]\nclients = \"all\"\noversized_segments = \"4420 B\"\n";
/// A rule that drops one fragment in a hundred, before any host reassembles them.
const LOSS: &str = "table inet path {\n chain in {\n type filter hook prerouting priority -450;\n \
    ip frag-off & 0x3fff != 0 numgen random mod 100 0 drop\n }\n}\n";

fn data(port: u16) -> Vec<u8> {
    let seed = usize::from(port);
    let bytes = (0..BYTES).map(|index| (index.wrapping_mul(seed) >> 7) as u8);
    bytes.collect()
}

/// The kernel counts identifications per connection, so fragments of two packets may be reassembled
/// as one packet. TCP's checksum detects that, and every byte is delivered correctly.
#[kernel_test]
fn every_byte_is_delivered() {
    let network = Network::with_access_router();
    let listener = network.listen(PORT);
    let text = format!("{PROFILE}{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    super::narrow::download_until_known(&network, &midspan, &listener);
    let before = midspan.ended();
    rules(network.access.as_ref().unwrap(), LOSS);
    let connect = |_| network.connect(SERVER, PORT).unwrap();
    let clients: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    let accepted = (0..CONNECTIONS).map(|_| accept(&listener));
    let mut servers: BTreeMap<u16, TcpStream> = accepted
        .map(|(stream, from)| (from.port(), stream))
        .collect();
    let mut threads = Vec::new();
    for mut near in clients {
        let port = near.local_addr().unwrap().port();
        let mut far = servers.remove(&port).unwrap();
        threads.push(std::thread::spawn(move || {
            far.write_all(&data(port)).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client has received everything and closes.
            far.read_to_end(&mut Vec::new()).unwrap();
        }));
        threads.push(std::thread::spawn(move || {
            let mut received = Vec::new();
            near.read_to_end(&mut received).unwrap();
            assert!(received == data(port), "{} bytes", received.len());
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    wait_until("closed", || network.taken(PORT) == 0);
    let log = midspan.end();
    let seen = super::narrow::sessions(&log);
    assert_eq!(seen.len(), CONNECTIONS + before);
    let sum = |name: &str| {
        seen[before..]
            .iter()
            .filter_map(|one| one.get(name))
            .sum::<u64>()
    };
    let oversized = sum("oversized_segments");
    assert!(oversized > 100, "{oversized} oversized segments: {log}");
    println!(
        "oversized segments {oversized}, put together {}, fallbacks {}; reassembly failures {}, \
         wrong checksums {}",
        counter(&network.client, "Ip", "ReasmOKs"),
        sum("oversized_fallbacks"),
        counter(&network.client, "Ip", "ReasmFails"),
        counter(&network.client, "Tcp", "InCsumErrors"),
    );
}
