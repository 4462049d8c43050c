//! QUIC (UDP port 443): it passes untouched and is counted, or it is rejected.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_proxy::command::Request;
use midspan_testbed::program::Launch;
use rustix::process::{Signal, kill_process};

use super::support::*;
use crate::common::{Control, metric};

const HTTPS: u16 = 443;
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:9464\"\n";
const REJECT: &str = "quic = \"reject\"\n";

fn with(keys: &str) -> String {
    format!("{ADMIN}{TRANSPARENT}{keys}")
}

/// A bound UDP socket of a host.
fn udp(host: &NetworkNamespace, address: &str, port: u16) -> UdpSocket {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    let socket = host.run(move || UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// A client that sends to a server's port of QUIC.
struct Quic {
    client: UdpSocket,
    server: UdpSocket,
}

impl Quic {
    fn between(network: &Network, server: &str, client: &str) -> Self {
        let to = SocketAddr::new(server.parse().unwrap(), HTTPS);
        let near = udp(&network.client, client, 0);
        near.connect(to).unwrap();
        // One server at a time has the port.
        let far = udp(&network.server, server, HTTPS);
        Self {
            client: near,
            server: far,
        }
    }

    /// Sends `count` packets of 100 bytes there, and as many back.
    fn exchange(&self, count: usize) {
        for _ in 0..count {
            self.client.send(&[7; 100]).unwrap();
            let (_, from) = self.server.recv_from(&mut [0; 200]).unwrap();
            self.server.send_to(&[8; 100], from).unwrap();
            assert_eq!(self.client.recv(&mut [0; 200]).unwrap(), 100);
        }
    }

    /// Whether packets to the server are answered with "port unreachable". The kernel sends few of
    /// these messages to one host (`net.ipv4.icmp_ratelimit`), so the packet is repeated.
    fn is_rejected(&self) -> bool {
        let pause = Some(Duration::from_millis(100));
        self.server.set_read_timeout(pause).unwrap();
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Err(error) = self.client.send(&[7; 100]) {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                return true;
            }
            if let Ok((_, from)) = self.server.recv_from(&mut [0; 200]) {
                self.server.send_to(&[8; 100], from).unwrap();
                self.client.recv(&mut [0; 200]).unwrap();
                return false;
            }
        }
        panic!("neither an answer nor a rejection");
    }
}

fn is_rejected(network: &Network, (server, client): (&str, &str)) -> bool {
    // The server may answer at this port, so that a rejection comes from the gateway.
    Quic::between(network, server, client).is_rejected()
}

fn untouched(network: &Network, what: &str, direction: &str) -> f64 {
    let name = format!("midspan_untouched_quic_{what}_total{{direction=\"{direction}\"}}");
    network.gateway.run(move || metric(&name)).unwrap()
}

/// Packets and bytes are counted in both directions, for both families, from 0 on; and changes of
/// the rules do not lose the count.
#[kernel_test]
fn quic_passes_and_is_counted() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, &with(""));
    wait_until("the first count", || {
        let name = "midspan_untouched_quic_packets_total";
        let has = move || crate::common::get("/metrics").1.contains(name);
        network.gateway.run(has).unwrap()
    });
    assert_eq!(untouched(&network, "packets", "to_client"), 0.0);
    let four = Quic::between(&network, SERVER, CLIENT);
    let six = Quic::between(&network, SERVER6, CLIENT6);
    four.exchange(3);
    let answer = midspan.reload(&with("except = [\"192.0.2.0/24\"]\n"));
    assert!(answer.ok, "{:?}", answer.error);
    six.exchange(2);
    let bytes = 3.0 * f64::from(20 + 8 + 100) + 2.0 * f64::from(40 + 8 + 100);
    for direction in ["to_client", "to_server"] {
        wait_until("counted", || {
            untouched(&network, "packets", direction) == 5.0
        });
        assert_eq!(untouched(&network, "bytes", direction), bytes);
    }
    // Another program removes the counters: they begin again.
    rules(&network.gateway, "flush ruleset\n");
    midspan.wait_for_line("are put back");
    four.exchange(2);
    wait_until("counted again", || {
        untouched(&network, "packets", "to_server") == 2.0
    });
    midspan.stop();
    let left = output(&network.gateway, "nft", &["list", "tables"]);
    assert_eq!(left.trim(), "", "tables remain");
}

#[kernel_test]
fn quic_is_rejected_while_tcp_would_be_intercepted() {
    let network = Network::new();
    let early = Quic::between(&network, SERVER, CLIENT);
    let midspan = Midspan::ready(&network.gateway, &with(""));
    early.exchange(1);
    let reload = |keys: &str| {
        let answer = midspan.reload(&with(keys));
        assert!(answer.ok, "{:?}", answer.error);
    };
    reload(REJECT);
    // A connection that exists continues.
    early.exchange(1);
    drop(early);
    for ends in BOTH {
        wait_until("rejected", || is_rejected(&network, ends));
    }
    let rejected = || metric("midspan_quic_rejected_packets_total");
    assert!(network.gateway.run(rejected).unwrap() >= 2.0);
    // Other ports are not QUIC's.
    let other = udp(&network.server, SERVER, 8443);
    let client = udp(&network.client, CLIENT, 0);
    client.connect(other.local_addr().unwrap()).unwrap();
    client.send(b"other").unwrap();
    assert_eq!(other.recv(&mut [0; 9]).unwrap(), 5);

    reload(&format!("{REJECT}except = [\"{SERVER}\"]\n"));
    wait_until("excepted", || !is_rejected(&network, BOTH[0]));
    assert!(is_rejected(&network, BOTH[1]));
    reload(&format!("{REJECT}families = [\"ipv4\"]\n"));
    wait_until("only IPv4", || !is_rejected(&network, BOTH[1]));
    assert!(is_rejected(&network, BOTH[0]));
    reload(REJECT);
    wait_until("again", || is_rejected(&network, BOTH[1]));

    let everything = Request::BypassOn { prefix: None };
    assert!(midspan.ask(&everything).ok);
    wait_until("bypassed", || !is_rejected(&network, BOTH[0]));
    assert!(!is_rejected(&network, BOTH[1]));
    assert!(midspan.ask(&Request::BypassOff { prefix: None }).ok);
    wait_until("no longer bypassed", || is_rejected(&network, BOTH[0]));
    reload("");
    wait_until("passes", || !is_rejected(&network, BOTH[0]));
}

/// A relay without a loop iteration, and processes that were killed, reject nothing.
#[kernel_test]
fn quic_passes_while_midspan_does_not_work() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, &with(REJECT));
    assert!(is_rejected(&network, BOTH[0]));
    let relay = midspan.relay();
    stop_process(relay);
    wait_until("a stopped relay is passed", || {
        let quic = Quic::between(&network, SERVER, CLIENT);
        quic.client.send(&[7; 100]).unwrap();
        let pause = Duration::from_millis(200);
        quic.server.set_read_timeout(Some(pause)).unwrap();
        quic.server.recv_from(&mut [0; 200]).is_ok()
    });
    kill_process(relay, Signal::CONT).unwrap();
    wait_until("it works again", || is_rejected(&network, BOTH[0]));
    // Nothing removes the rules.
    stop_process(midspan.helper());
    kill_process(relay, Signal::KILL).unwrap();
    kill_process(midspan.helper(), Signal::KILL).unwrap();
    wait_until("a dead relay is passed", || !is_rejected(&network, BOTH[0]));
}

/// Packets of QUIC reach the queue for SYNs, but only some of them. So they do not fill it, even while the relay handles
/// nothing.
#[kernel_test]
fn a_flood_of_quic_leaves_the_queue_to_syns() {
    const PACKETS: usize = 4000;
    /// The queue's room in addition to the connections that are being opened.
    const MARGIN: usize = 1024;
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, &with(REJECT));
    wait_until("rejected", || is_rejected(&network, BOTH[0]));
    let relay = midspan.relay();
    stop_process(relay);
    let client = udp(&network.client, CLIENT, 0);
    let server = SocketAddr::new(SERVER.parse().unwrap(), HTTPS);
    for _ in 0..PACKETS {
        client.send_to(&[7; 100], server).unwrap();
    }
    let waiting = waiting(&network.gateway);
    println!("{waiting} of {PACKETS} packets wait in the queue");
    kill_process(relay, Signal::CONT).unwrap();
    assert!(waiting < MARGIN, "{waiting}");
    wait_until("rejected again", || is_rejected(&network, BOTH[0]));
}

/// Packets in the packet queues of a host.
fn waiting(host: &NetworkNamespace) -> usize {
    const TABLE: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
    let table = host.run(|| std::fs::read_to_string(TABLE).unwrap());
    let table = table.unwrap();
    let waiting = |line: &str| line.split_whitespace().nth(2).unwrap().parse::<usize>();
    table.lines().map(|line| waiting(line).unwrap()).sum()
}

/// The client does not see the ICMP message, because its socket is not connected: it gives up after
/// its own time-out.
#[kernel_test]
fn a_client_of_http3_uses_tcp_if_quic_is_rejected() {
    let has_module = Command::new("python3")
        .args(["-c", "import aioquic"])
        .output();
    if !has_module.is_ok_and(|output| output.status.success()) {
        return skip("Python has no module aioquic (pip install aioquic)");
    }
    let folder = tempfile::tempdir().unwrap();
    let [key, certificate] = ["key", "certificate"].map(|name| {
        let path = folder.path().join(name);
        path.to_str().unwrap().to_owned()
    });
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test",
        ])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, &with(""));
    let script = folder.path().join("http3.py");
    std::fs::write(&script, include_str!("http3.py")).unwrap();
    let script = script.to_str().unwrap().to_owned();
    let arguments = |part| {
        let all = [script.as_str(), part, SERVER, &certificate, &key];
        all.map(str::to_owned)
    };
    let _server = Launch::new("python3")
        .args(arguments("server"))
        .inside(&network.server)
        .ready()
        .unwrap();
    let client = || {
        let arguments = arguments("client");
        output(
            &network.client,
            "python3",
            &arguments.each_ref().map(String::as_str),
        )
    };
    let intercepted = || {
        let count = || metric("midspan_intercepted_total");
        network.gateway.run(count).unwrap()
    };
    assert_eq!((client().trim(), intercepted()), ("HTTP/3 200", 0.0));
    assert!(midspan.reload(&with(REJECT)).ok);
    let said = client();
    assert!(said.trim().ends_with("\nHTTPS 200"), "{said}");
    assert_eq!(intercepted(), 1.0);
}
