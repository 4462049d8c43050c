//! Sessions that stay where they are, because something has failed.

use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use midspan_handover::{FromPredecessor, FromSuccessor};
use midspan_linux::descriptor_passing::{self, Message};
use midspan_relay::{HandoverError, Listener, OpenListener, Predecessor, Relay, handover_pair};

use super::{carry, check_all, move_all, send_until, wait};
use crate::support::*;

/// Where the connection between two relays breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// In the middle of the sessions.
    Sessions,
    /// Before the message that all sessions were sent.
    End,
    /// When the successor is ready, and the predecessor does not have this answer yet.
    Ready,
}

fn receive(from: &OwnedFd) -> Message {
    descriptor_passing::receive(from).unwrap().unwrap()
}

fn send(to: &OwnedFd, message: &Message) {
    let descriptors: Vec<BorrowedFd<'_>> = message.descriptors.iter().map(AsFd::as_fd).collect();
    descriptor_passing::send(to, &message.bytes, &descriptors).unwrap();
}

/// Passes messages on from the predecessor to the successor, until the connection breaks.
fn pass_on(predecessor: &OwnedFd, successor: &OwnedFd, at: Break) {
    send(predecessor, &receive(successor));
    let mut batches = 0;
    loop {
        let message = receive(predecessor);
        match FromPredecessor::decode(&message.bytes).unwrap() {
            FromPredecessor::Sessions(_) => batches += 1,
            FromPredecessor::End { .. } if at == Break::End => return,
            FromPredecessor::End { .. } => {
                send(successor, &message);
                let ready = FromSuccessor::decode(&receive(successor).bytes).unwrap();
                assert!(matches!(ready, FromSuccessor::Ready { .. }), "{ready:?}");
                return;
            }
            _ => {}
        }
        // Each of two threads has at least one batch.
        if at == Break::Sessions && batches == 2 {
            return;
        }
        send(successor, &message);
    }
}

/// Both relays have an error, and the sessions stay where they are, with all their data.
fn break_at(at: Break) {
    let bench = bench();
    let mut pairs: Vec<_> = (0..200).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == 200);
    let (busy_client, busy_server) = bench.pair();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let from = busy_client.try_clone().unwrap();
        let sent = scope.spawn(|| send_until(from, 21, &stop));
        let received = scope.spawn(|| check_all(busy_server.try_clone().unwrap(), 21));
        bench.wait_for("data flows", |now| now.bytes_to_server > 1_000_000);
        let (here, near) = handover_pair().unwrap();
        let (far, there) = handover_pair().unwrap();
        let successor = bench.relay.greet_successor(here).unwrap();
        send(&far, &receive(&near));
        let predecessor = Predecessor::meet(there, DEADLINE).unwrap();
        let mut new = Relay::start(&settings(), Vec::new()).unwrap();
        let taking = scope.spawn(move || {
            let error = new
                .take_over(&predecessor, Vec::new(), DEADLINE)
                .unwrap_err();
            (new, error)
        });
        let middle = scope.spawn(move || pass_on(&near, &far, at));
        let error = bench.relay.hand_over(&successor, DEADLINE).unwrap_err();
        assert!(matches!(error, HandoverError::Ended), "{error}");
        middle.join().unwrap();
        let (new, error) = taking.join().unwrap();
        assert!(matches!(error, HandoverError::Ended), "{error}");
        wait(&new, "nothing is left", |now| {
            now.sessions_active == 0 && now.pipes == 0
        });
        new.stop();
        for (seed, (client, server)) in (1..).zip(&mut pairs) {
            carry(client, server, seed);
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(sent.join().unwrap(), received.join().unwrap());
        busy_server.shutdown(Shutdown::Write).unwrap();
    });
    bench.wait_for("one has ended", |now| now.sessions_closed == 1);
    let now = bench.statistics();
    assert_eq!((now.sessions_handed_over, now.sessions_reset), (0, 0));
    // The next successor gets all of them.
    let (new, count) = move_all(&bench.relay);
    assert_eq!(count, 200);
    for (seed, (client, server)) in (1..).zip(&mut pairs) {
        carry(client, server, seed);
    }
    assert_eq!(new.statistics().sessions_reset, 0);
}

#[test]
fn sessions_stay_if_the_connection_breaks_between_them() {
    break_at(Break::Sessions);
}

#[test]
fn sessions_stay_if_the_connection_breaks_before_their_end() {
    break_at(Break::End);
}

#[test]
fn sessions_stay_if_the_connection_breaks_when_all_is_ready() {
    break_at(Break::Ready);
}

#[test]
fn sessions_stay_without_a_common_version_or_an_answer() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    carry(&mut client, &mut server, 1);
    // Of a newer program, which can write no version that this one reads.
    let (newer, there) = handover_pair().unwrap();
    let hello = FromPredecessor::Hello {
        versions: vec![900],
        now: 0,
    };
    descriptor_passing::send(&newer, &hello.encode().unwrap(), &[]).unwrap();
    let error = Predecessor::meet(there, DEADLINE).unwrap_err();
    assert!(
        matches!(&error, HandoverError::Versions(of) if of == &[900]),
        "{error}"
    );
    let refusal = descriptor_passing::receive(&newer).unwrap().unwrap();
    let refusal = FromSuccessor::decode(&refusal.bytes).unwrap();
    assert!(
        matches!(refusal, FromSuccessor::Refused { .. }),
        "{refusal:?}"
    );
    // A relay that refuses, one that requests a version of its own, one that sends nonsense, and one that is silent.
    let refused = FromSuccessor::refused(&"no room").encode().unwrap();
    let unknown = FromSuccessor::Welcome { version: 900 }.encode().unwrap();
    let short = Duration::from_millis(50);
    for (answer, limit) in [
        (Some(refused), DEADLINE),
        (Some(unknown), DEADLINE),
        (Some(b"{\"Welcome\":1}".to_vec()), DEADLINE),
        (None, short),
    ] {
        let (here, there) = handover_pair().unwrap();
        let successor = bench.relay.greet_successor(here).unwrap();
        if let Some(answer) = &answer {
            descriptor_passing::send(&there, answer, &[]).unwrap();
        }
        let error = bench.relay.hand_over(&successor, limit).unwrap_err();
        match (&answer, &error) {
            (None, HandoverError::Late) | (Some(_), HandoverError::OutOfTurn) => {}
            (Some(_), HandoverError::Format(_)) => {}
            (Some(_), HandoverError::Refused(reason)) => assert_eq!(reason, "no room"),
            other => panic!("{other:?}"),
        }
        carry(&mut client, &mut server, 2);
    }
    // One that stops in the middle.
    let (here, there) = handover_pair().unwrap();
    let successor = bench.relay.greet_successor(here).unwrap();
    let welcome = FromSuccessor::Welcome { version: 1 }.encode().unwrap();
    descriptor_passing::send(&there, &welcome, &[]).unwrap();
    let error = bench.relay.hand_over(&successor, short).unwrap_err();
    assert!(matches!(error, HandoverError::Late), "{error}");
    carry(&mut client, &mut server, 3);
    assert_eq!(bench.statistics().sessions_handed_over, 0);
    drop(there);
}

#[test]
fn sessions_stay_if_there_is_no_socket_for_a_listener() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let listener = Listener {
        listen: Some("192.0.2.1:80".parse().unwrap()),
        ..Listener::new("elsewhere", bench.address.into())
    };
    let (here, there) = handover_pair().unwrap();
    let successor = bench.relay.greet_successor(here).unwrap();
    let predecessor = Predecessor::meet(there, DEADLINE).unwrap();
    let mut new = Relay::start(&settings(), Vec::new()).unwrap();
    thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let listeners = vec![OpenListener::without_sockets(listener)];
            new.take_over(&predecessor, listeners, DEADLINE)
        });
        let error = bench.relay.hand_over(&successor, DEADLINE).unwrap_err();
        assert!(matches!(error, HandoverError::Refused(_)), "{error}");
        let error = taking.join().unwrap().unwrap_err();
        assert!(matches!(error, HandoverError::NoSocket(_)), "{error}");
    });
    carry(&mut client, &mut server, 1);
    let (mut client, mut server) = bench.pair();
    carry(&mut client, &mut server, 2);
}
