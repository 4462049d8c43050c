//! A thread of the relay serves a source of events of another part of the process.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use midspan_policy::{Handshake, Request, SessionSettings};
use midspan_relay::{Arrival, EventSource, ListenerId, NotBegun, Relay, SourceHost};
use midspan_units::{Time, TimeSpan};
use rustix::event::{EventfdFlags, eventfd};

use support::*;

/// Connections with both legs, which the test passes to a thread.
struct Handed {
    wake: Arc<OwnedFd>,
    pairs: Receiver<(TcpStream, TcpStream)>,
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
                client: client.peer_addr().unwrap(),
                server: server.peer_addr().unwrap(),
            };
            let arrival = Arrival::new(request, Handshake::EndToEnd, host.now());
            let begun = host.begin(self.listener, arrival, client.into(), server.into());
            if begun == Err(NotBegun::NoListener) {
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A connection between two sockets; the first is that of the relay.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, bounded(far))
}

#[test]
fn a_connection_that_a_source_hands_over_becomes_a_session() {
    let bench = bench_with(settings(), SessionSettings::default());
    let ids: Vec<ListenerId> = Relay::first_listeners(2).collect();
    for (thread, (listener, is_known)) in [(ids[0], true), (ids[1], false)].into_iter().enumerate()
    {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let (sender, pairs) = channel();
        let refused = Arc::new(AtomicUsize::new(0));
        let source = Handed {
            wake: Arc::clone(&wake),
            pairs,
            listener,
            refused: Arc::clone(&refused),
        };
        assert!(bench.relay.add_source(thread, Box::new(source)));
        let ((near_client, mut client), (near_server, mut server)) = (pair(), pair());
        sender.send((near_client, near_server)).unwrap();
        rustix::io::write(&wake, &1_u64.to_ne_bytes()).unwrap();
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
            assert!(eventually(|| refused.load(Ordering::SeqCst) == 1));
            assert_eq!(
                client.read(&mut [0]).unwrap_err().kind(),
                std::io::ErrorKind::ConnectionReset
            );
        }
    }
    assert_eq!(bench.statistics().sessions_opened, 1);
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
