//! Many sessions over a lossy path, while clients and servers reset, the configuration is reloaded
//! and the relay is killed. All data is correct or ends with an error, and nothing is left.
//!
//! `MIDSPAN_SOAK=full` runs the test at its full length.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use rustix::process::{Signal, kill_process};

use super::support::*;

const THREADS: usize = 48;
/// Short sessions of each phase, and long sessions during all phases, in the quick run.
const QUICK: (usize, usize) = (2500, 50);
const FULL: (usize, usize) = (50_000, 500);
/// A time limit far above the time that any machine needs.
const TIME: Duration = Duration::from_secs(600);
/// Permitted growth of the relay's own memory between two equal phases.
const GROWTH_KB: usize = 2048;
const FORWARD: &str = "10.1.0.1:8080";
/// Of this many short sessions, one is reset by its client halfway, and one by its server.
const CLIENT_RESETS: usize = 16;
const SERVER_RESETS: usize = 23;
const LONGEST: usize = 40_000;
/// A loss of 0.5 % of the packets in each direction, except packets that a TCP does not send again
/// and whose loss can let a client wait without limit, with and without Midspan: a reset, and the ACK
/// to which the other end answers by a reset (RFC 5961).
const LOSS: &str = "table inet loss {\n chain forwarded {\n type filter hook forward priority 0;\n \
    tcp flags rst accept\n \
    tcp flags & (fin|syn|psh|ack) == ack meta length < 100 accept\n \
    numgen random mod 1000 < 5 drop\n }\n}\n";

#[derive(Default)]
struct Outcomes {
    complete: AtomicUsize,
    failed: AtomicUsize,
    /// Sessions that ended with a FIN before the last byte.
    short: AtomicUsize,
    /// Sessions with wrong bytes.
    wrong: AtomicUsize,
    /// Sessions in which a client waited in vain for [`LIMIT`].
    silent: AtomicUsize,
    long_rounds: AtomicUsize,
    long_failed: AtomicUsize,
}

impl Outcomes {
    /// Counts a short session that ended by an error.
    fn fail(&self, error: &io::Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if is_silence(error) {
            self.silent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shown(&self) -> String {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        format!(
            "{} complete, {} ended by an error, {} cut short, {} wrong, {} silent; long sessions: \
             {} round trips, {} ended by an error",
            read(&self.complete),
            read(&self.failed),
            read(&self.short),
            read(&self.wrong),
            read(&self.silent),
            read(&self.long_rounds),
            read(&self.long_failed),
        )
    }
}

/// Whether a client has waited in vain for [`LIMIT`].
fn is_silence(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
    kinds.contains(&error.kind())
}

/// Whether the tests run at their full length.
pub fn is_full() -> bool {
    std::env::var("MIDSPAN_SOAK").is_ok_and(|value| value == "full")
}

#[kernel_test]
fn nothing_is_lost_or_left() {
    let (short, long) = if is_full() { FULL } else { QUICK };
    let network = Network::new();
    network
        .client
        .set_parameter("net/ipv4/tcp_tw_reuse", "1")
        .unwrap();
    // A reset behind lost data is answered by an ACK, and only the answer to this ACK ends the connection (RFC 5961). The
    // kernel sends no such ACK within half a second after another one, and then the connection stays silent.
    network
        .gateway
        .set_parameter("net/ipv4/tcp_invalid_ratelimit", "0")
        .unwrap();
    rules(&network.router, LOSS);
    let before = Installed::of(&network.gateway);
    let stop = Arc::new(AtomicBool::new(false));
    let server = serve(&network, &stop);
    let mut midspan = Midspan::ready(&network.gateway, &configuration(20));
    let outcomes = Arc::new(Outcomes::default());
    let long = hold(&network, long, &outcomes, &stop);
    let start = Instant::now();

    let (mut seen, mut restarts, mut reloads) = (Vec::new(), 0, 0);
    let mut silent_before = 0;
    let installed = Installed::of(&network.gateway);
    println!("  {} short sessions", 4 * short);
    // In the first two phases the relay is killed, which ends Midspan; the last two phases are
    // equal.
    for phase in 0..4 {
        let callers = call(&network, phase, short, &outcomes);
        let mut turn = 0;
        while !callers.is_finished() {
            assert!(start.elapsed() < TIME, "{}", outcomes.shown());
            turn += 1;
            std::thread::sleep(Duration::from_millis(700));
            let answer = midspan.reload(&configuration(20 + turn % 2));
            assert!(answer.ok, "{answer:?}");
            reloads += 1;
            if phase < 2 && turn % 20 == 1 {
                kill_process(midspan.relay(), Signal::KILL).unwrap();
                assert!(!midspan.wait().success());
                midspan = Midspan::ready(&network.gateway, &configuration(20));
                restarts += 1;
                println!("  restarted after {:.1?}", start.elapsed());
            }
        }
        callers.join().unwrap();
        // Sessions that are being reset have their `reset_timeout` left.
        std::thread::sleep(Duration::from_secs(3));
        let relay = midspan.relay();
        let now = Use::of(relay.as_raw_nonzero().get(), &network.gateway);
        println!("  phase {phase}, {:.0?}: {now:?}", start.elapsed());
        seen.push(now);
        if phase == 1 {
            silent_before = outcomes.silent.load(Ordering::Relaxed);
        }
    }
    stop.store(true, Ordering::Relaxed);
    long.join().unwrap();
    println!(
        "  {}; {reloads} reloads, {restarts} restarts",
        outcomes.shown()
    );
    assert_eq!(outcomes.short.load(Ordering::Relaxed), 0);
    assert_eq!(outcomes.wrong.load(Ordering::Relaxed), 0);
    // Without a relay that is killed, no client waits in vain.
    assert_eq!(outcomes.silent.load(Ordering::Relaxed), silent_before);
    let complete = outcomes.complete.load(Ordering::Relaxed);
    assert!(complete > 4 * short * 3 / 4, "too few complete: {complete}");
    let [.., third, fourth] = &seen[..] else {
        unreachable!("four phases");
    };
    assert!(fourth.memory_kb < third.memory_kb + GROWTH_KB);
    // Long sessions reconnect by themselves, and their number varies a little.
    assert!(fourth.descriptors < third.descriptors + 32);
    assert!(fourth.pipes < third.pipes + 32);
    assert!(fourth.sockets < third.sockets + 32);
    let relay = midspan.relay().as_raw_nonzero().get();
    wait_until("without sessions", || network.taken(PORT) == 0);
    println!("  at rest: {:?}", Use::of(relay, &network.gateway));
    // Ports differ from one start to the next.
    assert_eq!(Installed::of(&network.gateway).lines(), installed.lines());
    server.join().unwrap();
    midspan.stop();
    assert_eq!(Installed::of(&network.gateway), before);
}

/// A configuration with both handshakes, and a limit that a reload changes.
fn configuration(seconds: usize) -> String {
    format!(
        "[log]\nlevel = \"warn\"\n{TRANSPARENT}connect_timeout = \"{seconds} s\"\n\
         [[listener]]\nname = \"forward\"\nlisten = \"{FORWARD}\"\nto = \"{SERVER}:{PORT}\"\n"
    )
}

/// The byte at a position of an answer.
fn byte(seed: u64, place: usize) -> u8 {
    let mixed = (seed ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

fn target(number: usize) -> SocketAddr {
    match number % 2 {
        0 => FORWARD.parse().unwrap(),
        _ => format!("{SERVER}:{PORT}").parse().unwrap(),
    }
}

/// Short sessions from several threads.
fn call(
    network: &Network,
    phase: usize,
    count: usize,
    outcomes: &Arc<Outcomes>,
) -> std::thread::JoinHandle<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let outcomes = Arc::clone(outcomes);
    network
        .client
        .run(move || {
            std::thread::spawn(move || {
                std::thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| {
                            loop {
                                let number = next.fetch_add(1, Ordering::Relaxed);
                                if number >= count {
                                    return;
                                }
                                if let Err(error) = short(phase * count + number, &outcomes) {
                                    outcomes.fail(&error);
                                    // While Midspan starts, connections are refused at once.
                                    std::thread::sleep(Duration::from_millis(100));
                                }
                            }
                        });
                    }
                });
            })
        })
        .unwrap()
}

/// One question, and an answer with the length that the question contains.
fn short(number: usize, outcomes: &Outcomes) -> io::Result<()> {
    let begin = Instant::now();
    let silence = |during: &str, error: io::Error| {
        if is_silence(&error) {
            let (target, seconds) = (target(number), begin.elapsed().as_secs_f64());
            println!(
                "  silent: {number} of {target}, during {during}, after {seconds:.1} s: {error}"
            );
        }
        error
    };
    let stream = TcpStream::connect_timeout(&target(number), LIMIT);
    let mut stream = bounded(stream.map_err(|error| silence("connect", error))?);
    let length = number.wrapping_mul(7919) % LONGEST;
    let mut question = vec![b'S'];
    question.extend((number as u64).to_be_bytes());
    question.extend((length as u64).to_be_bytes());
    stream.write_all(&question)?;
    if number.is_multiple_of(CLIENT_RESETS) {
        let read = stream.read(&mut [0; 100]);
        read.map_err(|error| silence("the first read", error))?;
        abort(stream);
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut answer = Vec::with_capacity(length);
    if let Err(error) = stream.read_to_end(&mut answer) {
        let during = format!("the answer, after {} of {length} bytes", answer.len());
        return Err(silence(&during, error));
    }
    let is_right = answer
        .iter()
        .enumerate()
        .all(|(place, got)| *got == byte(number as u64, place));
    let outcome = match (is_right && answer.len() <= length, answer.len() == length) {
        (true, true) => &outcomes.complete,
        (true, false) => &outcomes.short,
        (false, _) => &outcomes.wrong,
    };
    if answer.len() < length {
        let (target, reset) = (target(number), number.is_multiple_of(SERVER_RESETS));
        let got = answer.len();
        println!(
            "  cut short: {number} of {target}: {got} of {length} bytes; to be reset: {reset}"
        );
    }
    outcome.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Long sessions, each with a round trip now and then. A session that ends is opened again.
fn hold(
    network: &Network,
    count: usize,
    outcomes: &Arc<Outcomes>,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let (outcomes, stop) = (Arc::clone(outcomes), Arc::clone(stop));
    network
        .client
        .run(move || {
            std::thread::spawn(move || {
                let mut streams: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
                while !stop.load(Ordering::Relaxed) {
                    for (number, stream) in streams.iter_mut().enumerate() {
                        match round_trip(number, stream) {
                            Ok(true) => outcomes.long_rounds.fetch_add(1, Ordering::Relaxed),
                            Ok(false) => outcomes.wrong.fetch_add(1, Ordering::Relaxed),
                            Err(_) => {
                                *stream = None;
                                outcomes.long_failed.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        })
        .unwrap()
}

fn round_trip(number: usize, stream: &mut Option<TcpStream>) -> io::Result<bool> {
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let new = bounded(TcpStream::connect_timeout(&target(number), LIMIT)?);
            let new = stream.insert(new);
            new.write_all(b"L")?;
            new
        }
    };
    let sent = (number as u64).to_be_bytes();
    let mut got = [0; 8];
    stream.write_all(&sent)?;
    stream.read_exact(&mut got)?;
    Ok(sent == got)
}

fn serve(network: &Network, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let listener = network.listen(PORT);
    listener.set_nonblocking(true).unwrap();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => {
                    let thread = std::thread::Builder::new().stack_size(1 << 17);
                    let _ = thread.spawn(move || drop(answer(stream)));
                }
                Err(_) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    })
}

fn answer(stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    // Longer than any pause in a long session.
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut stream = stream;
    let (mut kind, mut number) = ([0; 1], [0; 8]);
    stream.read_exact(&mut kind)?;
    if kind == *b"L" {
        loop {
            stream.read_exact(&mut number)?;
            stream.write_all(&number)?;
        }
    }
    stream.read_exact(&mut number)?;
    let seed = u64::from_be_bytes(number);
    stream.read_exact(&mut number)?;
    let length = usize::try_from(u64::from_be_bytes(number))
        .unwrap()
        .min(LONGEST);
    let bytes: Vec<u8> = (0..length).map(|place| byte(seed, place)).collect();
    if seed.is_multiple_of(SERVER_RESETS as u64) && length > 0 {
        stream.write_all(&bytes[..length / 2])?;
        abort(stream);
        return Ok(());
    }
    stream.write_all(&bytes)
}

/// Resources of the relay and of the gateway's kernel.
#[derive(Debug)]
struct Use {
    descriptors: usize,
    pipes: usize,
    memory_kb: usize,
    sockets: usize,
}

impl Use {
    fn of(relay: i32, gateway: &NetworkNamespace) -> Self {
        let entries: Vec<_> = fs::read_dir(format!("/proc/{relay}/fd"))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .collect();
        let is_pipe = |link: &&std::path::PathBuf| link.to_string_lossy().starts_with("pipe:");
        let status = fs::read_to_string(format!("/proc/{relay}/status")).unwrap();
        let memory = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        let number = |text: &str| -> usize {
            let digits = text.split_whitespace().next().unwrap_or("0");
            digits.parse().unwrap()
        };
        let sockstat = gateway
            .run(|| fs::read_to_string("/proc/thread-self/net/sockstat").unwrap())
            .unwrap();
        let tcp = sockstat.lines().find(|l| l.starts_with("TCP:")).unwrap();
        Self {
            descriptors: entries.len(),
            pipes: entries.iter().filter(is_pipe).count(),
            memory_kb: memory.map_or(0, number),
            sockets: number(tcp.split_once("inuse").unwrap().1),
        }
    }
}

/// Rules, routes and parameters on the gateway, without parts that change with connections.
#[derive(Debug, PartialEq, Eq)]
struct Installed(Vec<String>);

impl Installed {
    fn of(gateway: &NetworkNamespace) -> Self {
        let commands: [(&str, &[&str]); 5] = [
            ("nft", &["-s", "-t", "list", "ruleset"]),
            ("ip", &["-4", "rule"]),
            ("ip", &["-6", "rule"]),
            ("ip", &["-4", "route", "show", "table", "7690"]),
            ("ip", &["-6", "route", "show", "table", "7690"]),
        ];
        let texts = commands.map(|(program, arguments)| output(gateway, program, arguments));
        Self(texts.into())
    }

    /// The number of lines of each part.
    fn lines(&self) -> Vec<usize> {
        self.0.iter().map(|text| text.lines().count()).collect()
    }
}
