//! The rates of one client: of new connections, and of bytes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use midspan_proxy::summary::Summary;

use super::access::is_refused_from;
use super::support::*;

/// Connections that one client tries to open at once.
const TRIES: usize = 40;

fn limited(keys: &str, listeners: &str) -> String {
    with_head(&format!("[limits]\n{keys}\n{listeners}"))
}

const LISTENERS: &str = r#"
[[listener]]
name = "socks"
mode = "socks5"
access = [{ allow = "127.0.0.0/8" }]
[[listener]]
name = "http"
mode = "http"
access = [{ allow = "127.0.0.0/8" }]
[[listener]]
name = "forward"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
"#;

/// How many of [`TRIES`] connections are served, and how many may be: a burst, and what comes meanwhile.
fn served(mut is_served: impl FnMut() -> bool, rate: usize) -> usize {
    let begin = Instant::now();
    let count = (0..TRIES).filter(|_| is_served()).count();
    let most = rate + rate * usize::try_from(begin.elapsed().as_secs() + 1).unwrap();
    assert!(count <= most, "{count} of at most {most}");
    count
}

#[kernel_test]
fn one_client_is_refused_while_another_is_served() {
    let server = TcpListener::bind(SERVER).unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in server.incoming().flatten() {
            let mut stream = bounded(stream);
            let _ = stream.write_all(b"x");
            open.push(stream);
        }
    });
    let keys = "connection_rate_per_client = 3\nclient_prefix_ipv4 = 24";
    let proxy = Midspan::here(&limited(keys, LISTENERS));
    // By a reset: nothing is known of the protocol.
    let is_served = |source: &str| !is_refused_from(source, FORWARD);
    let count = served(|| is_served("127.0.7.1:0"), 3);
    assert!(count >= 3, "{count}");
    // Another host with the same prefix, whose burst is used up.
    let count = served(|| is_served("127.0.7.2:0"), 3);
    assert!(count < TRIES, "{count}");
    // Other prefixes are not affected.
    assert!(is_served("127.0.8.1:0"));
    // By an answer: the clients of SOCKS5 and HTTP can report it.
    let socks = |source: &str| {
        let mut client = connect_as(source, SOCKS).unwrap();
        let request = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82";
        client.write_all(request).unwrap();
        exactly::<12>(&mut client)[3]
    };
    let mut codes = Vec::new();
    served(
        || {
            codes.push(socks("127.0.9.1:0"));
            codes.last() == Some(&0)
        },
        3,
    );
    assert!(codes.contains(&0) && codes.contains(&2), "{codes:?}");
    assert_eq!(socks("127.0.10.1:0"), 0);
    let http = |source: &str| {
        let mut client = connect_as(source, HTTP).unwrap();
        client
            .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        exactly::<12>(&mut client)
    };
    let mut statuses = Vec::new();
    served(
        || {
            statuses.push(http("127.0.11.1:0"));
            statuses.last() == Some(b"HTTP/1.1 200")
        },
        3,
    );
    assert!(statuses.contains(b"HTTP/1.1 200") && statuses.contains(b"HTTP/1.1 429"));
    let name = "midspan_sessions_shed_total{reason=\"connection_rate_per_client\"}";
    wait_until("counted", || metric(name) >= 4.0);
    let (status, text) = crate::common::get("/summary?by=prefix&sort=sessions&limit=4");
    assert_eq!(status, 200);
    let summary: Summary = serde_json::from_str(&text).unwrap();
    assert_eq!(summary.prefixes.len(), 4);
    let first = &summary.prefixes[0];
    assert!(
        first.refused > 0 && first.prefix.ends_with(".0/24"),
        "{first:?}"
    );
    // A reload lifts the limit.
    assert!(proxy.reload(&limited("sessions = 1000", LISTENERS)).ok);
    let again = (0..TRIES).filter(|_| is_served("127.0.7.1:0")).count();
    assert_eq!(again, TRIES);
}

/// A client in a PROXY header counts, not the proxy that sent it.
#[kernel_test]
fn the_told_client_has_the_rate() {
    let listener = TcpListener::bind(SERVER).unwrap();
    let _proxy = Midspan::here(&limited(
        "connection_rate_per_client = 3",
        r#"
[[listener]]
name = "told"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
"#,
    ));
    let mut open = Vec::new();
    let mut is_served = |client: &str| {
        let mut near = connect(FORWARD);
        let header = format!("PROXY TCP4 {client} 192.0.2.1 1000 80\r\n");
        near.write_all(header.as_bytes()).unwrap();
        listener.set_nonblocking(true).unwrap();
        // Either the server gets the connection, or the client gets the reset.
        let end = Instant::now() + LIMIT;
        near.set_nonblocking(true).unwrap();
        loop {
            if let Ok((far, _)) = listener.accept() {
                open.push((near, far));
                return true;
            }
            match near.read(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return false,
            }
            assert!(Instant::now() < end, "neither served nor refused");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let count = served(|| is_served("192.0.2.7"), 3);
    assert!((3..TRIES).contains(&count), "{count}");
    assert!(is_served("192.0.2.8"));
}

/// Ten megabytes at two megabytes a second: the first two come at once. Meanwhile another client has the whole rate.
#[kernel_test]
fn bytes_of_one_client_come_at_its_rate() {
    const COUNT: usize = 10_000_000;
    let listener = TcpListener::bind(SERVER).unwrap();
    let proxy = Midspan::here(&limited("rate_per_client = \"16 Mbit/s\"", LISTENERS));
    let open = |source: &str| {
        let near = connect_as(source, FORWARD).unwrap();
        (near, bounded(listener.accept().unwrap().0))
    };
    // A download: from the server to the client.
    let download = |source: &str, count: usize| {
        let (near, far) = open(source);
        let begin = Instant::now();
        carries(far, near, count);
        begin.elapsed()
    };
    let took = std::thread::scope(|scope| {
        let (near, far) = open("127.0.7.1:0");
        let slow = scope.spawn(move || {
            let begin = Instant::now();
            carries(far, near, COUNT);
            begin.elapsed()
        });
        let other = download("127.0.8.1:0", 1_000_000);
        assert!(!slow.is_finished(), "the other took {other:?}");
        slow.join().unwrap()
    });
    assert!(took >= Duration::from_millis(3500), "{took:?}");
    // Two sessions, one of them an upload, have the rate of one: at most the burst and what comes meanwhile.
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let (near, far) = open("127.0.9.1:0");
        scope.spawn(move || carries(near, far, COUNT / 2));
        let (near, far) = open("127.0.9.1:0");
        scope.spawn(move || carries(far, near, COUNT / 2));
    });
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(3500), "{took:?}");
    // A reload lifts the limit for sessions that wait.
    let (near, far) = open("127.0.10.1:0");
    let begin = Instant::now();
    let waiting = std::thread::spawn(move || carries(far, near, 4 * COUNT));
    assert!(proxy.reload(&limited("sessions = 1000", LISTENERS)).ok);
    waiting.join().unwrap();
    // With the limit, it would take 19 s.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// Sessions that are held back wait for their deadlines: the relay uses little CPU time.
#[kernel_test]
fn waiting_for_bytes_costs_little() {
    let listener = TcpListener::bind(SERVER).unwrap();
    let proxy = Midspan::here(&limited("rate_per_client = \"800 kbit/s\"", LISTENERS));
    let data = vec![7; 1 << 20];
    let mut open = Vec::new();
    let mut sent = 0;
    for _ in 0..50 {
        let near = connect_as("127.0.7.1:0", FORWARD).unwrap();
        let mut far = bounded(listener.accept().unwrap().0);
        far.set_nonblocking(true).unwrap();
        sent += far.write(&data).unwrap();
        open.push((near, far));
    }
    // More than the burst and what comes in the time of the test, so the rest waits in the kernel.
    assert!(sent > 600_000, "{sent}");
    let ticks = || {
        let file = format!("/proc/{}/stat", proxy.relay().as_raw_nonzero());
        let stat = std::fs::read_to_string(file).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        [11, 12]
            .map(|at| fields[at].parse::<u64>().unwrap())
            .iter()
            .sum::<u64>()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(3));
    let used = ticks() - before;
    // 100 ticks are a second of one processor.
    assert!(used < 60, "{used} ticks in 3 s");
}
