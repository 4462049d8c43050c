//! The effects of a path file's links on real packets between two kernels.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use midspan_document::Source;
use midspan_lab::emulator::LinkReport;
use midspan_lab::topology::Topology;
use midspan_link::Counters;
use midspan_path::{LinkIndex, NodeIndex, Path};
use midspan_testbed::{KernelTests, kernel_test};

const CLIENT: NodeIndex = NodeIndex(0);
const SERVER: NodeIndex = NodeIndex(1);
const PORT: u16 = 7000;
/// Time limit for expected packets.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    KernelTests::new().main()
}

/// Two hosts on one link; `link` is lines of the path file's `[[link]]`.
fn network(family: &str, link: &str) -> Topology {
    let text = format!(
        "family = \"{family}\"\n[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\n\
         [[link]]\nname = \"link\"\nbetween = [\"client\", \"server\"]\ndelay = \"1 ms\"\n{link}\n"
    );
    let path = Path::read(&Source::new("test", text)).unwrap();
    Topology::build(&path).unwrap()
}

fn report(network: &Topology) -> LinkReport {
    network.link(LinkIndex(0)).report().unwrap()
}

fn socket(network: &Topology, node: NodeIndex) -> UdpSocket {
    let at = SocketAddr::new(network.address(node), PORT);
    let socket = network.node(node).run(move || UdpSocket::bind(at));
    let socket = socket.unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends datagrams of `sizes` from the client to the server. The server must receive datagrams of
/// the sizes in `expected`.
fn send(network: &Topology, sizes: &[usize], expected: &[usize]) {
    let [client, server] = [CLIENT, SERVER].map(|node| socket(network, node));
    client.connect(server.local_addr().unwrap()).unwrap();
    let content =
        |size: usize| -> Vec<u8> { (0..size).map(|byte| (byte * 7 + size) as u8).collect() };
    for size in sizes {
        client.send(&content(*size)).unwrap();
    }
    let mut buffer = [0; 2048];
    for size in expected {
        let received = server.recv(&mut buffer).unwrap();
        assert!(
            buffer[..received] == content(*size),
            "{received} for {size} bytes"
        );
    }
}

/// Sends `bytes` bytes from the server to the client over TCP.
fn download(network: &Topology, bytes: usize) {
    let at = SocketAddr::new(network.address(SERVER), PORT);
    let listener = network.node(SERVER).run(move || TcpListener::bind(at));
    let listener = listener.unwrap().unwrap();
    let content: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
    let sent = content.clone();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Waits until the client ends, so that its last ACKs are on the link.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let stream = network.node(CLIENT).run(move || TcpStream::connect(at));
    let mut stream = stream.unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    assert!(received == content, "{} bytes received", received.len());
    drop(stream);
    server.join().unwrap();
}

/// Like [`network`], from a path file with a recorded trace next to it.
fn replaying(trace: &str, link: &str) -> Topology {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace"), trace).unwrap();
    let text = format!(
        "[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\n\
         [[link]]\nname = \"link\"\nbetween = [\"client\", \"server\"]\n{link}\n"
    );
    let file = folder.path().join("path.toml");
    std::fs::write(&file, text).unwrap();
    let path = Path::load(file.to_str().unwrap()).unwrap();
    Topology::build(&path).unwrap()
}

#[kernel_test]
fn packets_leave_at_the_opportunities_of_a_recorded_trace() {
    // Two opportunities, then none for 100 ms.
    let network = replaying("100\n100\n", "up = { replay = \"trace\" }");
    // Of 1,500 bytes, one leaves at an opportunity; of 752 with the framing of Mahimahi, two do.
    for (payload, rounds) in [(1472, 15), (720, 8)] {
        let start = Instant::now();
        send(&network, &[payload; 30], &[payload; 30]);
        // The first two or four may leave at once. A busy machine only delays packets.
        let shortest = Duration::from_millis(100 * (rounds - 1) - 1);
        assert!(start.elapsed() >= shortest, "{:?}", start.elapsed());
    }
    let up = report(&network).up.counters;
    assert_eq!((up.handled.packets, up.delivered.packets), (60, 60));
    // TCP, with data in the direction of the trace.
    let network = replaying("5\n", "down = { replay = \"trace\", delay = \"1 ms\" }");
    let start = Instant::now();
    download(&network, 100_000);
    // At least 67 full packets, one in 5 ms.
    assert!(start.elapsed() >= Duration::from_millis(5 * 66));
}

#[kernel_test]
fn a_table_changes_the_rate() {
    let table = "time (s),rate (kbit/s),delay (ms)\n0,1200,10\n3600,1200,10\n";
    let network = replaying(table, "up = { replay = \"trace\" }");
    let start = Instant::now();
    send(&network, &[1472; 30], &[1472; 30]);
    // 10 ms for each packet.
    assert!(start.elapsed() >= Duration::from_millis(309));
}

#[kernel_test]
fn codel_drops_packets_of_a_standing_queue() {
    let sizes = [1472; 400];
    for method in ["codel", "fq_codel"] {
        // 3 s of packets at once: they wait for far longer than 5 ms.
        let link = format!("up = {{ rate = \"1600 kbit/s\", aqm = \"{method}\" }}");
        let network = network("ipv4", &link);
        let [client, server] = [CLIENT, SERVER].map(|node| socket(&network, node));
        client.connect(server.local_addr().unwrap()).unwrap();
        for size in sizes {
            client.send(&vec![0; size]).unwrap();
        }
        let drained = |up: &Counters| up.handled.packets == 400 && up.held_packets() == 0;
        let deadline = Instant::now() + PATIENCE;
        while !drained(&report(&network).up.counters) {
            assert!(
                Instant::now() < deadline,
                "{:?}",
                report(&network).up.counters
            );
            thread::sleep(Duration::from_millis(50));
        }
        let up = report(&network).up.counters;
        assert!(
            up.early.packets > 50 && up.queue_full.packets == 0,
            "{method}: {up:?}"
        );
    }
}

#[kernel_test]
fn some_packets_overtake_those_before_them() {
    let link = "delay = \"20 ms\"\nup = { reorder = { share = \"20 %\", earlier = \"20 ms\" } }";
    let text = format!(
        "[[host]]\nname = \"client\"\n[[host]]\nname = \"server\"\n\
         [[link]]\nname = \"link\"\nbetween = [\"client\", \"server\"]\n{link}\n"
    );
    let path = Path::read(&Source::new("test", text)).unwrap();
    let network = Topology::build(&path).unwrap();
    let [client, server] = [CLIENT, SERVER].map(|node| socket(&network, node));
    client.connect(server.local_addr().unwrap()).unwrap();
    for number in 0..200_u8 {
        client.send(&[number]).unwrap();
    }
    let mut buffer = [0; 16];
    let order: Vec<u8> = (0..200)
        .map(|_| {
            assert_eq!(server.recv(&mut buffer).unwrap(), 1);
            buffer[0]
        })
        .collect();
    let overtaken = order.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(overtaken > 0, "{order:?}");
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..200), "{order:?}");
}

#[kernel_test]
fn packets_above_the_mtu_pass_in_fragments() {
    for family in ["ipv4", "ipv6"] {
        let network = network(family, "mtu = \"600 B\"");
        send(&network, &[1400; 10], &[1400; 10]);
        let up = report(&network).up.counters;
        // 1,408 bytes behind the IP header in fragments of at most 576 bytes (IPv6: 552).
        let passed = (up.handled.packets, up.delivered.packets);
        assert_eq!(passed, (30, 30), "{family}");
        assert_eq!(up.refused.packets, 0);
        download(&network, 100_000);
        let down = report(&network).down;
        assert!(down.counters.delivered.packets > 2 * down.data_segments);
        assert!(down.counters.delivered.bytes <= 600 * down.counters.delivered.packets);
        let data: u64 = down.delivered.iter().sum();
        assert!(data >= 100_000, "{family}: {data} bytes of data");
    }
}

#[kernel_test]
fn a_link_that_drops_fragments_drops_large_packets() {
    let network = network("ipv4", "mtu = \"600 B\"\ndrop_fragments = true");
    send(&network, &[1400, 1400, 1400, 572, 1400, 100], &[572, 100]);
    let up = report(&network).up.counters;
    assert_eq!((up.refused.packets, up.delivered.packets), (4, 2));
    assert_eq!(up.handled.packets, 6);
}

#[kernel_test]
fn a_newer_acknowledgement_replaces_an_older_one() {
    let link = "down = { rate = \"10 Mbit/s\" }\n\
                up = { rate = \"16 kbit/s\", queue = \"20 packets\", ack_queue = \"filtered\" }";
    let network = network("ipv4", link);
    download(&network, 200_000);
    let up = report(&network).up;
    let counters = up.counters;
    assert!(counters.filtered.packets > 5, "{counters:?}");
    assert!(up.pure_acks > counters.filtered.packets);
    assert_eq!(counters.queue_full.packets, 0, "{counters:?}");
}

#[kernel_test]
fn headers_are_compressed() {
    let network = network("ipv4", "rate = \"10 Mbit/s\"\nheader_compression = true");
    // Without this setting, packets have TCP timestamps and headers are not compressed.
    for node in network.nodes() {
        node.set_parameter("net/ipv4/tcp_timestamps", "0").unwrap();
    }
    download(&network, 100_000);
    let up = report(&network).up.counters;
    // Without compression, no packet is smaller than 40 bytes.
    assert!(up.delivered.bytes < 20 * up.delivered.packets, "{up:?}");
    assert_eq!(up.damaged.packets, 0);
}

/// Two paths of two links lead from `a` to `d`, and a longer one. All nodes check strictly that
/// packets arrive from where they would send the answer.
#[kernel_test]
fn packets_cross_the_fewest_links_in_both_directions() {
    for family in ["ipv4", "ipv6"] {
        let mut text = format!("family = \"{family}\"\n");
        for name in ["client", "server"] {
            text += &format!("[[host]]\nname = \"{name}\"\n");
        }
        for name in ["a", "b", "c", "d", "e"] {
            text += &format!("[[router]]\nname = \"{name}\"\n");
        }
        let links = [
            "client a", "a e", "e c", "b d", "a c", "c d", "a b", "d server",
        ];
        for (number, ends) in links.iter().enumerate() {
            let (first, second) = ends.split_once(' ').unwrap();
            text += &format!(
                "[[link]]\nname = \"{number}\"\nbetween = [\"{first}\", \"{second}\"]\n\
                 delay = \"1 ms\"\n"
            );
        }
        let path = Path::read(&Source::new("graph", text)).unwrap();
        let network = Topology::build(&path).unwrap();
        for node in network.nodes() {
            node.set_parameter("net/ipv4/conf/all/rp_filter", "1")
                .unwrap();
        }
        download(&network, 20_000);
        let delivered: Vec<[bool; 2]> = network
            .links()
            .map(|link| {
                let report = link.report().unwrap();
                [report.up, report.down].map(|one| one.counters.delivered.packets > 0)
            })
            .collect();
        for (number, ends) in links.iter().enumerate() {
            let is_crossed = [0, 3, 6, 7].contains(&number);
            assert_eq!(delivered[number], [is_crossed; 2], "{family}: {ends}");
        }
    }
}
