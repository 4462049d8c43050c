//! For minutes, more new connections per second than the time-outs of connection tracking allow, with
//! a table of 65,536 entries.
//!
//! Only the first network namespace can set the table's size, which applies to all. So this test runs
//! only with `MIDSPAN_SOAK=full`, as root in the first namespace. A process of its own restores the
//! earlier size, however the test ends. All traffic stays in namespaces of the test.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use midspan_linux::connection_tracking::Occupancy;
use midspan_linux::namespace::NetworkNamespace;

use super::load::Echo;
use super::support::*;
use super::tracking::{metrics, with_admin};

const TABLE: u64 = 65_536;
const FILE: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// New connections per second, and the duration.
const STEADY: (u64, Duration) = (2_000, Duration::from_secs(180));
const TOO_MANY: (u64, Duration) = (4_000, Duration::from_secs(20));
/// Number of client threads, each with one connection at a time.
const THREADS: u64 = 48;
/// If a run began a smaller share of its connections, it proves nothing about the table.
const KEPT_UP: f64 = 0.97;

/// Standard input of a process that sets the table's size. The process restores the earlier size
/// when its input is closed.
static SETTER: OnceLock<Result<Mutex<ChildStdin>, String>> = OnceLock::new();

/// Starts a process in the first network namespace, before the test leaves it.
pub fn stay_in_first_namespace(test: &str) {
    if crate::soaking::is_full() && test.starts_with("transparent::full_table::") {
        let _ = SETTER.set(start_setter());
    }
}

fn start_setter() -> Result<Mutex<ChildStdin>, String> {
    let before = fs::read_to_string(FILE).map_err(|error| error.to_string())?;
    let before = before.trim();
    // Writes the present value, to find out whether this process may set it.
    fs::write(FILE, before).map_err(|error| {
        format!("{FILE} cannot be set ({error}): it takes root in the first network namespace")
    })?;
    let in_use = Occupancy::read_files().map_or(0, |table| table.entries);
    if in_use > TABLE / 4 {
        return Err(format!(
            "{in_use} connections of this machine's own are tracked"
        ));
    }
    let script = format!("while read size; do echo $size > {FILE}; done; echo {before} > {FILE}");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // A signal from the terminal must end only the test, not this process.
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    Ok(Mutex::new(child.stdin.take().unwrap()))
}

fn set_table(size: u64) -> Result<(), &'static str> {
    match SETTER.get() {
        Some(Ok(setter)) => {
            writeln!(setter.lock().unwrap(), "{size}").unwrap();
            Ok(())
        }
        Some(Err(reason)) => Err(reason),
        None => Err("it takes minutes: set MIDSPAN_SOAK=full"),
    }
}

#[kernel_test]
fn soak_of_thousands_of_connections_a_second() {
    let network = Network::new();
    let limit = || {
        network
            .gateway
            .run(Occupancy::read_files)
            .unwrap()
            .unwrap()
            .limit
    };
    let before = limit().unwrap();
    if let Err(reason) = set_table(TABLE) {
        return skip(reason);
    }
    wait_until("a small table", || limit() == Some(TABLE));
    network
        .client
        .set_parameter("net/ipv4/tcp_tw_reuse", "1")
        .unwrap();
    let server = Echo::start(&network);
    let text = format!("[log]\nlevel = \"warn\"\n{}", with_admin());
    let midspan = Midspan::ready(&network.gateway, &text);

    let first = Run::of(&network, STEADY);
    println!("  {first}");
    first.assert_kept_up();
    assert_eq!(first.failed, BTreeMap::new());
    assert!(
        first.split as f64 >= 0.99 * first.begun as f64,
        "too few are split"
    );
    assert_eq!(
        (first.repeated_syns, first.dropped, first.dropped_early),
        (0, 0, 0)
    );

    let second = Run::of(&network, TOO_MANY);
    println!("  {second}");
    if second.passed == 0 {
        second.assert_kept_up();
        panic!("none passed untouched");
    }
    assert!(
        second.most_entries >= TABLE - TABLE / 8,
        "some passed although there was room"
    );
    // No session uses an entry beyond the limit; connections that pass untouched may.
    let log = midspan.end();
    assert!(log.contains("is nearly full"), "{log}");
    set_table(before).unwrap();
    wait_until("the former table", || limit() == Some(before));
    drop(server);
}

/// The result of connections that were begun at a steady rate.
#[derive(Debug)]
struct Run {
    wanted: u64,
    begun: u64,
    failed: BTreeMap<String, usize>,
    split: u64,
    /// Connections that passed untouched because the table was nearly full.
    passed: u64,
    repeated_syns: u64,
    dropped: u64,
    dropped_early: u64,
    most_entries: u64,
    seconds: f64,
}

impl Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wanted,
            begun,
            failed,
            split,
            passed,
            repeated_syns,
            dropped,
            dropped_early,
            most_entries,
            seconds,
        } = self;
        write!(
            f,
            "{begun} of {wanted} connections begun in {seconds:.1} s: {split} split, {passed} passed \
             untouched, failed: {failed:?}; {repeated_syns} SYNs repeated, {dropped} dropped, \
             {dropped_early} dropped early; at most {most_entries} entries"
        )
    }
}

impl Run {
    fn of(network: &Network, (rate, time): (u64, Duration)) -> Self {
        let gateway = &network.gateway;
        let (split, passed) = (value(gateway, OPENED), value(gateway, PASSED));
        let (repeated, [dropped, early]) = (network.repeated_syns(), drops(gateway));
        let wanted = rate * time.as_secs();
        let start = Instant::now();
        let most = Arc::new(AtomicU64::new(0));
        let callers = call(network, rate, wanted);
        let mut second = 0;
        while !callers.is_finished() {
            let entries = gateway.run(Occupancy::read_files).unwrap().unwrap().entries;
            most.fetch_max(entries, Ordering::Relaxed);
            if start.elapsed().as_secs() / 10 > second {
                second = start.elapsed().as_secs() / 10;
                println!("  after {:.0?}: {entries} entries", start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let (begun, failed) = callers.join().unwrap();
        let [dropped_now, early_now] = drops(gateway);
        Self {
            wanted,
            begun,
            failed,
            seconds: start.elapsed().as_secs_f64(),
            split: value(gateway, OPENED) - split,
            passed: value(gateway, PASSED) - passed,
            repeated_syns: network.repeated_syns() - repeated,
            dropped: dropped_now - dropped,
            dropped_early: early_now - early,
            most_entries: most.load(Ordering::Relaxed),
        }
    }

    fn assert_kept_up(&self) {
        let kept_up = self.begun as f64 >= KEPT_UP * self.wanted as f64;
        assert!(
            kept_up,
            "void: the machine is too busy to begin so many connections"
        );
    }
}

const OPENED: &str = "midspan_sessions_opened_total{listener=\"test\"}";
const PASSED: &str = "midspan_bypasses_total{reason=\"connection_tracking\"}";

fn value(gateway: &NetworkNamespace, name: &str) -> u64 {
    let text = metrics(gateway);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

/// The sums of `drop` and `early_drop` in `conntrack -S` over all processors.
fn drops(gateway: &NetworkNamespace) -> [u64; 2] {
    let text = gateway
        .run(|| fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").unwrap())
        .unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let rows: Vec<Vec<&str>> = lines
        .map(|line| line.split_whitespace().collect())
        .collect();
    ["drop", "early_drop"].map(|name| {
        let column = names.iter().position(|of| *of == name).unwrap();
        let of = |row: &Vec<&str>| u64::from_str_radix(row[column], 16).unwrap();
        rows.iter().map(of).sum()
    })
}

type Called = (u64, BTreeMap<String, usize>);

/// Begins connections at a steady rate, independent of the end of earlier ones, as long as a thread
/// is free. Connections that have not begun when the time (plus 2 %) is over are left out.
fn call(network: &Network, rate: u64, count: u64) -> std::thread::JoinHandle<Called> {
    let start = Instant::now();
    let end = Duration::from_secs_f64(count as f64 / rate as f64 * 1.02);
    let next = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let next = Arc::clone(&next);
            move || {
                let (mut begun, mut failed) = (0, BTreeMap::new());
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || start.elapsed() > end {
                        return (begun, failed);
                    }
                    let at = Duration::from_nanos(number * 1_000_000_000 / rate);
                    std::thread::sleep(at.saturating_sub(start.elapsed()));
                    begun += 1;
                    if let Err(error) = one(number) {
                        *failed.entry(error.to_string()).or_insert(0) += 1;
                    }
                }
            }
        })
        .collect();
    network
        .client
        .run(move || {
            std::thread::spawn(move || {
                let threads: Vec<_> = threads.into_iter().map(std::thread::spawn).collect();
                let mut all: Called = (0, BTreeMap::new());
                for thread in threads {
                    let (begun, failed): Called = thread.join().unwrap();
                    all.0 += begun;
                    for (error, count) in failed {
                        *all.1.entry(error).or_insert(0) += count;
                    }
                }
                all
            })
        })
        .unwrap()
}

fn one(number: u64) -> std::io::Result<()> {
    let port = PORT + u16::try_from(number % u64::from(super::load::PORTS)).unwrap();
    let server = SocketAddr::new(SERVER.parse().unwrap(), port);
    let mut stream = bounded(TcpStream::connect_timeout(&server, LIMIT)?);
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0; 1])
}
