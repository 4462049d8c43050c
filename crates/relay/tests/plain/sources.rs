//! A thread of the relay serves a source of events of another part of the process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use midspan_policy::{Handshake, Request, SessionSettings};
use midspan_relay::{Arrival, EventSource, ListenerId, NotBegun, Relay, SourceHost, SourceSockets};
use midspan_units::{Time, TimeSpan};
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Socket, Type};

use crate::support::*;

/// Connections with both legs, which the test passes to a thread.
struct Handed {
    wake: Arc<OwnedFd>,
    pairs: Receiver<(OwnedFd, OwnedFd)>,
    listener: ListenerId,
    refused: Arc<AtomicUsize>,
}

impl EventSource for Handed {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn handle(&mut self, host: &mut SourceHost<'_>) {
        while let Ok((client, server)) = self.pairs.try_recv() {
            let request = Request {
                client: any_loopback_port(),
                server: any_loopback_port(),
            };
            let arrival = Arrival::new(request, Handshake::EndToEnd, host.now());
            let begun = host.begin(self.listener, arrival, client, server);
            if begun == Err(NotBegun::NoListener) {
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A connection between two sockets; the first is that of the relay.
fn pair() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    (near.into(), bounded(far))
}

/// A source on the first thread of a relay, with the means to pass connections to it and to count
/// those that it refuses.
struct Source {
    wake: Arc<OwnedFd>,
    sender: Sender<(OwnedFd, OwnedFd)>,
    refused: Arc<AtomicUsize>,
}

impl Source {
    fn new(bench: &Bench, thread: usize, listener: ListenerId) -> Self {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (sender, pairs) = channel();
        let source = Self {
            wake: Arc::new(wake),
            sender,
            refused: Arc::default(),
        };
        let handed = Handed {
            wake: Arc::clone(&source.wake),
            pairs,
            listener,
            refused: Arc::clone(&source.refused),
        };
        assert!(bench.relay.add_source(thread, Box::new(handed)));
        source
    }

    fn hand_over(&self, client: impl Into<OwnedFd>, server: impl Into<OwnedFd>) {
        self.sender.send((client.into(), server.into())).unwrap();
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).unwrap();
    }

    fn wait_for_refusal(&self) {
        assert!(eventually(|| self.refused.load(Ordering::SeqCst) == 1));
    }
}

#[test]
fn a_connection_that_a_source_hands_over_becomes_a_session() {
    let bench = bench_with(settings(), SessionSettings::default());
    let ids: Vec<ListenerId> = Relay::first_listeners(2).collect();
    for (thread, (listener, is_known)) in [(ids[0], true), (ids[1], false)].into_iter().enumerate()
    {
        let source = Source::new(&bench, thread, listener);
        let ((near_client, mut client), (near_server, mut server)) = (pair(), pair());
        source.hand_over(near_client, near_server);
        if is_known {
            client.write_all(b"to the server").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(
                read_all(&mut server),
                (b"to the server".to_vec(), Ending::Clean)
            );
            server.write_all(b"to the client").unwrap();
            drop(server);
            assert_eq!(
                read_all(&mut client),
                (b"to the client".to_vec(), Ending::Clean)
            );
            bench.wait_for("closed", |now| now.sessions_closed == 1);
        } else {
            source.wait_for_refusal();
            assert_eq!(
                client.read(&mut [0]).unwrap_err().kind(),
                std::io::ErrorKind::ConnectionReset
            );
        }
    }
    let now = bench.statistics();
    assert_eq!((now.sessions_opened, now.option_errors), (1, 0));
}

/// A socket that is not one of TCP refuses its options. They are counted for a connection that
/// becomes a session, and for one that is refused.
#[test]
fn refused_options_of_connections_from_a_source_are_counted() {
    let bench = bench();
    let ids: Vec<ListenerId> = Relay::first_listeners(2).collect();
    for (thread, listener) in ids.into_iter().enumerate() {
        let source = Source::new(&bench, thread, listener);
        let (near, _far) = UnixStream::pair().unwrap();
        source.hand_over(near, pair().0);
        match thread {
            0 => bench.wait_for("begun", |now| now.sessions_opened == 1),
            _ => source.wait_for_refusal(),
        }
        assert_eq!(bench.statistics().option_errors, thread as u64 + 1);
    }
}

/// A source that is never readable; it is called at its deadline, three times.
struct Clocked {
    descriptor: OwnedFd,
    deadline: Option<Time>,
    calls: Arc<AtomicUsize>,
}

impl EventSource for Clocked {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn handle(&mut self, host: &mut SourceHost<'_>) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let next = host.now() + TimeSpan::from_milliseconds(20);
        self.deadline = (calls < 3).then_some(next);
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }
}

#[test]
fn a_source_is_called_at_its_deadline() {
    let bench = bench();
    let calls = Arc::new(AtomicUsize::new(0));
    let source = Clocked {
        descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
        deadline: Some(Time::ZERO),
        calls: Arc::clone(&calls),
    };
    assert!(bench.relay.add_source(1, Box::new(source)));
    assert!(eventually(|| calls.load(Ordering::SeqCst) == 3));
    // There is no such thread.
    let descriptor = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let source = Clocked {
        descriptor,
        deadline: None,
        calls,
    };
    assert!(!bench.relay.add_source(2, Box::new(source)));
}

/// A source that connects to a server, and is over when its socket is connected or has failed.
struct Calling {
    called: Arc<AtomicU64>,
    descriptor: OwnedFd,
    server: SocketAddr,
    number: u64,
    /// Dropped last.
    socket: Option<OwnedFd>,
}

impl EventSource for Calling {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn begin(&mut self, sockets: SourceSockets) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&self.server.into());
        let socket = OwnedFd::from(socket);
        sockets.watch(&socket, self.number).unwrap();
        self.socket = Some(socket);
    }

    fn handle(&mut self, _: &mut SourceHost<'_>) {
        panic!("its own descriptor is never readable");
    }

    fn handle_socket(&mut self, number: u64, _: &mut SourceHost<'_>) {
        let socket = self.socket.as_ref().unwrap();
        assert!(rustix::net::getpeername(socket).is_ok());
        self.called.store(number, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.called.load(Ordering::SeqCst) != 0
    }
}

/// When the source is over, the thread drops it, and its sockets are closed. The next source gets
/// the same place.
#[test]
fn a_source_has_further_sockets_and_an_end() {
    let bench = bench();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for number in [1, 77, (1 << 48) - 1] {
        let called = Arc::new(AtomicU64::new(0));
        let source = Calling {
            descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            server: listener.local_addr().unwrap(),
            socket: None,
            number,
            called: Arc::clone(&called),
        };
        assert!(bench.relay.add_source(0, Box::new(source)));
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        assert_eq!(called.load(Ordering::SeqCst), number);
        assert_eq!(Arc::strong_count(&called), 1);
    }
}

/// A source whose descriptor other threads have too; it counts its calls.
struct Shared {
    descriptor: OwnedFd,
    calls: Arc<AtomicUsize>,
}

impl EventSource for Shared {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn handle(&mut self, _: &mut SourceHost<'_>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_event_of_a_shared_descriptor_reaches_a_thread() {
    let bench = bench();
    let shared = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    for thread in 0..2 {
        let source = Shared {
            descriptor: shared.try_clone().unwrap(),
            calls: Arc::clone(&calls),
        };
        assert!(bench.relay.add_source(thread, Box::new(source)));
    }
    assert!(
        bench
            .relay
            .wait_for_updates(std::time::Duration::from_secs(5))
    );
    for _ in 0..50 {
        let before = calls.load(Ordering::SeqCst);
        rustix::io::write(&shared, &1_u64.to_ne_bytes()).unwrap();
        assert!(eventually(|| calls.load(Ordering::SeqCst) > before));
    }
}

/// A source whose calls panic for as long as it has not recovered; it counts the calls after that.
struct Faulty {
    descriptor: OwnedFd,
    recovered: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl EventSource for Faulty {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn handle(&mut self, _: &mut SourceHost<'_>) {
        let has_recovered = self.recovered.load(Ordering::SeqCst) > 0;
        assert!(has_recovered, "a planted fault");
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn recover(&mut self) {
        self.recovered.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn all_sources_of_a_thread_recover_from_a_panic() {
    let bench = bench();
    let make = |value, recovered: &Arc<AtomicUsize>| {
        let source = Faulty {
            descriptor: eventfd(value, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            recovered: Arc::clone(recovered),
            calls: Arc::default(),
        };
        let calls = Arc::clone(&source.calls);
        assert!(bench.relay.add_source(0, Box::new(source)));
        calls
    };
    let all: [Arc<AtomicUsize>; 2] = Default::default();
    let quiet = make(0, &all[0]);
    let readable = make(1, &all[1]);
    // The thread calls each source once after the panic.
    assert!(eventually(|| {
        [&quiet, &readable]
            .iter()
            .all(|calls| calls.load(Ordering::SeqCst) > 0)
    }));
    assert_eq!(
        all.map(|recovered| recovered.load(Ordering::SeqCst)),
        [1, 1]
    );
    let now = bench.statistics();
    assert_eq!((now.panics, now.threads_running), (1, 2));
}
