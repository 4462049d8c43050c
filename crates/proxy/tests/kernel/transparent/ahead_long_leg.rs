//! Sending ahead of a client's window on long legs, chosen by `policy = "auto"`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;

use super::learning::DelayedAccess;
use super::support::*;

/// Above the limit of long legs, on a busy machine too.
const DELAY: Duration = Duration::from_millis(250);
/// What a Linux client offers at first, in bytes, with a margin.
const WINDOW: u64 = 67_000;
/// Counts the packets that connection tracking calls invalid.
const INVALID: &str = "table inet judged {\n chain out {\n type filter hook postrouting priority 300;\n \
    ct state invalid counter\n }\n chain in {\n type filter hook input priority 300;\n \
    ct state invalid counter\n }\n}\n";

fn configuration(more: &str) -> String {
    format!("{TRANSPARENT}policy = \"auto\"\ncontrol_group = \"0 %\"\n{more}")
}

/// Downloads `count` bytes at the client's own pace, after a request; returns the client's port.
fn download(
    network: &Network,
    midspan: &Midspan,
    listener: &TcpListener,
    buffer: Option<usize>,
    count: usize,
) -> u16 {
    let ended = midspan.ended();
    let mut near = call(network, buffer);
    let port = near.local_addr().unwrap().port();
    let (mut far, _) = accept(listener);
    near.write_all(b"get").unwrap();
    far.read_exact(&mut [0; 3]).unwrap();
    carries(far, near, count);
    wait_until("ended", || midspan.ended() > ended);
    port
}

fn call(network: &Network, buffer: Option<usize>) -> TcpStream {
    let socket = socket(&network.client, SERVER);
    if let Some(size) = buffer {
        socket.set_recv_buffer_size(size).unwrap();
    }
    let address = SocketAddr::new(SERVER.parse().unwrap(), PORT);
    socket.connect_timeout(&address.into(), LIMIT).unwrap();
    bounded(socket.into())
}

/// The states of sending ahead in the log lines of sessions that ended, in order.
fn states(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("session ended"));
    let state = |line: &str| {
        let mut words = line.split_whitespace();
        let found = words.find_map(|word| word.strip_prefix("sending_ahead="));
        found.unwrap_or_default().trim_matches('"').to_owned()
    };
    lines.map(state).collect()
}

/// The packets that the counters of [`INVALID`] have seen.
fn invalid(gateway: &NetworkNamespace) -> u64 {
    let rules = output(gateway, "nft", &["list", "table", "inet", "judged"]);
    let counters = rules.split("counter packets ").skip(1);
    let count = |rest: &str| {
        rest.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    counters.map(count).sum()
}

/// A first session stays within the window of 64 KB until ACKs arrive, the first flight of the next one
/// goes beyond it, and nothing is invalid for the gateway's own connection tracking. One key switches it
/// off.
#[kernel_test]
fn data_goes_ahead_of_the_window_and_a_key_prevents_it() {
    for (more, is_off) in [
        ("", false),
        ("client_leg = { sending_ahead = \"off\" }\n", true),
    ] {
        let network = Network::with_access_router();
        let access = DelayedAccess::with_delay(&network, DELAY);
        rules(&network.gateway, STRICT);
        rules(&network.gateway, INVALID);
        let listener = network.listen(PORT);
        let midspan = Midspan::ready(&network.gateway, &configuration(more));
        let ports = [2_000_000, 1_000_000]
            .map(|count| download(&network, &midspan, &listener, None, count));
        let flights = ports.map(|port| access.first_flight(port));
        let log = midspan.end();
        let states = states(&log);
        println!("{flights:?} bytes at once, {states:?}");
        assert_eq!(invalid(&network.gateway), 0, "{log}");
        if is_off {
            assert!(flights.iter().all(|bytes| *bytes <= WINDOW), "{flights:?}");
            assert!(states.iter().all(String::is_empty), "{states:?}");
        } else {
            assert!(flights[0] <= WINDOW, "{flights:?}");
            assert!(flights[1] > WINDOW, "{flights:?}");
            assert!(states.iter().all(|state| !state.is_empty()), "{states:?}");
        }
    }
}

/// A client with a small, fixed buffer gets no first flight beyond its window. Every byte arrives,
/// although the client may discard some, and reads slowly.
#[kernel_test]
fn a_small_buffer_and_a_slow_reader_lose_nothing() {
    let network = Network::with_access_router();
    let access = DelayedAccess::with_delay(&network, DELAY);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &configuration(""));
    let port = download(&network, &midspan, &listener, Some(32 << 10), 600_000);
    let flight = access.first_flight(port);
    assert!(flight <= WINDOW, "{flight} bytes at once");
    let ended = midspan.ended();
    let mut near = call(&network, None);
    let port = near.local_addr().unwrap().port();
    let (mut far, _) = accept(&listener);
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| ((i * 7) >> 5) as u8).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        far.write_all(&sent).unwrap();
        far
    });
    // The window closes after the first flight, and from then on nothing new is sent.
    std::thread::sleep(DELAY * 8);
    let sent = access.towards_client(port);
    println!("{sent} bytes to a client that does not read");
    assert!(sent < 1 << 20, "{sent}");
    // It opens again.
    let mut received = vec![0; data.len()];
    near.read_exact(&mut received).unwrap();
    assert!(received == data);
    drop((writer.join().unwrap(), near));
    wait_until("ended", || midspan.ended() > ended);
    let states = states(&midspan.end());
    println!("{states:?}");
    assert_eq!(states.last().map(String::as_str), Some("taken_back"));
}

/// A client reads, pauses for long, and reads on. In the pause, it gets no more than its window has room for, so the leg
/// continues as soon as the window opens. The client would discard data beyond its window, and the next try would come
/// after a time-out that has doubled for as long as the pause has lasted.
#[kernel_test]
fn a_client_that_has_paused_gets_data_as_soon_as_it_reads_on() {
    const PAUSE: Duration = Duration::from_secs(20);
    const BEFORE_PAUSE: usize = 3_000_000;
    // About 6 Mbit/s, much less than the client's window has room for in a round trip.
    const PIECE: (usize, Duration) = (2_250, Duration::from_millis(3));
    let network = Network::with_access_router();
    let access = DelayedAccess::with_delay(&network, DELAY);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &configuration(""));
    let mut near = call(&network, None);
    let port = near.local_addr().unwrap().port();
    let (mut far, _) = accept(&listener);
    let data: Vec<u8> = (0..8_000_000_u32).map(|i| ((i * 7) >> 5) as u8).collect();
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        for piece in sent.chunks(PIECE.0) {
            far.write_all(piece).unwrap();
            std::thread::sleep(PIECE.1);
        }
        far
    });
    let mut received = vec![0; data.len()];
    near.read_exact(&mut received[..BEFORE_PAUSE]).unwrap();
    std::thread::sleep(PAUSE);
    // No more than this can wait in the client's socket.
    let passed = usize::try_from(access.towards_client(port)).unwrap();
    let resumed = Instant::now();
    let mut count = BEFORE_PAUSE;
    while count <= passed {
        let read = near.read(&mut received[count..]).unwrap();
        assert!(read > 0, "the end after {count} bytes");
        count += read;
    }
    let waited = resumed.elapsed();
    println!("{passed} bytes passed before, and the next one came {waited:?} after the pause");
    near.read_exact(&mut received[count..]).unwrap();
    assert!(received == data);
    drop((writer.join().unwrap(), near));
    wait_until("ended", || midspan.ended() > 0);
    println!("{:?}", states(&midspan.end()));
    // Some round trips, with a margin for a busy machine. After a time-out it would be at least 5 s.
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

/// Losses take a leg back, and every byte arrives.
#[kernel_test]
fn a_loss_takes_the_leg_back() {
    let network = Network::with_access_router();
    let access = DelayedAccess::with_delay(&network, DELAY);
    let listener = network.listen(PORT);
    let midspan = Midspan::ready(&network.gateway, &configuration(""));
    access.loses.store(true, Ordering::Relaxed);
    download(&network, &midspan, &listener, None, 1_000_000);
    let states = states(&midspan.end());
    assert_eq!(states, ["taken_back"]);
}

/// Clients that do not read get no more memory than the budget has, although their windows are read with
/// a larger scale.
#[kernel_test]
fn slow_readers_stay_within_the_memory_budget() {
    const BUDGET: u64 = 16 << 20;
    const READERS: usize = 24;
    let network = Network::with_access_router();
    let _access = DelayedAccess::with_delay(&network, DELAY);
    let listener = network.listen(PORT);
    let limits = format!("[limits]\nmemory = \"{BUDGET} B\"\n");
    let midspan = Midspan::ready(&network.gateway, &format!("{limits}{}", configuration("")));
    // The first one reads, so that this client is known to take data ahead of its window.
    download(&network, &midspan, &listener, None, 2_000_000);
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let near = call(&network, None);
        let (far, _) = accept(&listener);
        far.set_nonblocking(true).unwrap();
        readers.push((near, far));
    }
    let data = vec![7; 1 << 20];
    let mut most = 0;
    for _ in 0..30 {
        for (_, far) in &mut readers {
            // Until the gateway takes no more.
            while far.write(&data).is_ok() {}
        }
        most = most.max(queued(&network.gateway));
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("at most {most} bytes in the queues of {READERS} sessions");
    assert!(most > 0 && most <= BUDGET, "{most}");
    for (near, far) in readers {
        abort(near);
        drop(far);
    }
    wait_until("closed", || network.taken(PORT) == 0);
    midspan.end();
}

/// Bytes in the send and receive queues of a host's TCP sockets over IPv4.
fn queued(namespace: &NetworkNamespace) -> u64 {
    let table = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let table = namespace.run(table).unwrap();
    let queues = |row: &str| {
        let queues = row.split_whitespace().nth(4).unwrap();
        let (send, receive) = queues.split_once(':').unwrap();
        let bytes = |text| u64::from_str_radix(text, 16).unwrap();
        bytes(send) + bytes(receive)
    };
    table.lines().skip(1).map(queues).sum()
}
