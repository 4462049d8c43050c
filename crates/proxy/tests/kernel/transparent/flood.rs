//! SYNs from many clients that do not exist.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::raw_packet::{Family, RawSocket};
use rustix::process::Pid;

use super::support::*;

/// SYNs per second of both families together, on a machine that is not slow.
const RATE: f64 = 10_000.0;
const LENGTH: Duration = Duration::from_secs(6);
const OPEN: u16 = PORT;
const CLOSED: u16 = 9;
const DARK: u16 = 7;
/// `interception.opening_limit` in this test, on a machine that is not slow: about as many connections as may
/// wait at the server.
const OPENING_LIMIT: usize = 1024;

/// How long the server may take to accept a client's connection, until the client tries again.
const PATIENCE: Duration = Duration::from_secs(3);
const MOST_TRIES: usize = 10;

/// Both ends of a client's connection during the flood. If the server answers with SYN cookies and its
/// queue is full, it forgets the ACK of the handshake, after which the client is connected and the server is
/// not. Then the client tries again.
fn connect_through(
    network: &Network,
    listener: &TcpListener,
    server: &str,
    client: &str,
) -> (TcpStream, TcpStream) {
    for _ in 0..MOST_TRIES {
        let near = network.connect(server, OPEN).unwrap();
        let own = near.local_addr().unwrap();
        let limit = Instant::now() + PATIENCE;
        // Half of the connections that the server accepts now have an invented client.
        while let Some((far, from)) = accept_until(listener, limit) {
            if from.ip().to_canonical().to_string() == client && from.port() == own.port() {
                return (near, bounded(far));
            }
        }
        abort(near);
    }
    panic!("{server} has accepted none of {MOST_TRIES} connections");
}

/// The next connection; `None` if there is none until then.
fn accept_until(listener: &TcpListener, limit: Instant) -> Option<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true).unwrap();
    while Instant::now() < limit {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).unwrap();
                return Some((stream, from));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// 10,000 SYNs per second from thousands of addresses, to ports that are open, closed and without
/// answer.
#[kernel_test]
fn spoofed_syns_stop_nobody() {
    let rate = RATE / f64::from(slowness());
    let opening_limit = OPENING_LIMIT / slowness() as usize;
    for (name, text) in [("end-to-end", TRANSPARENT.to_owned()), ("early", early())] {
        let network = Network::new();
        // Packets from the gateway to the invented clients go to their network, and are lost there.
        route(&network.gateway, "10.1.0.0/16", "10.1.0.2", "acc");
        route(&network.gateway, "fd01::/48", "fd01::2", "acc");
        for (family, clients) in [("-4", "10.1.0.0/16"), ("-6", "fd01::/48")] {
            let arguments = [family, "route", "add", "blackhole", clients];
            output(&network.client, "ip", &arguments);
        }
        route(&network.router, "fd01::/48", "fd02::1", "near");
        let listener = network.listen(OPEN);
        network.filter_port(DARK);
        let text = format!(
            "[interception]\nopening_limit = {opening_limit}\n{text}connect_timeout = \"3 s\"\n"
        );
        let midspan = Midspan::ready(&network.gateway, &text);
        let relay = midspan.relay();
        // The relay keeps the memory of its first connections.
        let first = network.connect(SERVER, OPEN).unwrap();
        accept(&listener);
        abort(first);
        let before = Use::of(relay);
        let sender = flood(&network, rate);
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let (mut connections, mut slowest, mut most) = (0_u32, Duration::ZERO, before);
        while start.elapsed() < LENGTH.saturating_sub(Duration::from_secs(1)) {
            for (server, client) in BOTH {
                let begin = Instant::now();
                let (mut near, mut far) = connect_through(&network, &listener, server, client);
                slowest = slowest.max(begin.elapsed());
                echoes(&mut near, &mut far);
                abort(near);
                connections += 1;
            }
            most = most.max(Use::of(relay));
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = sender.join().unwrap();
        let time = Use::of(relay).time.saturating_sub(before.time);
        println!(
            "  {name}: {sent} spoofed SYNs in {LENGTH:?}; {connections} connections beside them, \
             slowest {slowest:?}; relay: {} descriptors and {} KB more, {time:?} of CPU time",
            most.descriptors - before.descriptors,
            most.memory_kb.saturating_sub(before.memory_kb),
        );
        assert!(f64::from(sent) > rate * LENGTH.as_secs_f64() / 10.0);
        // A SYN may be lost in full queues, and the next one too; `connect` gives up after ten
        // seconds.
        assert!(connections >= 2);
        assert!(most.descriptors < before.descriptors + 2 * opening_limit);
        assert!(most.memory_kb < before.memory_kb + 40_000);
        // After the flood, everything is released …
        wait_until("back to what was", || {
            let now = Use::of(relay);
            now.descriptors <= before.descriptors + 4
        });
        // … and new connections are intercepted again.
        wait_until("taking", || {
            BOTH.iter().all(|(server, _)| {
                let near = network.connect(server, OPEN).unwrap();
                let is_taken = network.taken(OPEN) > 0;
                abort(near);
                wait_until("closed", || network.taken(OPEN) == 0);
                is_taken
            })
        });
        let log = midspan.end();
        assert!(log.contains("too many are being opened"), "{log}");
        println!(
            "  {}",
            log.lines()
                .find(|line| line.contains("left alone:"))
                .unwrap()
        );
    }
}

fn flood(network: &Network, rate: f64) -> std::thread::JoinHandle<u32> {
    let open = |family| {
        network
            .client
            .run(move || RawSocket::open(family))
            .unwrap()
            .unwrap()
    };
    let sockets = [open(Family::V4), open(Family::V6)];
    std::thread::spawn(move || {
        let [mut four, mut six] = sockets.map(RawSocket::from_socket);
        let start = Instant::now();
        let mut sent = 0_u32;
        while start.elapsed() < LENGTH {
            while f64::from(sent) < start.elapsed().as_secs_f64() * rate {
                let port = [OPEN, CLOSED, DARK][sent as usize % 3];
                let raw = if sent.is_multiple_of(2) {
                    &mut four
                } else {
                    &mut six
                };
                // If the link's queue is full, this is no fault of the gateway.
                let _ = raw.send(&spoofed_syn(sent, port), 0);
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    })
}

/// A SYN of an invented client: IPv4 for even numbers, IPv6 for odd ones; a few thousand clients of
/// each family.
fn spoofed_syn(number: u32, port: u16) -> Vec<u8> {
    let client = (number >> 1) % 5000;
    let source_port = 2000 + (number % 50_000) as u16;
    let mut packet = Vec::new();
    if number.is_multiple_of(2) {
        let source = Ipv4Addr::from_bits(0x0a01_0100 + client);
        let server: Ipv4Addr = SERVER.parse().unwrap();
        etherparse::PacketBuilder::ipv4(source.octets(), server.octets(), 64)
            .tcp(source_port, port, number, 65535)
            .syn()
            .write(&mut packet, &[])
            .unwrap();
    } else {
        let source = Ipv6Addr::new(0xfd01, 0, 0, client as u16 + 1, 0, 0, 0, 7);
        let server: Ipv6Addr = SERVER6.parse().unwrap();
        etherparse::PacketBuilder::ipv6(source.octets(), server.octets(), 64)
            .tcp(source_port, port, number, 65535)
            .syn()
            .write(&mut packet, &[])
            .unwrap();
    }
    packet
}

/// A process's use of memory, descriptors and processor time.
#[derive(Debug, Clone, Copy)]
struct Use {
    descriptors: usize,
    memory_kb: u64,
    time: Duration,
}

impl Use {
    fn of(process: Pid) -> Self {
        let directory = format!("/proc/{}", process.as_raw_nonzero());
        let status = fs::read_to_string(format!("{directory}/status")).unwrap();
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        let statistics = fs::read_to_string(format!("{directory}/stat")).unwrap();
        let (_, after_name) = statistics.rsplit_once(") ").unwrap();
        // Fields 14 and 15 of proc(5): ticks of a hundredth of a second.
        let ticks: u64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        Self {
            descriptors: fs::read_dir(format!("{directory}/fd")).unwrap().count(),
            memory_kb: resident.split_whitespace().next().unwrap().parse().unwrap(),
            time: Duration::from_millis(ticks * 10),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            memory_kb: self.memory_kb.max(other.memory_kb),
            time: self.time.max(other.time),
        }
    }
}
