//! Measures the fragmenter in a real Midspan: TCP, TUN device and raw sockets.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_linux::namespace::{self, NetworkNamespace};
use midspan_proxy::RunOptions;
use midspan_testbed::network::{End, Link, Node};
use midspan_testbed::program::{AS, Launch, Program};
use socket2::{Domain, Socket, Type};

use crate::{Arguments, Failure, Measured};

/// The ports of Midspan and of the server.
const PORTS: (u16, u16) = (8080, 80);
const LIMIT: Duration = Duration::from_secs(20);
/// After this time segments are oversized and windows are open.
const WARM_UP: Duration = Duration::from_secs(2);
const BLOCK: usize = 1 << 18;
/// The name of the fragmenter's thread (proc_pid_comm(5)).
const THREAD: &str = "fragmenter";

/// Runs Midspan if the arguments are those with which this program starts it; otherwise `None`.
pub fn midspan(arguments: &[String]) -> Option<Result<(), Failure>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [AS, "relay"] => Some(midspan_proxy::relay_main().map_err(Into::into)),
        [AS, "run", file] => Some(run(file.as_ref())),
        _ => None,
    }
}

fn run(file: &Path) -> Result<(), Failure> {
    Ok(midspan_proxy::run(RunOptions {
        configuration: file.into(),
        relay_arguments: [AS, "relay"].map(str::to_owned).to_vec(),
        // No upgrade.
        trial_arguments: Vec::new(),
        ready: Some(std::io::stdout().as_fd().try_clone_to_owned()?),
        log_level: None,
    })?)
}

/// Measures both versions of IP, for `span` each.
pub fn measure(arguments: &Arguments, span: Duration) -> Result<Vec<Measured>, Failure> {
    namespace::isolate()?;
    let mut measured = Vec::new();
    for is_four in [true, false] {
        measured.extend(measure_family(arguments, span, is_four)?);
    }
    Ok(measured)
}

/// The client's address number `place`, and the gateway's address on the same subnet.
fn addresses(is_four: bool, place: u8) -> Result<(IpAddr, IpAddr), Failure> {
    let place = place + 2;
    Ok(match is_four {
        true => (format!("10.1.0.{place}").parse()?, "10.1.0.1".parse()?),
        false => (format!("fd01::{place:x}").parse()?, "fd01::1".parse()?),
    })
}

fn measure_family(
    arguments: &Arguments,
    span: Duration,
    is_four: bool,
) -> Result<Vec<Measured>, Failure> {
    let (gateway, client) = network(arguments.connections, is_four)?;
    serve(&gateway)?;
    let mut program = start(&gateway, arguments, is_four)?;
    let (received, is_over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut downloads = Vec::new();
    for place in 0..arguments.connections {
        let stream = client.run(move || connect(is_four, place))??;
        downloads.push(download(stream, &received, &is_over));
    }
    std::thread::sleep(WARM_UP);
    let before = Reading::take(&program, &client, &received)?;
    std::thread::sleep(span);
    let after = Reading::take(&program, &client, &received)?;
    is_over.store(true, Ordering::Relaxed);
    for download in downloads {
        download.join().map_err(|_| "a download failed")??;
    }
    program.midspan.kill_group();
    let _ = program.midspan.wait_for(LIMIT);
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let bits = (after.received - before.received) as f64 * 8.0;
    let processor = (after.processor - before.processor) as f64 / 1e9;
    let family = if is_four { "IPv4" } else { "IPv6" };
    let case = format!(
        "kernel's path, {family}, {} connections of {}, {} bytes of data in fragments of {}",
        arguments.connections, arguments.rate, arguments.size, arguments.fragment_size
    );
    let count =
        |read: fn(&Reassembly) -> u64| (read(&after.reassembly) - read(&before.reassembly)) as f64;
    let fragments = count(|reassembly| reassembly.fragments);
    let segments = count(|reassembly| reassembly.packets);
    let one = |quantity, unit, value| Measured::new(&case, quantity, unit, value);
    Ok(vec![
        one("goodput", "Gbit/s", bits / seconds / 1e9),
        one(
            "share of the fragmenter's core",
            "share",
            processor / seconds,
        ),
        one("goodput for a whole core", "Gbit/s", bits / processor / 1e9),
        one("fragments a second", "1/s", fragments / seconds),
        one(
            "processor time for a fragment",
            "µs",
            processor * 1e6 / fragments,
        ),
        one("fragments of a segment", "fragments", fragments / segments),
        one("segments put together", "segments", segments),
        one(
            "reassembly failures",
            "packets",
            count(|reassembly| reassembly.failures),
        ),
    ])
}

/// The gateway, and a namespace that has the addresses of all clients.
fn network(clients: u8, is_four: bool) -> Result<(NetworkNamespace, NetworkNamespace), Failure> {
    let gateway = Node::host("gateway").make()?;
    let client = Node::host("client").make()?;
    let prefix = |address| IpNet::new_assert(address, if is_four { 24 } else { 64 });
    let near = End::new(&gateway, "acc").address(prefix(addresses(is_four, 0)?.1));
    let mut far = End::new(&client, "eth");
    for place in 0..clients {
        far = far.address(prefix(addresses(is_four, place)?.0));
    }
    Link::between(near, far).make()?;
    Ok((gateway, client))
}

/// Sends data over each connection until the client closes it.
fn serve(gateway: &NetworkNamespace) -> Result<(), Failure> {
    let listener = gateway.run(|| TcpListener::bind(("127.0.0.1", PORTS.1)))??;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let block = vec![0x55; BLOCK];
                let mut stream = stream;
                while stream.write_all(&block).is_ok() {}
            });
        }
    });
    Ok(())
}

fn connect(is_four: bool, place: u8) -> Result<TcpStream, Failure> {
    let (from, to) = addresses(is_four, place)?;
    let domain = if is_four { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&SocketAddr::new(to, PORTS.0).into(), LIMIT)?;
    socket.set_read_timeout(Some(LIMIT))?;
    Ok(socket.into())
}

fn download(
    mut stream: TcpStream,
    received: &Arc<AtomicU64>,
    is_over: &Arc<AtomicBool>,
) -> JoinHandle<std::io::Result<()>> {
    let (received, is_over) = (Arc::clone(received), Arc::clone(is_over));
    std::thread::spawn(move || {
        let mut block = vec![0; BLOCK];
        while !is_over.load(Ordering::Relaxed) {
            let count = stream.read(&mut block)?;
            received.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// A running Midspan, and the file in `/proc` with the processor time of its fragmenter's thread.
struct Running {
    midspan: Program,
    schedule: std::path::PathBuf,
}

fn start(
    gateway: &NetworkNamespace,
    arguments: &Arguments,
    is_four: bool,
) -> Result<Running, Failure> {
    let listen = SocketAddr::new(addresses(is_four, 0)?.1, PORTS.0);
    let text = format!(
        "[profile.wide]\nclients = \"all\"\ndownstream = \"{}\"\n\
         oversized_segments = \"{} B\"\nfragment_size = \"{} B\"\n[[listener]]\n\
         name = \"all\"\nlisten = \"{listen}\"\nto = \"127.0.0.1:{}\"\n",
        arguments.rate, arguments.size, arguments.fragment_size, PORTS.1
    );
    let launch = Launch::this_program("run").configuration(&text);
    let midspan = launch.inside(gateway).grace(LIMIT).ready()?;
    let schedule = thread_of(&midspan)?;
    Ok(Running { midspan, schedule })
}

/// Finds the fragmenter's thread in the relay, the helper's child process.
fn thread_of(helper: &Program) -> Result<std::path::PathBuf, Failure> {
    for child in helper.children() {
        for task in fs::read_dir(format!("/proc/{}/task", child.as_raw_nonzero()))? {
            let task = task?.path();
            if fs::read_to_string(task.join("comm"))?.trim() == THREAD {
                return Ok(task.join("schedstat"));
            }
        }
    }
    Err("without a fragmenter".into())
}

/// Counters of IP in the clients' namespace.
#[derive(Debug, Clone, Copy, Default)]
struct Reassembly {
    fragments: u64,
    packets: u64,
    failures: u64,
}

struct Reading {
    at: Instant,
    received: u64,
    /// CPU time of the fragmenter's thread in nanoseconds.
    processor: u64,
    reassembly: Reassembly,
}

impl Reading {
    fn take(
        program: &Running,
        client: &NetworkNamespace,
        received: &AtomicU64,
    ) -> Result<Self, Failure> {
        let text = fs::read_to_string(&program.schedule)?;
        let processor = text.split_whitespace().next().ok_or("no time")?.parse()?;
        Ok(Self {
            at: Instant::now(),
            received: received.load(Ordering::Relaxed),
            processor,
            reassembly: client.run(reassembly)??,
        })
    }
}

/// The sum over both versions of IP; only one is used at a time.
fn reassembly() -> Result<Reassembly, Failure> {
    let six = fs::read_to_string("/proc/thread-self/net/snmp6")?;
    let of_six = |name: &str| -> u64 {
        let line = six
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        value.unwrap_or(0)
    };
    let four = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = four.lines().filter(|line| line.starts_with("Ip: "));
    let names = lines.next().ok_or("no counters of IP")?.split_whitespace();
    let values = lines.next().ok_or("no counters of IP")?.split_whitespace();
    let both: Vec<(&str, &str)> = names.zip(values).collect();
    let of_four = |name: &str| -> u64 {
        let found = both.iter().find(|(of, _)| *of == name);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    };
    Ok(Reassembly {
        fragments: of_four("ReasmReqds") + of_six("Ip6ReasmReqds"),
        packets: of_four("ReasmOKs") + of_six("Ip6ReasmOKs"),
        failures: of_four("ReasmFails") + of_six("Ip6ReasmFails"),
    })
}
