//! Many short connections from several threads, on more than one processor.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::support::*;

const THREADS: usize = 16;
/// Of a machine that is not slow.
const CONNECTIONS: usize = 20_000;
/// Several ports, so that client ports in TIME_WAIT do not run out.
pub const PORTS: u16 = 8;
/// A time limit far above the time that any machine needs.
const TIME: Duration = Duration::from_secs(120);
/// A multiple of the time after which an unfinished handshake is dropped.
const SOON: Duration = Duration::from_secs(40);
/// Connections that are reset at once.
const ABORTED: usize = 4000;

/// While the kernel replaces its half-open socket, another processor may handle the client's first
/// data. This data must not pass the gateway, because the server would answer with an RST.
#[kernel_test]
fn no_connection_is_reset() {
    let connections = CONNECTIONS / slowness() as usize;
    for (name, text) in handshakes() {
        let network = Network::new();
        let server = Echo::start(&network);
        let midspan = Midspan::ready(&network.gateway, &text);
        let start = Instant::now();
        let failed = call(&network, connections, |address| {
            let mut stream = bounded(TcpStream::connect(address)?);
            // Data directly behind the last packet of the handshake.
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0; 1])
        });
        println!(
            "  {name}: {connections} connections in {:?}",
            start.elapsed()
        );
        assert_eq!(failed, BTreeMap::new(), "{name}");
        drop(server);
        midspan.stop();
    }
}

/// If a client resets its connection before it is accepted, nothing is left.
///
/// If one processor handles the RST while another replaces the half-open socket, the kernel loses
/// the RST, as on any server. Keep-alive then finds the connection.
#[kernel_test]
fn an_aborted_connection_ends_at_the_server() {
    for (name, text) in handshakes() {
        let network = Network::new();
        let server = Echo::start(&network);
        let text = format!("{text}[listener.client_leg]\nkeepalive = \"1 s\"\n");
        let midspan = Midspan::ready(&network.gateway, &text);
        let failed = call(&network, ABORTED, |address| {
            abort(TcpStream::connect(address)?);
            Ok(())
        });
        assert_eq!(failed, BTreeMap::new(), "{name}");
        let left = || {
            (0..PORTS)
                .map(|number| network.taken(PORT + number))
                .sum::<usize>()
        };
        let start = Instant::now();
        let first = left();
        while left() > 0 && start.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("  {name}: {first} left, none after {:?}", start.elapsed());
        assert_eq!(left(), 0, "{name}");
        drop(server);
        midspan.stop();
    }
}

fn handshakes() -> [(&'static str, String); 2] {
    [("early", early()), ("end-to-end", TRANSPARENT.to_owned())]
}

/// Runs `one` `count` times from the client's threads; returns how often each error occurred.
fn call(
    network: &Network,
    count: usize,
    one: impl Fn(SocketAddr) -> io::Result<()> + Send + Sync + 'static,
) -> BTreeMap<String, usize> {
    let server: IpAddr = SERVER.parse().unwrap();
    let (next, one) = (Arc::new(AtomicUsize::new(0)), Arc::new(one));
    let deadline = Instant::now() + TIME;
    let callers = (0..THREADS).map(|_| {
        let (next, one) = (Arc::clone(&next), Arc::clone(&one));
        move || {
            let mut failed = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return failed;
                }
                assert!(Instant::now() < deadline, "only {number} of {count}");
                let port = PORT + (number % usize::from(PORTS)) as u16;
                if let Err(error) = one(SocketAddr::new(server, port)) {
                    failed.push(error.to_string());
                }
            }
        }
    });
    let callers: Vec<_> = callers.collect();
    let failed: Vec<String> = network
        .client
        .run(|| {
            let threads: Vec<_> = callers.into_iter().map(std::thread::spawn).collect();
            let failed = threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap());
            failed.collect()
        })
        .unwrap();
    let mut counts = BTreeMap::new();
    for error in failed {
        *counts.entry(error).or_insert(0) += 1;
    }
    counts
}

/// A server that sends every byte back.
pub struct Echo {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Echo {
    pub fn start(network: &Network) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..PORTS).flat_map(|number| {
            let listener = network.listen(PORT + number);
            // Several threads, because each serves one connection at a time.
            [listener.try_clone().unwrap(), listener]
        });
        let threads = threads.map(|listener| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                listener.set_nonblocking(true).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept() {
                        // If the client resets the connection, this ends with an error.
                        Ok((stream, _)) => drop(echo(stream)),
                        Err(_) => wait_for(&listener),
                    }
                }
            })
        });
        let threads = threads.collect();
        Self { stop, threads }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn wait_for(listener: &TcpListener) {
    let mut descriptors = [PollFd::new(listener, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    poll(&mut descriptors, Some(&limit)).unwrap();
}

fn echo(stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut stream = bounded(stream);
    let mut byte = [0; 1];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}
