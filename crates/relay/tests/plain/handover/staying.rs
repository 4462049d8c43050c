//! Sessions that stay where they are, because something has failed.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use midspan_handover::{FromPredecessor, FromSuccessor};
use midspan_linux::descriptor_passing::{self, Message};
use midspan_relay::{HandoverError, Listener, OpenListener, Predecessor, Relay, handover_pair};

use super::{carry, check_all, move_all, send_until};
use crate::support::*;

/// Where the connection between two relays breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// In the middle of the listeners.
    Listeners,
    /// When the successor is ready, and the predecessor does not have this answer yet.
    Ready,
    /// When some sessions have moved, and the successor has others and has not answered.
    Sessions,
}

pub(super) fn receive(from: &OwnedFd) -> Message {
    descriptor_passing::receive(from).unwrap().unwrap()
}

pub(super) fn send(to: &OwnedFd, message: &Message) {
    let descriptors: Vec<BorrowedFd<'_>> = message.descriptors.iter().map(AsFd::as_fd).collect();
    descriptor_passing::send(to, &message.bytes, &descriptors).unwrap();
}

/// Passes messages on between both relays, and removes a descriptor of the first message with sessions. Returns how many
/// sessions this message has.
fn take_a_descriptor_away(predecessor: &OwnedFd, successor: &OwnedFd) -> u64 {
    send(predecessor, &receive(successor));
    let mut damaged = 0;
    let mut threads_left = 0;
    loop {
        let mut message = receive(predecessor);
        let has_answer = match FromPredecessor::decode(&message.bytes).unwrap() {
            FromPredecessor::Check => true,
            FromPredecessor::Go { threads, .. } => {
                threads_left = threads;
                false
            }
            FromPredecessor::Sessions(batch) => {
                if damaged == 0 {
                    message.descriptors.pop();
                    damaged = batch.sessions.len() as u64;
                }
                true
            }
            FromPredecessor::End { .. } => {
                threads_left -= 1;
                threads_left == 0
            }
            _ => false,
        };
        send(successor, &message);
        if has_answer {
            send(predecessor, &receive(successor));
            if damaged > 0 && threads_left == 0 {
                return damaged;
            }
        }
    }
}

/// Passes messages on between both relays, until the connection breaks.
fn pass_on(predecessor: &OwnedFd, successor: &OwnedFd, at: Break) {
    send(predecessor, &receive(successor));
    let mut batches = 0;
    loop {
        let message = receive(predecessor);
        match FromPredecessor::decode(&message.bytes).unwrap() {
            FromPredecessor::Listener { .. } if at == Break::Listeners => return,
            FromPredecessor::Check => {
                send(successor, &message);
                let ready = receive(successor);
                assert_eq!(
                    FromSuccessor::decode(&ready.bytes).unwrap(),
                    FromSuccessor::Ready
                );
                if at == Break::Ready {
                    return;
                }
                send(predecessor, &ready);
            }
            FromPredecessor::Sessions(_) => {
                send(successor, &message);
                let taken = receive(successor);
                assert!(matches!(
                    FromSuccessor::decode(&taken.bytes).unwrap(),
                    FromSuccessor::Taken { .. }
                ));
                batches += 1;
                if batches == 2 {
                    return;
                }
                send(predecessor, &taken);
            }
            _ => send(successor, &message),
        }
    }
}

/// Lets a relay hand over to another one, through something between them. Both relays' results, the other relay, and
/// what happened between them.
pub(super) fn hand_over_through<T: Send>(
    bench: &Bench,
    mut new: Relay,
    between: impl FnOnce(&OwnedFd, &OwnedFd) -> T + Send,
) -> (
    Result<u64, HandoverError>,
    Result<u64, HandoverError>,
    Relay,
    T,
) {
    let (here, near) = handover_pair().unwrap();
    let (far, there) = handover_pair().unwrap();
    let successor = bench.relay.greet_successor(here).unwrap();
    send(&far, &receive(&near));
    let predecessor = Predecessor::meet(there, DEADLINE).unwrap();
    thread::scope(|scope| {
        let taking = scope.spawn(move || {
            let taken = new.take_over(&predecessor, Vec::new(), DEADLINE);
            let taken = taken.and_then(|taken| new.take_sessions(taken.sessions, DEADLINE));
            (new, taken)
        });
        let middle = scope.spawn(move || between(&near, &far));
        let handed = bench.relay.hand_over(&successor, DEADLINE);
        let between = middle.join().unwrap();
        let (new, taken) = taking.join().unwrap();
        (handed, taken, new, between)
    })
}

/// A relay without listeners of its own.
fn successor() -> Relay {
    Relay::start(&settings(), Vec::new()).unwrap()
}

/// A relay with this many sessions, and the ends of the sessions.
fn with_sessions(count: u64) -> (Bench, Vec<(TcpStream, TcpStream)>) {
    let bench = bench();
    let pairs = (0..count).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == count);
    (bench, pairs)
}

/// Both relays have an error, and the sessions stay where they are, with all their data.
fn break_at(at: Break) {
    let (bench, mut pairs) = with_sessions(200);
    let (busy_client, busy_server) = bench.pair();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let from = busy_client.try_clone().unwrap();
        let sent = scope.spawn(|| send_until(from, 21, &stop));
        let received = scope.spawn(|| check_all(busy_server.try_clone().unwrap(), 21));
        bench.wait_for("data flows", |now| now.bytes_to_server > 1_000_000);
        let (handed, taken, new, ()) =
            hand_over_through(&bench, successor(), |near, far| pass_on(near, far, at));
        let errors = [handed.unwrap_err(), taken.unwrap_err()];
        assert!(
            errors
                .iter()
                .all(|error| matches!(error, HandoverError::Ended)),
            "{errors:?}"
        );
        assert_eq!(new.statistics().sessions_taken_over, 0);
        new.stop();
        for (seed, (client, server)) in (1..).zip(&mut pairs) {
            carry(client, server, seed);
        }
        // Clients still reach it.
        let (mut client, mut server) = bench.pair();
        carry(&mut client, &mut server, 22);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(sent.join().unwrap(), received.join().unwrap());
        busy_server.shutdown(Shutdown::Write).unwrap();
    });
    bench.wait_for("two have ended", |now| now.sessions_closed == 2);
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
fn sessions_stay_if_the_connection_breaks_between_listeners() {
    break_at(Break::Listeners);
}

#[test]
fn sessions_stay_if_the_connection_breaks_when_all_is_ready() {
    break_at(Break::Ready);
}

/// Those that the successor handles continue there, and the others in the predecessor. Those that the successor has
/// perhaps begun to handle are reset.
#[test]
fn a_connection_that_breaks_between_sessions_costs_those_without_an_answer() {
    const SESSIONS: u64 = 1000;
    let (bench, mut pairs) = with_sessions(SESSIONS);
    let (handed, taken, new, ()) = hand_over_through(&bench, successor(), |near, far| {
        pass_on(near, far, Break::Sessions)
    });
    let handed = handed.unwrap();
    assert!(matches!(taken.unwrap_err(), HandoverError::Ended));
    bench.wait_for("some are reset", |now| now.sessions_reset > 0);
    let old = bench.statistics();
    assert_eq!(old.sessions_handed_over, handed);
    assert_eq!(
        old.sessions_active + handed + old.sessions_reset,
        SESSIONS,
        "{old:?}"
    );
    // As if the process of the successor had ended, except for the sessions that it has.
    let lost = bench.relay.observer().listeners()["test"].ended
        [midspan_relay::observation::Ending::LostInUpgrade.index()];
    assert_eq!(lost, old.sessions_reset);
    assert!((1..=250).contains(&lost), "{lost}");
    let has_more = new.statistics().sessions_taken_over;
    assert!(has_more >= handed, "{has_more} of {handed}");
    new.stop();
    let mut continued = 0;
    for (seed, (client, server)) in (1..).zip(&mut pairs) {
        if client.set_nonblocking(true).is_ok()
            && matches!(client.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        {
            client.set_nonblocking(false).unwrap();
            carry(client, server, seed);
            continued += 1;
        }
    }
    assert_eq!(continued, old.sessions_active);
}

/// Sessions of a message that the successor cannot use stay, and the others move.
#[test]
fn sessions_stay_if_the_successor_cannot_use_their_message() {
    const SESSIONS: u64 = 600;
    let (bench, mut pairs) = with_sessions(SESSIONS);
    let (handed, taken, new, damaged) =
        hand_over_through(&bench, successor(), take_a_descriptor_away);
    assert!(damaged > 0);
    assert_eq!(handed.unwrap(), SESSIONS - damaged);
    assert_eq!(taken.unwrap(), SESSIONS - damaged);
    let (old, next) = (bench.statistics(), new.statistics());
    assert_eq!((old.sessions_active, old.sessions_reset), (damaged, 0));
    assert_eq!(
        (next.sessions_active, next.sessions_reset),
        (SESSIONS - damaged, 0)
    );
    for (seed, (client, server)) in (1..).zip(&mut pairs) {
        carry(client, server, seed);
    }
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
    let welcome = FromSuccessor::Welcome { version: 2 }.encode().unwrap();
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
            new.take_over(&predecessor, listeners, DEADLINE).map(drop)
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
