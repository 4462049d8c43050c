//! Held SYNs: which of them make room for others, and how much of a SYN is stored.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use midspan_gateway::acknowledgement_queue::AcknowledgementRules;
use midspan_linux::packet_queue::{BUFFER, PacketQueue, Verdict};
use midspan_linux::raw_packet::{Family, RawSocket};
use socket2::{Domain, Socket, Type};

use super::support::*;

const DARK: u16 = 7;
/// The round trip to the server, half of it in each direction.
const ROUND_TRIP: Duration = Duration::from_millis(600);
const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:9464\"\n";

/// Two kinds of connections at the same time: SYNs to a port without answer ("dark"), and
/// connections that are used ("honest").
struct Load {
    dark_per_second: u32,
    honest_per_second: u32,
    length: Duration,
    opening_limit: u32,
}

impl Load {
    /// Fewer connections a second, for a longer time. On a slow machine the rates vary more, so there is more room.
    fn divided_by(self, slowness: u32) -> Self {
        Self {
            dark_per_second: self.dark_per_second.div_ceil(slowness),
            honest_per_second: self.honest_per_second.div_ceil(slowness),
            length: self.length * slowness.min(4),
            opening_limit: self.opening_limit.div_ceil(slowness) * slowness.min(2),
        }
    }
}

const DARK_CLIENTS: u32 = 100;
const HONEST_CLIENTS: u32 = 10;

/// `opening_limit` has room for the dark SYNs of 1.5 s and the honest ones of a round trip, and
/// half as much again.
const QUICK: Load = Load {
    dark_per_second: 100,
    honest_per_second: 20,
    length: Duration::from_secs(8),
    opening_limit: 256,
};
/// With the default of `opening_limit`.
const FULL: Load = Load {
    dark_per_second: 1024,
    honest_per_second: 500,
    length: Duration::from_secs(20),
    opening_limit: 4096,
};

/// SYNs that are never repeated fill the table within seconds; they make room for the SYNs of
/// honest clients.
#[kernel_test]
fn honest_connections_are_split_beside_dark_syns_soak() {
    let load = if crate::soaking::is_full() {
        FULL
    } else {
        QUICK
    };
    let load = load.divided_by(slowness());
    let network = Network::new();
    invent_clients(&network);
    network.filter_port(DARK);
    let far = Arc::new(network.listen(PORT));
    let stop = Arc::new(AtomicBool::new(false));
    let delaying = delay_server(&network, &stop);
    let serving = echo_all(&far, &stop);
    let text = format!(
        "{ADMIN}[interception]\nopening_limit = {}\n{TRANSPARENT}",
        load.opening_limit
    );
    let midspan = Midspan::ready(&network.gateway, &text);
    let mut dark = DarkSyns::start(&network, load.dark_per_second, &stop);
    // Waits until the table is full, before the first honest connection.
    let fill = f64::from(load.opening_limit) / f64::from(load.dark_per_second);
    std::thread::sleep(Duration::from_secs_f64(fill + 0.5));
    let honest = honest_connections(&network, &load);
    stop.store(true, Ordering::Relaxed);
    let sent = dark.end();
    let split = metric(&network, "midspan_intercepted_total");
    let overdue = metric(&network, "midspan_bypasses_total{reason=\"overdue\"}");
    let full = metric(&network, "midspan_bypasses_total{reason=\"full\"}");
    println!(
        "  {sent} dark SYNs from {DARK_CLIENTS} addresses, {honest} honest connections from \
         {HONEST_CLIENTS} at {ROUND_TRIP:?}: {split} split; {overdue} dark ones made room, {full} \
         SYNs found none"
    );
    assert!(overdue > 0, "{}", midspan.log());
    // At least 95 % of the honest connections were split.
    assert!(split * 100 >= honest * 95, "{split} of {honest}");
    delaying.join().unwrap();
    drop(serving.join().unwrap());
    midspan.stop();
}

/// The SYN of a client that repeats it does not make room, even if its server never answers.
#[kernel_test]
fn a_client_that_repeats_its_syn_keeps_its_place() {
    const PLACES: u32 = 8;
    let network = Network::new();
    invent_clients(&network);
    network.filter_port(DARK);
    let far = network.listen(PORT);
    let text = format!("{ADMIN}[interception]\nopening_limit = {PLACES}\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let raw = network.client.run(|| RawSocket::open(Family::V4)).unwrap();
    let mut raw = RawSocket::from_socket(raw.unwrap());
    let mut call_all = || {
        for number in 0..PLACES {
            raw.send(&dark_syn(number, 7, &[]), 0).unwrap();
        }
    };
    call_all();
    wait_until("full", || {
        unanswered(&network.gateway, DARK) == PLACES as usize
    });
    // The copy arrives after a second, as from a real client. The gate waits for the next copy
    // until 4 s are over.
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    call_all();
    std::thread::sleep(Duration::from_secs(1));
    let is_taken = network.is_taken(&far, SERVER, 0).unwrap();
    let checked = start.elapsed();
    assert!(checked < Duration::from_secs(4), "too slow: {checked:?}");
    assert!(!is_taken, "{}", midspan.log());
    assert_eq!(unanswered(&network.gateway, DARK), PLACES as usize);
    // From now on no SYN is repeated.
    network.wait_until_taken(&far, SERVER, true, 0);
    assert!(metric(&network, "midspan_bypasses_total{reason=\"overdue\"}") > 0);
    midspan.stop();
}

/// A SYN with 60,000 bytes of data needs no more memory in the relay than one without data, and its
/// memory in the kernel counts in the budget.
#[kernel_test]
fn a_syn_with_much_data_is_held_within_the_budget() {
    const SYNS: u32 = 1000;
    let network = Network::new();
    invent_clients(&network);
    network.filter_port(DARK);
    for (namespace, interface) in [(&network.client, "eth"), (&network.gateway, "acc")] {
        output(namespace, "ip", &["link", "set", interface, "mtu", "65535"]);
    }
    let far = network.listen(PORT);
    let text = format!("[limits]\nmemory = \"64 MiB\"\n{ADMIN}{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    // The relay keeps the memory of its first connection.
    network.wait_until_taken(&far, SERVER, true, 0);
    let before = resident(&midspan);
    let raw = network.client.run(|| RawSocket::open(Family::V4)).unwrap();
    let mut raw = RawSocket::from_socket(raw.unwrap());
    let data = vec![0xa5; 60_000];
    let mut most = 0;
    for number in 0..SYNS {
        // If the link's queue is full, this is no fault of the gateway.
        let _ = raw.send(&dark_syn(number, number, &data), 0);
        if number % 50 == 0 {
            std::thread::sleep(Duration::from_millis(10));
            most = most.max(unanswered(&network.gateway, DARK));
        }
    }
    wait_until("all seen", || {
        metric(&network, "midspan_bypasses_total{reason=\"memory\"}") > 0
    });
    let used = metric(&network, "midspan_memory_used_bytes");
    let grown = resident(&midspan).saturating_sub(before);
    println!(
        "  {most} of {SYNS} SYNs with 60 kB held at a time: {used} bytes counted, {grown} KiB more"
    );
    // An eighth of the budget is for connections that are being opened.
    assert!(most > 0 && most <= (8 << 20) / 120_000, "{most}");
    assert!(used <= (8 << 20) + (1 << 20), "{used}");
    assert!(grown < 16_000, "{grown} KiB");
    midspan.stop();
}

/// Two copies of a SYN that arrive together reach different threads. Midspan connects to the server
/// once, and holds one of them.
#[kernel_test]
fn copies_of_a_syn_are_one_connection() {
    const SYNS: u32 = 200;
    let network = Network::new();
    invent_clients(&network);
    network.filter_port(DARK);
    let midspan = Midspan::ready(&network.gateway, &format!("{ADMIN}{TRANSPARENT}"));
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let raw = network.client.run(|| RawSocket::open(Family::V4)).unwrap();
            let mut raw = RawSocket::from_socket(raw.unwrap());
            std::thread::spawn(move || {
                for number in 0..SYNS {
                    raw.send(&dark_syn(number, 7, &[]), 0).unwrap();
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|it| it.join().unwrap());
    let dropped = |reason: &str| {
        let name = format!("midspan_syns_dropped_total{{reason=\"{reason}\"}}");
        metric(&network, &name)
    };
    wait_until("all copies seen", || dropped("held") == u64::from(SYNS));
    assert_eq!(unanswered(&network.gateway, DARK), SYNS as usize);
    assert_eq!(dropped("port_in_use"), 0);
    midspan.stop();
}

/// Data in a SYN (TCP Fast Open without a cookie, RFC 7413) reaches the server once.
#[kernel_test]
fn data_in_a_syn_arrives_once() {
    let network = Network::new();
    // The client sends data in a SYN although it has no cookie.
    network
        .client
        .set_parameter("net/ipv4/tcp_fastopen", "5")
        .unwrap();
    let far = network.listen(PORT);
    for text in [TRANSPARENT.to_owned(), early()] {
        let midspan = Midspan::ready(&network.gateway, &text);
        for (server, client) in BOTH {
            for length in [1, 100, 1300] {
                let socket = socket(&network.client, server);
                let data: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
                let address = SocketAddr::new(server.parse().unwrap(), PORT);
                // `MSG_FASTOPEN` of <linux/socket.h>.
                let sent = socket.send_to_with_flags(&data, &address.into(), 0x2000_0000);
                assert_eq!(sent.unwrap(), length);
                let mut near = bounded(TcpStream::from(socket));
                let (mut served, from) = accept(&far);
                assert_eq!(from.ip().to_string(), client);
                assert_eq!(network.taken(PORT), 1, "{}", midspan.log());
                near.write_all(b"end").unwrap();
                let mut received = vec![0; length + 3];
                served.read_exact(&mut received).unwrap();
                assert!(received.starts_with(&data) && received.ends_with(b"end"));
                echoes(&mut near, &mut served);
                abort(near);
                wait_until("closed", || network.taken(PORT) == 0);
            }
        }
        midspan.stop();
    }
}

/// A server without timestamps: the socket of its last connection is in TIME-WAIT at the gateway,
/// and a client that uses the same port again has to wait. The gate counts its SYNs.
#[kernel_test]
fn a_port_that_is_still_in_use_is_counted() {
    let network = Network::new();
    let far = network.listen(PORT);
    network
        .server
        .set_parameter("net/ipv4/tcp_timestamps", "0")
        .unwrap();
    let midspan = Midspan::ready(&network.gateway, &format!("{ADMIN}{TRANSPARENT}"));
    let call = || {
        let socket = socket(&network.client, SERVER);
        socket.set_reuse_address(true).unwrap();
        socket
            .bind(&SocketAddr::from(([0, 0, 0, 0], 40_000)).into())
            .unwrap();
        socket
    };
    let address = SocketAddr::new(SERVER.parse().unwrap(), PORT);
    let first = call();
    first.connect_timeout(&address.into(), LIMIT).unwrap();
    let (mut served, _) = accept(&far);
    let mut near = bounded(TcpStream::from(first));
    echoes(&mut near, &mut served);
    // The client ends its data first, so the server leg does too.
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(served.read(&mut [0; 1]).unwrap(), 0);
    drop(served);
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
    abort(near);
    wait_until("ended", || midspan.ended() == 1);
    let name = "midspan_syns_dropped_total{reason=\"port_in_use\"}";
    assert_eq!(metric(&network, name), 0);
    let second = call();
    second.set_nonblocking(true).unwrap();
    let _ = second.connect(&address.into());
    wait_until("counted", || metric(&network, name) > 0);
    drop(second);
    midspan.stop();
}

/// Addresses of invented clients and of ten real ones, all routed to the client.
fn invent_clients(network: &Network) {
    route(&network.gateway, "10.1.0.0/16", "10.1.0.2", "acc");
    output(
        &network.client,
        "ip",
        &["route", "add", "blackhole", "10.1.0.0/16"],
    );
    for host in 0..HONEST_CLIENTS {
        let address = format!("{}/16", honest_client(host));
        output(
            &network.client,
            "ip",
            &["addr", "add", &address, "dev", "eth", "noprefixroute"],
        );
    }
}

fn honest_client(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a01_8000 + number % HONEST_CLIENTS)
}

/// A SYN of an invented client; no host answers the SYN-ACK.
fn dark_syn(number: u32, sequence: u32, data: &[u8]) -> Vec<u8> {
    let source = Ipv4Addr::from_bits(0x0a01_0100 + number % DARK_CLIENTS);
    let server: Ipv4Addr = SERVER.parse().unwrap();
    let port = 2000 + (number / DARK_CLIENTS % 60_000) as u16;
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4(source.octets(), server.octets(), 64)
        .tcp(port, DARK, sequence, 65535)
        .syn()
        .write(&mut packet, data)
        .unwrap();
    // Clears "don't fragment", so that the gateway forwards the packet; the kernel computes the
    // checksum.
    packet[6] &= !0x40;
    packet
}

struct DarkSyns(Option<std::thread::JoinHandle<u32>>);

impl DarkSyns {
    fn start(network: &Network, rate: u32, stop: &Arc<AtomicBool>) -> Self {
        let raw = network.client.run(|| RawSocket::open(Family::V4)).unwrap();
        let mut raw = RawSocket::from_socket(raw.unwrap());
        let stop = Arc::clone(stop);
        Self(Some(std::thread::spawn(move || {
            let start = Instant::now();
            let mut sent = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                while f64::from(sent) < start.elapsed().as_secs_f64() * f64::from(rate) {
                    let _ = raw.send(&dark_syn(sent, sent, &[]), 0);
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        })))
    }

    fn end(&mut self) -> u32 {
        self.0.take().unwrap().join().unwrap()
    }
}

/// Opens connections at a steady rate, each from the next of ten addresses, and resets each after
/// four round trips. Returns their number.
fn honest_connections(network: &Network, load: &Load) -> u64 {
    let address = SocketAddr::new(SERVER.parse().unwrap(), PORT);
    let rate = f64::from(load.honest_per_second);
    let length = load.length;
    let opened = network.client.run(move || {
        let start = Instant::now();
        let mut open: VecDeque<(Socket, Instant)> = VecDeque::new();
        let mut opened = 0_u32;
        loop {
            let is_over = start.elapsed() >= length;
            while !is_over && f64::from(opened) < start.elapsed().as_secs_f64() * rate {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
                    .bind(&SocketAddr::new(honest_client(opened).into(), 0).into())
                    .unwrap();
                let _ = socket.connect(&address.into());
                open.push_back((socket, Instant::now()));
                opened += 1;
            }
            // Four round trips are enough for a session; a longer wait would need more descriptors.
            while let Some((_, since)) = open.front()
                && since.elapsed() > 4 * ROUND_TRIP
            {
                let (socket, _) = open.pop_front().unwrap();
                assert!(socket.peer_addr().is_ok(), "an honest connection failed");
                abort(socket.into());
            }
            if is_over && open.is_empty() {
                return u64::from(opened);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    opened.unwrap()
}

/// Delays the server's packets at the router by a round trip.
fn delay_server(network: &Network, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let queue = network.router.run(|| {
        let rules = AcknowledgementRules::new("near", 1, u32::MAX).unwrap();
        rules.install().unwrap();
        PacketQueue::bind(1, 20_000, 64).unwrap()
    });
    let mut queue = queue.unwrap();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut buffer = vec![0; BUFFER];
        let mut held: VecDeque<(Instant, u32)> = VecDeque::new();
        while !stop.load(Ordering::Relaxed) || !held.is_empty() {
            let now = Instant::now();
            let due = now + ROUND_TRIP;
            let mut arrived = |packet: midspan_linux::packet_queue::QueuedPacket<'_>| {
                held.push_back((due, packet.id));
            };
            while queue.receive(&mut buffer, &mut arrived).unwrap() {}
            while held.front().is_some_and(|(due, _)| *due <= now) {
                let (_, id) = held.pop_front().unwrap();
                queue.decide(id, Verdict::Accept { mark: None }).unwrap();
            }
            queue.flush().unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Accepts all connections, and closes each after its client has closed it.
fn echo_all(
    listener: &Arc<TcpListener>,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<Vec<TcpStream>> {
    let (listener, stop) = (Arc::clone(listener), Arc::clone(stop));
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                open.push(stream);
            }
            open.retain(|stream| {
                let read = (&*stream).read(&mut [0; 64]);
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            });
            std::thread::sleep(Duration::from_millis(5));
        }
        open
    })
}

/// The sum of all values at the admin listener whose lines begin with `name`. `name` is the name of a metric,
/// with some of its labels or with none.
fn metric(network: &Network, name: &str) -> u64 {
    let url = "http://127.0.0.1:9464/metrics";
    let text = output(&network.gateway, "curl", &["-s", "-m", "10", url]);
    let lines = text.lines().filter(|line| line.starts_with(name));
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64;
    let found: Vec<u64> = lines.map(value).collect();
    assert!(!found.is_empty(), "no {name} in {text}");
    found.iter().sum()
}

/// The relay's resident memory in KiB.
fn resident(midspan: &Midspan) -> u64 {
    let file = format!("/proc/{}/status", midspan.relay().as_raw_nonzero());
    let status = fs::read_to_string(file).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}
