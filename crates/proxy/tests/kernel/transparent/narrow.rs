//! Access profiles: oversized segments and sending ahead, and clients that do not support them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use socket2::SockRef;

use super::support::*;

pub const FIXED: &str = "[profile.narrow]\nclients = [\"10.1.0.0/16\", \"fd01::/16\"]\noversized_segments = \"4420 B\"\n";
const AUTO: &str = "[profile.narrow]\nclients = \"all\"\noversized_segments = \"auto\"\n\
    downstream = \"400 Mbit/s\"\nupstream = \"2 Mbit/s\"\n";
const AHEAD: &str = "[profile.narrow]\nclients = \"all\"\nsend_ahead = \"512 KiB\"\n";

pub fn with(profile: &str) -> String {
    format!("{profile}{TRANSPARENT}")
}

/// A download of `count` bytes, which must arrive unchanged.
pub fn download(
    network: &Network,
    midspan: &Midspan,
    listener: &TcpListener,
    server: &str,
    count: usize,
) {
    let ended = midspan.ended();
    let mut near = network.connect(server, PORT).unwrap();
    let (mut far, _) = accept(listener);
    assert_eq!(network.taken(PORT), 1);
    near.write_all(b"get").unwrap();
    far.read_exact(&mut [0; 3]).unwrap();
    carries(far, near, count);
    // Afterwards the next session can use the result of the probe.
    wait_until("ended", || midspan.ended() > ended);
}

/// Downloads until the last session fulfils a condition. A download can end before its probe; then
/// the next one probes.
fn download_until(
    what: &str,
    mut download: impl FnMut(),
    midspan: &Midspan,
    holds: impl Fn(&BTreeMap<String, u64>) -> bool,
) {
    for _ in 0..10 {
        download();
        if sessions(&midspan.log()).last().is_some_and(&holds) {
            return;
        }
    }
    panic!("never {what}");
}

/// Downloads until a session uses from its start the verdict that the client takes oversized
/// segments.
pub fn download_until_known(network: &Network, midspan: &Midspan, listener: &TcpListener) {
    let download = || download(network, midspan, listener, SERVER, 2_000_000);
    download_until("known", download, midspan, |session| {
        session["oversized_probes"] == 0 && session["oversized_segments"] > 0
    });
}

/// The numbers in the log lines of sessions that ended, in order.
pub fn sessions(log: &str) -> Vec<BTreeMap<String, u64>> {
    let lines = log.lines().filter(|line| line.contains("session ended"));
    let fields = |line: &str| {
        let words = line.split_whitespace();
        words
            .filter_map(|word| {
                let (name, value) = word.split_once('=')?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect()
    };
    lines.map(fields).collect()
}

/// Number of datagrams that a host has reassembled from fragments.
fn reassembled(namespace: &NetworkNamespace) -> u64 {
    counter(namespace, "Ip", "ReasmOKs")
}

/// A counter of IPv4 or TCP.
pub fn counter(namespace: &NetworkNamespace, protocol: &str, name: &'static str) -> u64 {
    counter_of(namespace, "snmp", protocol, name).unwrap()
}

/// A counter in a file of `/proc/net`; `None` if this kernel does not have it.
pub fn counter_of(
    namespace: &NetworkNamespace,
    file: &str,
    group: &str,
    name: &'static str,
) -> Option<u64> {
    let heading = format!("{group}:");
    let file = format!("/proc/thread-self/net/{file}");
    namespace
        .run(move || {
            let text = fs::read_to_string(file).unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with(&heading));
            let mut next = || lines.next().unwrap().split_whitespace();
            let (names, mut values) = (next(), next());
            let place = names.take_while(|other| *other != name).count();
            values.nth(place).map(|value| value.parse().unwrap())
        })
        .unwrap()
}

/// A counter of IPv6.
fn counter6(namespace: &NetworkNamespace, name: &'static str) -> u64 {
    namespace
        .run(move || {
            let text = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.unwrap().split_whitespace().nth(1).unwrap();
            value.parse().unwrap()
        })
        .unwrap()
}

/// Number of datagrams from this server that a host has reassembled from fragments.
pub fn reassembled_by(namespace: &NetworkNamespace, server: &str) -> u64 {
    match server {
        SERVER6 => counter6(namespace, "Ip6ReasmOKs"),
        _ => reassembled(namespace),
    }
}

/// Whether the fragmenter can open a TUN device, which an ordinary user may not be allowed to do.
pub fn has_device() -> bool {
    let device = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    match device {
        Ok(_) => true,
        Err(error) => {
            println!("left out: /dev/net/tun: {error}");
            false
        }
    }
}

/// The first session probes; later sessions of the client use the verdict.
#[kernel_test]
fn segments_are_raised_after_a_probe() {
    // The number of a session's oversized segments depends on when the segment size was raised.
    for (profile, nat, least) in [(FIXED, "", 300), (FIXED, STRICT, 300), (AUTO, "", 90)] {
        let network = Network::new();
        rules(&network.gateway, nat);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &with(profile));
        download_until_known(&network, &midspan, &listener);
        let unknown = midspan.ended() - 1;
        download(&network, &midspan, &listener, SERVER, 2_000_000);
        let arrived = reassembled(&network.client);
        let seen = sessions(&midspan.end());
        assert_eq!(seen.len(), unknown + 2);
        let all = |name: &str| seen.iter().map(|one| one[name]).collect::<Vec<_>>();
        assert!(
            all("oversized_probes")[..unknown].iter().sum::<u64>() > 0,
            "{seen:?}"
        );
        assert_eq!(all("oversized_probes")[unknown..], [0, 0], "{seen:?}");
        assert!(
            all("oversized_fallbacks").iter().all(|count| *count == 0),
            "{seen:?}"
        );
        assert!(arrived >= 2 * least, "{arrived} oversized segments");
        for session in &seen[unknown..] {
            assert!(session["oversized_segments"] >= least, "{session:?}");
        }
        assert!(all("client_acknowledgements").iter().all(|acks| *acks > 0));
    }
}

/// Verdicts are restored after a restart; a state file with other content does no harm.
#[kernel_test]
fn verdicts_are_kept_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("verdicts");
    let state = format!(
        "[relay]\nstate_directory = \"{}\"\n",
        directory.path().display()
    );
    let text = with(FIXED).replace("[relay]\n", &state);
    let network = Network::new();
    let listener = network.listen(PORT);
    let probes = || {
        let midspan = Midspan::ready(&network.gateway, &text);
        download_until_known(&network, &midspan, &listener);
        let seen = sessions(&midspan.end());
        seen.iter().map(|one| one["oversized_probes"]).sum::<u64>()
    };
    assert!(probes() >= 1);
    let kept = fs::read_to_string(&file).unwrap();
    assert!(kept.contains(&format!("{CLIENT} takes ")), "{kept}");
    assert_eq!(probes(), 0);
    let long = vec![b'7'; 9 << 20];
    for content in [&b"\0\xff\n\n10.1.0.2"[..], b"", &long] {
        fs::write(&file, content).unwrap();
        assert!(probes() >= 1);
        assert_eq!(probes(), 0);
    }
}

/// An option that a profile removes from the client's SYN is neither in the SYN-ACK nor in any
/// segment.
#[kernel_test]
fn timestamps_are_left_out() {
    let without = FIXED.replace("oversized", "timestamps = false\noversized");
    for (profile, has) in [(FIXED, true), (without.as_str(), false)] {
        for handshake in ["", "handshake = \"early\"\n"] {
            let network = Network::new();
            let listener = network.listen(PORT);
            let text = format!("{}{handshake}", with(profile));
            let midspan = Midspan::ready(&network.gateway, &text);
            for server in [SERVER, SERVER6] {
                let mut near = network.connect(server, PORT).unwrap();
                let (mut far, _) = accept(&listener);
                near.write_all(b"get").unwrap();
                far.read_exact(&mut [0; 3]).unwrap();
                assert_eq!(network.taken(PORT), 1);
                let agreed = midspan_linux::tcp::agreed(&near).unwrap();
                assert_eq!(agreed.timestamps, has, "{server} {handshake}");
                // The other leg keeps its timestamps.
                assert!(midspan_linux::tcp::agreed(&far).unwrap().timestamps);
                carries(far, near, 500_000);
                wait_until("closed", || network.taken(PORT) == 0);
            }
            for (session, headers) in sessions(&midspan.end()).iter().zip([40, 60]) {
                let count = session["client_acknowledgements"];
                let size = headers + if has { 12 } else { 0 };
                assert!(count > 0, "{session:?}");
                assert_eq!(session["client_acknowledgement_bytes"], count * size);
            }
        }
    }
}

/// Oversized segments do not delay small answers, in turn with requests.
#[kernel_test]
fn requests_and_answers_go_on() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &with(FIXED));
    let mut near = network.connect(SERVER, PORT).unwrap();
    let (mut far, _) = accept(&listener);
    let answer = vec![7; 6000];
    for _ in 0..200 {
        near.write_all(b"get").unwrap();
        far.read_exact(&mut [0; 3]).unwrap();
        far.write_all(&answer).unwrap();
        let mut received = vec![0; 6000];
        near.read_exact(&mut received).unwrap();
        assert!(received == answer);
    }
    drop((near, far));
    wait_until("closed", || network.taken(PORT) == 0);
    let seen = sessions(&midspan.end());
    assert_eq!(seen[0]["oversized_fallbacks"], 0);
}

/// The router before the client drops all fragments.
#[kernel_test]
fn a_path_that_drops_fragments() {
    const DROP: &str = "table inet path {\n chain in {\n type filter hook prerouting priority -450;\n \
        ip frag-off & 0x3fff != 0 drop\n }\n}\n";
    for profile in [FIXED, AUTO] {
        let network = Network::with_access_router();
        rules(network.access.as_ref().unwrap(), DROP);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &with(profile));
        // Two lost probes, in one session or in two.
        download(&network, &midspan, &listener, SERVER, 3_000_000);
        let mut near = network.connect(SERVER, PORT).unwrap();
        let (mut far, _) = accept(&listener);
        for _ in 0..8 {
            far.write_all(&[1; 40_000]).unwrap();
            near.read_exact(&mut [0; 40_000]).unwrap();
            std::thread::sleep(Duration::from_millis(400));
        }
        drop((near, far));
        wait_until("closed", || network.taken(PORT) == 0);
        download(&network, &midspan, &listener, SERVER, 3_000_000);
        let seen = sessions(&midspan.end());
        // At the end of a session, there may be no data left for a probe.
        for one in seen
            .iter()
            .filter(|one| one.contains_key("oversized_probes"))
        {
            assert!(
                one["oversized_probes"] >= one["oversized_fallbacks"],
                "{seen:?}"
            );
        }
        assert_eq!(reassembled(&network.client), 0);
        let probes: u64 = seen
            .iter()
            .filter_map(|one| one.get("oversized_probes"))
            .sum();
        assert!(probes >= 1, "{seen:?}");
    }
}

/// The last link of the path, or the client's own interface, has a smaller MTU.
#[kernel_test]
fn a_path_with_a_small_mtu() {
    for mtu in ["1492", "1400", "1280", "1000"] {
        for of_client in [false, true] {
            let network = Network::with_access_router();
            let access = network.access.as_ref().unwrap();
            output(access, "ip", &["link", "set", "inner", "mtu", mtu]);
            if of_client {
                output(&network.client, "ip", &["link", "set", "eth", "mtu", mtu]);
            }
            let listener = network.listen(PORT);
            let midspan = Midspan::ready(&network.gateway, &with(FIXED));
            let download = || download(&network, &midspan, &listener, SERVER, 1_500_000);
            if of_client && mtu == "1000" {
                // The MTU is too small, so such a client is left alone.
                (0..3).for_each(|_| download());
                for session in sessions(&midspan.log()) {
                    assert_eq!(session["oversized_probes"], 0);
                }
            } else {
                // The discovery of the path MTU loses segments, which looks like loss.
                download_until("raised", download, &midspan, |session| {
                    session["oversized_fallbacks"] == 0 && session["oversized_segments"] > 0
                });
            }
            midspan.stop();
        }
    }
}

/// The access router masquerades, or tracks connections and drops packets that it cannot assign.
#[kernel_test]
fn behind_another_router() {
    const NAT: &str = "table ip nat {\n chain post {\n type nat hook postrouting priority srcnat;\n \
        oifname \"outer\" masquerade\n }\n}\n";
    const STATEFUL: &str = "table inet filter {\n chain forward {\n \
        type filter hook forward priority filter; policy drop;\n ct state invalid drop\n \
        ct state established,related accept\n iifname \"inner\" accept\n }\n}\n";
    const ALL: &str = "[profile.narrow]\nclients = \"all\"\noversized_segments = \"13300 B\"\n";
    for text in [NAT, STATEFUL] {
        let network = Network::with_access_router();
        route(&network.router, "10.5.0.0/24", "10.2.0.1", "near");
        rules(network.access.as_ref().unwrap(), text);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &with(ALL));
        let download = || download(&network, &midspan, &listener, SERVER, 3_000_000);
        download_until("raised", download, &midspan, |session| {
            session["oversized_segments"] >= 100
        });
        midspan.stop();
    }
}

/// Fragments that the kernel does not make itself: IPv6, and fragments smaller than the device's
/// MTU.
#[kernel_test]
fn the_fragmenter_cuts() {
    const DOWNLOADS: usize = 6;
    if !has_device() {
        return;
    }
    let smaller = FIXED.replace("oversized", "fragment_size = \"1000 B\"\noversized");
    // Fragments of a segment: 3 of 1280 bytes; 4 of 1000.
    for (profile, server, each) in [
        (FIXED, SERVER6, 3),
        (smaller.as_str(), SERVER6, 4),
        (smaller.as_str(), SERVER, 4),
    ] {
        for nat in ["", STRICT] {
            let network = Network::new();
            rules(&network.gateway, nat);
            // The round trip is a few microseconds here, and on a busy machine the fragmenter's thread
            // waits for much longer. The kernel must not take segments that overtake a fragmented
            // one for a loss: no RACK, no tail loss probe, and no loss by three duplicate ACKs.
            for (parameter, value) in [
                ("tcp_recovery", "0"),
                ("tcp_early_retrans", "0"),
                ("tcp_reordering", "300"),
            ] {
                let parameter = format!("net/ipv4/{parameter}");
                network.gateway.set_parameter(&parameter, value).unwrap();
            }
            let listener = network.listen(PORT);
            let midspan = Midspan::ready(&network.gateway, &with(profile));
            for _ in 0..DOWNLOADS {
                download(&network, &midspan, &listener, server, 2_000_000);
            }
            let (fragments, arrived) = match server {
                SERVER => (
                    counter(&network.client, "Ip", "ReasmReqds"),
                    counter(&network.client, "Ip", "ReasmOKs"),
                ),
                _ => (
                    counter6(&network.client, "Ip6ReasmReqds"),
                    counter6(&network.client, "Ip6ReasmOKs"),
                ),
            };
            let log = midspan.end();
            let seen = sessions(&log);
            // A download can end before its probe; then the next one probes.
            let probed = seen.iter().rposition(|one| one["oversized_probes"] > 0);
            let raised = probed.expect("a probe") + 1;
            assert!(raised < DOWNLOADS, "no session knew the verdict: {log}");
            for session in &seen {
                assert_eq!(session["oversized_fallbacks"], 0, "{log}");
            }
            for session in &seen[raised..] {
                assert!(session["oversized_segments"] >= 300, "{log}");
            }
            assert!(arrived >= 300, "{arrived} oversized segments: {log}");
            assert!(
                // Some segments are not full.
                fragments >= arrived * each * 9 / 10 && fragments <= arrived * each,
                "{fragments} fragments of {arrived}"
            );
        }
    }
}

/// The router before the client drops all fragments of IPv6: Midspan returns to normal segments.
#[kernel_test]
fn a_path_that_drops_fragments_of_ipv6() {
    const DROP: &str = "table inet path {\n chain in {\n type filter hook prerouting priority -450;\n \
        exthdr frag exists drop\n }\n}\n";
    let network = Network::with_access_router();
    rules(network.access.as_ref().unwrap(), DROP);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &with(FIXED));
    let download = || download(&network, &midspan, &listener, SERVER6, 3_000_000);
    match has_device() {
        // A session may end before its probe.
        true => download_until("lost", download, &midspan, |session| {
            session["oversized_fallbacks"] > 0
        }),
        false => (0..3).for_each(|_| download()),
    }
    let seen = sessions(&midspan.end());
    let sum = |name: &str| seen.iter().filter_map(|one| one.get(name)).sum::<u64>();
    assert!(
        sum("oversized_probes") >= sum("oversized_fallbacks"),
        "{seen:?}"
    );
    assert_eq!(sum("oversized_probes") > 0, has_device(), "{seen:?}");
    assert_eq!(counter6(&network.client, "Ip6ReasmOKs"), 0);
}

/// A profile for other clients has no effect.
#[kernel_test]
fn clients_that_are_left_alone() {
    let other = FIXED.replace("[\"10.1.0.0/16\", \"fd01::/16\"]", "[\"10.99.0.0/16\"]");
    for server in [SERVER, SERVER6] {
        let network = Network::new();
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &with(&other));
        download(&network, &midspan, &listener, server, 1_000_000);
        let seen = sessions(&midspan.end());
        assert_eq!(seen[0].get("oversized_segments"), None);
    }
}

/// Midspan sends more than the client's window, but nothing to a client that has stopped reading,
/// and every byte arrives.
#[kernel_test]
fn sending_ahead_of_a_small_window() {
    for server in [SERVER, SERVER6] {
        let network = Network::new();
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &with(AHEAD));
        let socket = socket(&network.client, server);
        socket.set_recv_buffer_size(32 << 10).unwrap();
        let address: std::net::SocketAddr =
            std::net::SocketAddr::new(server.parse().unwrap(), PORT);
        socket.connect_timeout(&address.into(), LIMIT).unwrap();
        let mut near = bounded(socket.into());
        let (mut far, _) = accept(&listener);
        let data: Vec<u8> = (0..3_000_000_u32).map(|i| ((i * 7) >> 5) as u8).collect();
        let sent = data.clone();
        let writer = std::thread::spawn(move || {
            far.write_all(&sent).unwrap();
            far
        });
        // The client reads nothing for a while: only data for which it has room arrives.
        std::thread::sleep(Duration::from_millis(600));
        let waiting = SockRef::from(&near).recv_buffer_size().unwrap();
        assert!(waiting < 1 << 20);
        let mut received = vec![0; data.len()];
        near.read_exact(&mut received).unwrap();
        assert!(received == data);
        drop(writer.join().unwrap());
        drop(near);
        wait_until("closed", || network.taken(PORT) == 0);
        assert_eq!(sessions(&midspan.end()).len(), 1);
    }
}
