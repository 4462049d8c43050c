//! A relay on loopback between real kernel sockets.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use midspan_linux::netlink::Netlink;
use midspan_policy::SessionSettings;
use midspan_relay::{
    HandoverError, Listener, ListenerLimits, OpenListener, Predecessor, Relay, Settings,
    Statistics, handover_pair,
};
use socket2::{Domain, SockRef, Socket, Type};

/// Time limit of everything; a test that hangs fails after this time.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub struct Bench {
    pub relay: Relay,
    pub address: SocketAddr,
    pub server: TcpListener,
}

/// For the network namespace of a kernel test.
pub fn set_up_loopback() {
    Netlink::open().unwrap().set_up("lo").unwrap();
}

/// A relay to a server of the test, with two threads and defaults.
pub fn bench() -> Bench {
    bench_with(settings(), SessionSettings::default())
}

pub fn settings() -> Settings {
    Settings {
        threads: 2,
        ..Settings::default()
    }
}

pub fn bench_with(settings: Settings, sessions: SessionSettings) -> Bench {
    bench_limited(settings, sessions, ListenerLimits::default())
}

pub fn bench_limited(
    settings: Settings,
    sessions: SessionSettings,
    limits: ListenerLimits,
) -> Bench {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut listener = listener(&settings, server.local_addr().unwrap(), sessions);
    listener.listener.limits = limits;
    let address = local_address(&listener);
    Bench {
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        address,
        server,
    }
}

/// A listener on the loopback address of `to`'s family.
pub fn listener(settings: &Settings, to: SocketAddr, sessions: SessionSettings) -> OpenListener {
    let mut address = SocketAddr::new(to.ip(), 0);
    let sockets = (0..settings.threads)
        .map(|_| {
            let kind = Type::STREAM.nonblocking();
            let socket = Socket::new(Domain::for_address(address), kind, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1024).unwrap();
            address = socket.local_addr().unwrap().as_socket().unwrap();
            OwnedFd::from(socket)
        })
        .collect();
    let listener = Listener {
        session: sessions,
        ..Listener::new("test", to.into())
    };
    OpenListener { listener, sockets }
}

pub fn local_address(listener: &OpenListener) -> SocketAddr {
    let address = SockRef::from(&listener.sockets[0]).local_addr().unwrap();
    address.as_socket().unwrap()
}

impl Bench {
    pub fn connect(&self) -> TcpStream {
        bounded(TcpStream::connect(self.address).unwrap())
    }

    pub fn accept(&self) -> TcpStream {
        try_accept(&self.server).unwrap_or_else(|error| panic!("{error}: {:?}", self.statistics()))
    }

    /// Both ends of a session.
    pub fn pair(&self) -> (TcpStream, TcpStream) {
        (self.connect(), self.accept())
    }

    pub fn statistics(&self) -> Statistics {
        self.relay.statistics()
    }

    pub fn wait_for(&self, what: &str, condition: impl Fn(&Statistics) -> bool) {
        let holds = eventually(|| condition(&self.statistics()));
        assert!(holds, "{what}: {:?}", self.statistics());
    }
}

/// Another relay with these settings, which has the sessions of this one, and their number. It accepts from listeners of
/// its own, and for `inherited` listeners from the sockets of this relay. Or the error, if the sessions stay.
pub fn move_sessions(
    old: &Relay,
    settings: &Settings,
    own: Vec<OpenListener>,
    inherited: Vec<Listener>,
) -> Result<(Relay, u64), HandoverError> {
    let (here, there) = handover_pair().unwrap();
    let successor = old.greet_successor(here).unwrap();
    let predecessor = Predecessor::meet(there, DEADLINE).unwrap();
    let settings = Settings {
        begins_at: predecessor.now(),
        ..settings.clone()
    };
    let mut new = Relay::start(&settings, own).unwrap();
    let (handed, taken) = std::thread::scope(|scope| {
        let inherited = inherited
            .into_iter()
            .map(OpenListener::without_sockets)
            .collect();
        let new = &mut new;
        let taking = scope.spawn(move || {
            let taken = new.take_over(&predecessor, inherited, DEADLINE)?;
            assert!(taken.listeners.iter().all(Result::is_ok));
            new.take_sessions(taken.sessions, DEADLINE)
        });
        let handed = old.hand_over(&successor, DEADLINE);
        (handed, taking.join().unwrap())
    });
    match (handed, taken) {
        (Ok(count), Ok(taken)) => {
            assert_eq!(taken, count);
            Ok((new, count))
        }
        (Err(error), Err(_)) => Err(error),
        both => panic!("the relays do not agree: {both:?}"),
    }
}

pub fn any_loopback_port() -> SocketAddr {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketAddr::new(
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        free.local_addr().unwrap().port(),
    )
}

/// A stream with time-outs, so that a test fails instead of hanging.
pub fn bounded(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The next connection of a listener, with time-outs. Fails if none comes within the time limit.
pub fn accept_from(listener: &TcpListener) -> TcpStream {
    try_accept(listener).unwrap()
}

fn try_accept(listener: &TcpListener) -> io::Result<TcpStream> {
    SockRef::from(listener).set_read_timeout(Some(DEADLINE))?;
    listener.accept().map(|(stream, _)| bounded(stream))
}

pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// How a stream ended for its reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Clean,
    Reset,
}

/// Reads to the end; returns the data, and how it ended.
pub fn read_all(stream: &mut TcpStream) -> (Vec<u8>, Ending) {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (all, Ending::Clean),
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return (all, Ending::Reset);
            }
            Err(error) => panic!("after {} bytes: {error}", all.len()),
        }
    }
}

/// Closes with an RST instead of a FIN.
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
}

/// Waits for a reset, without reading the data.
pub fn wait_for_reset(stream: &TcpStream) -> bool {
    eventually(|| {
        let error = stream.take_error().unwrap();
        error.is_some_and(|error| error.kind() == ErrorKind::ConnectionReset)
    })
}

/// A stream of bytes that depend on the position and on the seed.
pub struct Pattern {
    state: u64,
}

impl Pattern {
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 32) as u8).collect()
    }

    /// xorshift64
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

/// Writes `data` in pieces of changing size and ends the stream.
pub fn send_and_finish(mut stream: TcpStream, data: &[u8], seed: u64) {
    let mut sizes = Pattern::new(seed);
    let mut rest = data;
    while !rest.is_empty() {
        let limit = [1, 100, 1448, 40_000, 300_000][(sizes.next() % 5) as usize];
        let (piece, after) = rest.split_at(limit.min(rest.len()));
        stream.write_all(piece).unwrap();
        rest = after;
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
}

/// Checks that two slices are equal, without printing megabytes if they are not.
pub fn assert_same(left: &[u8], right: &[u8]) {
    let first = left.iter().zip(right).position(|(a, b)| a != b);
    assert!(
        first.is_none() && left.len() == right.len(),
        "{} and {} bytes, first difference at {first:?}",
        left.len(),
        right.len()
    );
}
