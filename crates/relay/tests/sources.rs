//! A thread of the relay serves a source of events of another part of the process.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use midspan_policy::{Handshake, Request, SessionSettings};
use midspan_relay::{Arrival, EventSource, ListenerId, NotBegun, Relay, SourceHost};
use midspan_units::{Time, TimeSpan};
use rustix::event::{EventfdFlags, eventfd};

use support::*;

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
