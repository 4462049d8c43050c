//! One client that uses as much as it can, and another client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_testbed::program::Launch;
use socket2::{Domain, Socket, Type};

use super::support::*;

/// A proxy that sees another file in place of a file of the system.
struct WithFile {
    directory: tempfile::TempDir,
    place: &'static str,
}

fn with_file(place: &'static str, content: &str) -> Option<WithFile> {
    let probe = std::process::Command::new("unshare")
        .args(["-m", "mount", "--bind", "/etc/hostname", place])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let with_file = WithFile { directory, place };
    with_file.write(content);
    Some(with_file)
}

impl WithFile {
    fn write(&self, content: &str) {
        std::fs::write(self.directory.path().join("file"), content).unwrap();
    }

    fn start(&self, text: &str) -> Midspan {
        let file = self.directory.path().join("file");
        Midspan::of(
            Launch::this_program("run")
                .configuration(text)
                .in_place_of(file, self.place),
        )
    }
}

const CONNECTIONS: usize = 500;
/// A budget of 16 MiB is enough for 367 sessions; a quarter of them is less than the smallest share
/// of a client.
const SHARE: usize = 100;

fn connect_from(source: &str, to: &str) -> TcpStream {
    try_connect_from(source, to).unwrap()
}

/// Like [`connect_from`]. If the proxy resets the connection at once, `connect` may fail.
fn try_connect_from(source: &str, to: &str) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let source: SocketAddr = format!("{source}:0").parse().unwrap();
    let to: SocketAddr = to.parse().unwrap();
    socket.bind(&source.into()).unwrap();
    socket.connect(&to.into())?;
    Ok(bounded(socket.into()))
}

/// Whether a connection is open, after the proxy has reset others.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = (&*stream).read(&mut [0; 64]);
    stream.set_nonblocking(false).unwrap();
    match read {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// Checks that a client is served in each mode: one byte passes in each direction. Returns how long
/// this took.
fn is_served(listener: &TcpListener, source: &str) -> Duration {
    let start = Instant::now();
    let mut client = connect_from(source, HTTP);
    client
        .write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    exactly::<39>(&mut client);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    let mut client = connect_from(source, FORWARD);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

/// One client has 500 idle connections, as sessions or in an unfinished negotiation; another client
/// is served.
#[kernel_test]
fn one_client_does_not_shut_others_out() {
    for (address, says) in [(FORWARD, &b""[..]), (SOCKS, b""), (SOCKS, b"\x05")] {
        let _proxy = Midspan::here(&format!("[limits]\nmemory = \"16 MiB\"\n{}", each_mode("")));
        let listener = TcpListener::bind(SERVER).unwrap();
        let taken: Vec<TcpStream> = (0..CONNECTIONS)
            .filter_map(|_| {
                // The proxy may have reset the connection already.
                let mut stream = try_connect_from("127.0.0.7", address).ok()?;
                stream.write_all(says).ok()?;
                Some(stream)
            })
            .collect();
        // Sessions that have just begun are charged by an estimate, which may fill the budget before
        // the client has reached its share.
        wait_until("shed", || {
            let shed = ["sessions_per_client", "memory"].map(|reason| {
                metric(&format!(
                    "midspan_sessions_shed_total{{reason=\"{reason}\"}}"
                ))
            });
            shed.iter().sum::<f64>() as usize >= CONNECTIONS - SHARE
        });
        let open = taken.iter().filter(|stream| is_open(stream)).count();
        assert!(open <= SHARE, "{open}");
        if address == FORWARD {
            for _ in 0..open {
                drop(listener.accept().unwrap());
            }
        }
        let time = is_served(&listener, "127.0.0.8");
        println!("  {address}: {open} of {CONNECTIONS} open; another is served in {time:?}");
    }
}

/// Data of unfinished negotiations counts in the memory budget.
#[kernel_test]
fn half_said_requests_count_in_the_budget() {
    const CLIENTS: usize = 100;
    const SAID: usize = 15_000;
    let _proxy = Midspan::here(&format!("[limits]\nmemory = \"64 MiB\"\n{}", each_mode("")));
    assert_eq!(metric("midspan_memory_used_bytes"), 0.0);
    let mut head = b"GET http://192.0.2.2/ HTTP/1.1\r\nX: ".to_vec();
    head.resize(SAID, b'x');
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(HTTP);
            client.write_all(&head).unwrap();
            client
        })
        .collect();
    wait_until("counted", || {
        metric("midspan_memory_used_bytes") >= (CLIENTS * SAID) as f64
    });
    assert!(metric("midspan_memory_reserved_bytes") >= (CLIENTS * SAID) as f64);
    drop(clients);
    wait_until("given back", || metric("midspan_memory_used_bytes") == 0.0);
    assert_eq!(metric("midspan_memory_reserved_bytes"), 0.0);
}

/// `/proc/meminfo` of a machine with this much memory, in MiB.
fn machine_with(mebibytes: u64) -> String {
    format!("MemTotal:       {} kB\n", mebibytes << 10)
}

/// The machine's limits can change while the proxy runs.
#[kernel_test]
fn another_memory_of_the_machine_is_noticed() {
    let Some(proxy_with) = with_file("/proc/meminfo", &machine_with(1024)) else {
        return skip("/proc/meminfo cannot be replaced here");
    };
    let _proxy = proxy_with.start(&each_mode(""));
    let mebibytes =
        |name: &str| metric(&format!("midspan_{name}_budget_bytes")) / f64::from(1 << 20);
    assert_eq!(mebibytes("memory"), 256.0);
    let queues = mebibytes("queues");
    proxy_with.write(&machine_with(512));
    wait_until("noticed", || mebibytes("memory") == 128.0);
    // In a network namespace `net.ipv4.tcp_mem` cannot be read. Then the budget is a sixteenth of the
    // machine's memory: 32 MiB.
    assert!(queues == mebibytes("queues") || queues == 32.0, "{queues}");
}

/// A gateway with 980 MiB keeps 5,000 idle sessions, of five clients.
#[kernel_test]
fn a_gigabyte_carries_5000_idle_sessions() {
    const CLIENTS: usize = 5;
    const EACH: usize = 1000;
    let Some(proxy_with) = with_file("/proc/meminfo", &machine_with(980)) else {
        return skip("/proc/meminfo cannot be replaced here");
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let _proxy = proxy_with.start(&each_mode(""));
    let listener = TcpListener::bind(SERVER).unwrap();
    let mut open = Vec::new();
    for _ in 0..EACH {
        for host in 0..CLIENTS {
            let mut client = connect_from(&format!("127.0.0.{}", 7 + host), FORWARD);
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            open.push((client, server));
        }
    }
    assert_eq!(
        metric("midspan_sessions_active{listener=\"forward\"}") as usize,
        CLIENTS * EACH
    );
    for reason in ["memory", "sessions_per_client", "descriptors"] {
        let name = format!("midspan_sessions_shed_total{{reason=\"{reason}\"}}");
        assert_eq!(metric(&name), 0.0, "{reason}");
    }
    for (client, server) in open.iter_mut().step_by(500) {
        server.write_all(b"y").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    println!(
        "  {} idle sessions: {:.0} of {:.0} MiB reserved",
        open.len(),
        metric("midspan_memory_reserved_bytes") / f64::from(1 << 20),
        metric("midspan_memory_budget_bytes") / f64::from(1 << 20)
    );
}
