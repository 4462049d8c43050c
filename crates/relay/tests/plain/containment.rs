//! A panic in a thread resets the sessions of this thread, and of no other. The thread continues.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Decision, Handshake, KnowledgeParts, Policy, Request, SessionId, SessionSample,
    SessionSettings, Start,
};
use midspan_relay::access::AccessRules;
use midspan_relay::{Language, Listener, Negotiation, Relay, Settings};
use midspan_units::{Time, TimeSpan};
use socket2::{Domain, Socket, Type};

use crate::support::*;

/// A client for which the policy panics, as for all clients of its network.
pub const FATAL: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);

/// Each connection to this port is fatal.
const FATAL_PORT: u16 = 9;

/// A policy that panics at the start of one client's session, for one port, and once at a sample.
#[derive(Clone, Default)]
pub struct Fatal {
    pub at_next_sample: Arc<AtomicBool>,
    /// Sessions that it has forgotten.
    lost: Arc<AtomicUsize>,
}

impl Policy for Fatal {
    fn admit(&mut self, _: Time, request: &Request) -> Admission {
        assert!(request.server.port() != FATAL_PORT, "a planted fault");
        Admission::Intercept {
            handshake: Handshake::Early,
            connect_timeout: None,
        }
    }

    fn start(
        &mut self,
        _: Time,
        request: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        let is_fatal = matches!(request.client.ip(), IpAddr::V4(of) if of.octets()[1] == 66);
        assert!(!is_fatal, "a planted fault");
        Start::default()
    }

    fn sample(&mut self, _: Time, _: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        let is_fatal = self.at_next_sample.swap(false, Ordering::Relaxed);
        assert!(!is_fatal, "a planted fault");
        Decision::default()
    }

    fn lose(&mut self, _: SessionId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(TimeSpan::from_milliseconds(20))
    }
}

/// A relay with a policy that panics, and a copy of the policy, which makes it panic at the next sample.
pub fn fatal_bench(threads: usize) -> (Bench, Fatal) {
    let settings = Settings {
        threads,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let listener = listener(&settings, to, SessionSettings::default());
    let address = local_address(&listener);
    let policy = Fatal::default();
    let relay = Relay::start_with(&settings, vec![listener], |_| Box::new(policy.clone()));
    let bench = Bench {
        relay: relay.unwrap(),
        address,
        server,
    };
    (bench, policy)
}

/// Connects from this address.
fn connect_from(to: SocketAddr, client: Ipv4Addr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let own = SocketAddr::from((client, 0));
    socket.bind(&own.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    bounded(TcpStream::from(socket))
}

/// A client for which the policy panics connects, and is reset.
pub fn plant(at: SocketAddr, client: Ipv4Addr) {
    let mut client = connect_from(at, client);
    assert!(client.read(&mut [0]).map_or(true, |count| count == 0));
}

fn carries(client: &mut TcpStream, server: &mut TcpStream) -> bool {
    let mut byte = [0];
    client.write_all(b"b").is_ok() && server.read_exact(&mut byte).is_ok() && byte == *b"b"
}

#[test]
fn the_thread_serves_new_connections() {
    let (bench, policy) = fatal_bench(1);
    let (mut client, mut server) = bench.pair();
    assert!(carries(&mut client, &mut server));
    plant(bench.address, FATAL);
    let begin = Instant::now();
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset));
    assert_eq!(read_all(&mut server), (Vec::new(), Ending::Reset));
    let (mut client, mut server) = bench.pair();
    assert!(carries(&mut client, &mut server));
    println!("a session {:?} after the panic", begin.elapsed());
    let now = bench.statistics();
    assert_eq!((now.panics, now.threads_running), (1, 1));
    assert_eq!((now.sessions_active, now.sessions_reset), (1, 1));
    // The policy has nothing of the session that has been reset.
    assert_eq!(policy.lost.load(Ordering::Relaxed), 1);
    drop((client, server));
    bench.wait_for("all ended", |now| now.sessions_active == 0);
    let memory = bench.relay.observer().memory();
    assert_eq!((memory.used, memory.reserved), (0, 0), "{memory:?}");
}

/// All clients behind one address may be meant, so they are served.
#[test]
fn the_same_client_is_relayed_without_mechanisms_to_the_same_server() {
    let (bench, policy) = fatal_bench(1);
    plant(bench.address, FATAL);
    for _ in 0..3 {
        let (mut client, mut server) = (connect_from(bench.address, FATAL), bench.accept());
        assert!(carries(&mut client, &mut server));
    }
    let now = bench.statistics();
    assert_eq!((now.panics, now.sessions_plain), (1, 3));
    // The session whose sample panics is suspected too.
    let (mut client, mut server) = bench.pair();
    policy.at_next_sample.store(true, Ordering::Relaxed);
    let _ = carries(&mut client, &mut server);
    bench.wait_for("a panic", |now| now.panics == 2);
    // A plain session gets no sample, and leaves nothing when it ends.
    policy.at_next_sample.store(true, Ordering::Relaxed);
    let samples = bench.statistics().samples;
    let (mut client, mut server) = bench.pair();
    for _ in 0..5 {
        assert!(carries(&mut client, &mut server));
        std::thread::sleep(Duration::from_millis(20));
    }
    drop((client, server));
    bench.wait_for("ended", |now| now.sessions_active == 0);
    let now = bench.statistics();
    assert_eq!((now.panics, now.sessions_plain), (2, 4));
    assert_eq!((now.samples, now.refused_suspects), (samples, 0));
}

#[test]
fn a_client_is_refused_when_a_plain_session_has_failed_too() {
    let (bench, _) = fatal_bench(1);
    let server = bench.server.local_addr().unwrap();
    let suspect = Request {
        client: (FATAL, 1).into(),
        server,
    };
    let (_, clock) = bench.relay.learned();
    bench.relay.suspects().note(clock.now(), &suspect, true);
    plant(bench.address, FATAL);
    bench.wait_for("a refusal", |now| now.refused_suspects == 1);
    assert_eq!(bench.statistics().panics, 0);
    // Other clients of the listener are served.
    let (mut client, mut server) = bench.pair();
    assert!(carries(&mut client, &mut server));
}

#[test]
fn sessions_of_other_threads_go_on() {
    let (bench, policy) = fatal_bench(2);
    let mut pairs: Vec<_> = (0..32).map(|_| bench.pair()).collect();
    bench.wait_for("all are counted", |now| now.sessions_active == 32);
    policy.at_next_sample.store(true, Ordering::Relaxed);
    // Samples follow data. The session with the panic may be any of them.
    for (client, server) in &mut pairs {
        let _ = carries(client, server);
    }
    bench.wait_for("a panic", |now| now.panics == 1);
    // The panic is counted before its sessions are reset. A thread that recovers carries nothing.
    let alive = pairs
        .iter_mut()
        .filter_map(|(client, server)| carries(client, server).then_some(()))
        .count();
    assert!((1..32).contains(&alive), "{alive} of 32 sessions go on");
    bench.wait_for("the others are reset", |now| {
        now.sessions_reset == 32 - alive as u64
    });
    assert_eq!(bench.statistics().threads_running, 2);
}

#[test]
fn a_thread_that_panics_without_end_ends() {
    let (bench, _) = fatal_bench(1);
    for panics in 1..=10 {
        plant(bench.address, Ipv4Addr::new(127, 66, 0, panics));
        bench.wait_for("the panic", |now| now.panics == u64::from(panics));
        assert_eq!(bench.statistics().threads_running, 1);
    }
    plant(bench.address, Ipv4Addr::new(127, 66, 0, 11));
    bench.wait_for("the end", |now| now.threads_running == 0);
}

/// A relay whose clients name the server by SOCKS5, and the address at which it listens.
fn socks5_bench() -> Bench {
    let settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let mut open = listener(&settings, to, SessionSettings::default());
    let address = local_address(&open);
    let negotiation = Negotiation {
        language: Language::Socks5,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: None,
        as_clients: None,
    };
    open.listener = Listener {
        listen: Some(address),
        ..Listener::new("test", negotiation.into())
    };
    let relay = Relay::start_with(&settings, vec![open], |_| Box::new(Fatal::default()));
    Bench {
        relay: relay.unwrap(),
        address,
        server,
    }
}

/// Requests a port of 127.0.0.1; returns the reply, as far as there is one.
fn request(bench: &Bench, port: u16) -> Option<u8> {
    let mut client = bench.connect();
    // A client that is refused may be reset before it has sent anything.
    client.write_all(b"\x05\x01\x00").ok()?;
    client.read_exact(&mut [0; 2]).ok()?;
    let [high, low] = port.to_be_bytes();
    client
        .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low])
        .ok()?;
    let mut reply = [0; 2];
    client.read_exact(&mut reply).ok()?;
    Some(reply[1])
}

#[test]
fn a_negotiation_is_suspected_by_its_server() {
    let bench = socks5_bench();
    // The first fault, and the one of a plain connection.
    for panics in 1..=2 {
        assert_eq!(request(&bench, FATAL_PORT), None);
        bench.wait_for("a panic", |now| now.panics == panics);
    }
    for _ in 0..3 {
        // Not allowed by the rules.
        assert_eq!(request(&bench, FATAL_PORT), Some(2));
    }
    assert_eq!(bench.statistics().panics, 2);
    // Other servers are served.
    let port = bench.server.local_addr().unwrap().port();
    assert_eq!(request(&bench, port), Some(0));
}

#[test]
fn a_negotiation_without_a_server_is_suspected_by_its_listener() {
    let bench = socks5_bench();
    let port = bench.server.local_addr().unwrap().port();
    assert_eq!(request(&bench, port), Some(0));
    let suspect = Request {
        client: "127.0.0.1:1".parse().unwrap(),
        server: bench.address,
    };
    let (_, clock) = bench.relay.learned();
    let note = |is_plain| {
        let suspects = bench.relay.suspects();
        suspects.note(clock.now(), &suspect, is_plain);
    };
    // A negotiation has no plain form. The next one that fails counts as one.
    note(false);
    assert_eq!(request(&bench, port), Some(0));
    note(true);
    assert_eq!(request(&bench, port), None);
    bench.wait_for("a refusal", |now| now.refused_suspects == 1);
}
