//! The sessions of a soak: short ones with an answer that is compared, long ones with round trips, and their server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use midspan_linux::namespace::NetworkNamespace;
use midspan_testbed::testing::{LIMIT, abort, bounded};

/// Threads that open short sessions.
const THREADS: usize = 48;
/// Of this many short sessions, one is reset by its client halfway, and one by its server.
const CLIENT_RESETS: usize = 16;
const SERVER_RESETS: usize = 23;
const LONGEST: usize = 40_000;

/// A table of rules that loses 0.5 % of the packets at this hook, except packets that a TCP does not send again
/// and whose loss can let a client wait without limit, with and without Midspan: a reset, and the ACK
/// to which the other end answers by a reset (RFC 5961).
pub fn loss(hook: &str) -> String {
    format!(
        "table inet loss {{\n chain lossy {{\n type filter hook {hook} priority 0;\n \
         tcp flags rst accept\n \
         tcp flags & (fin|syn|psh|ack) == ack meta length < 100 accept\n \
         numgen random mod 1000 < 5 drop\n }}\n}}\n"
    )
}

/// Where the sessions come from, and where they go: those with an even number to the first address, the others to the
/// second one.
#[derive(Clone, Copy)]
pub struct Callers<'a> {
    pub client: &'a NetworkNamespace,
    pub targets: [SocketAddr; 2],
}

/// How sessions ended.
#[derive(Default)]
pub struct Outcomes {
    pub complete: AtomicUsize,
    pub failed: AtomicUsize,
    /// Sessions that ended with a FIN before the last byte.
    pub short: AtomicUsize,
    /// Sessions with wrong bytes.
    pub wrong: AtomicUsize,
    /// Sessions in which a client waited in vain for [`LIMIT`].
    pub silent: AtomicUsize,
    pub long_rounds: AtomicUsize,
    pub long_failed: AtomicUsize,
}

impl Outcomes {
    /// Counts a short session that ended by an error.
    pub fn fail(&self, error: &io::Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if is_silence(error) {
            self.silent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All of it in a line.
    pub fn shown(&self) -> String {
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

/// The byte at a position of an answer.
fn byte(seed: u64, place: usize) -> u8 {
    let mixed = (seed ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Short sessions from several threads.
pub fn call(
    Callers { client, targets }: Callers<'_>,
    phase: usize,
    count: usize,
    outcomes: &Arc<Outcomes>,
) -> std::thread::JoinHandle<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let outcomes = Arc::clone(outcomes);
    client
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
                                if let Err(error) =
                                    short(targets, phase * count + number, &outcomes)
                                {
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
pub fn short(targets: [SocketAddr; 2], number: usize, outcomes: &Outcomes) -> io::Result<()> {
    let target = targets[number % 2];
    let begin = Instant::now();
    let silence = |during: &str, error: io::Error| {
        if is_silence(&error) {
            let seconds = begin.elapsed().as_secs_f64();
            println!(
                "  silent: {number} of {target}, during {during}, after {seconds:.1} s: {error}"
            );
        }
        error
    };
    let stream = TcpStream::connect_timeout(&target, LIMIT);
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
        let reset = number.is_multiple_of(SERVER_RESETS);
        let got = answer.len();
        println!(
            "  cut short: {number} of {target}: {got} of {length} bytes; to be reset: {reset}"
        );
    }
    outcome.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Long sessions, each with a round trip now and then. A session that ends is opened again.
pub fn hold(
    Callers { client, targets }: Callers<'_>,
    count: usize,
    outcomes: &Arc<Outcomes>,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    let (outcomes, stop) = (Arc::clone(outcomes), Arc::clone(stop));
    client
        .run(move || {
            std::thread::spawn(move || {
                let mut streams: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
                while !stop.load(Ordering::Relaxed) {
                    for (number, stream) in streams.iter_mut().enumerate() {
                        match round_trip(targets[number % 2], number, stream) {
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

fn round_trip(
    target: SocketAddr,
    number: usize,
    stream: &mut Option<TcpStream>,
) -> io::Result<bool> {
    let stream = match stream {
        Some(stream) => stream,
        None => {
            let new = bounded(TcpStream::connect_timeout(&target, LIMIT)?);
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

/// The server: answers until it is stopped.
pub fn serve(listener: TcpListener, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
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
