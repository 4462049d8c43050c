//! A thread that panics while sessions move loses its own sessions, and the handover ends.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use midspan_handover::FromPredecessor;
use midspan_relay::{Relay, Settings};

use super::carry;
use super::staying::{hand_over_through, receive, send};
use crate::containment::{FATAL, Fatal, fatal_bench, plant};
use crate::support::*;

/// They need several messages.
const SESSIONS: u64 = 1000;
/// Longer than the sampling interval of the policy that panics.
const SAMPLING_TIME: Duration = Duration::from_millis(50);
/// What clients send before the panic.
const DATA: &[u8] = b"d";

/// Passes messages on between a relay with one thread and its successor, until all sessions have moved. When the second
/// message with sessions has come, it calls `plant`.
fn pass_all_on(predecessor: &OwnedFd, successor: &OwnedFd, plant: impl FnOnce()) {
    let mut plant = Some(plant);
    let mut batches = 0;
    send(predecessor, &receive(successor));
    loop {
        let message = receive(predecessor);
        let decoded = FromPredecessor::decode(&message.bytes).unwrap();
        if matches!(decoded, FromPredecessor::Sessions(_)) {
            batches += 1;
            if batches == 2
                && let Some(plant) = plant.take()
            {
                plant();
            }
        }
        send(successor, &message);
        if plant.is_none() {
            // Between two messages, the predecessor serves the sessions that it still has.
            thread::sleep(SAMPLING_TIME);
        }
        let is_end = matches!(decoded, FromPredecessor::End { .. });
        if is_end
            || matches!(
                decoded,
                FromPredecessor::Check | FromPredecessor::Sessions(_)
            )
        {
            send(predecessor, &receive(successor));
        }
        if is_end {
            assert!(plant.is_none(), "all sessions were in {batches} messages");
            return;
        }
    }
}

/// Data passes in all sessions, so each is due for a sample, and the next sample panics.
fn panic_at_next_sample(policy: &Fatal, pairs: &[(TcpStream, TcpStream)]) {
    for (client, _) in pairs {
        let mut client: &TcpStream = client;
        client.write_all(DATA).unwrap();
    }
    policy.at_next_sample.store(true, Ordering::Relaxed);
}

/// How many sessions continue, in which the client has sent this; the others have been reset.
fn continued(pairs: &mut [(TcpStream, TcpStream)], sent: &[u8]) -> u64 {
    let mut continued = 0;
    for (seed, (client, server)) in (1..).zip(pairs) {
        client.set_nonblocking(true).unwrap();
        let state = client.peek(&mut [0]);
        client.set_nonblocking(false).unwrap();
        match state {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut received = vec![0; sent.len()];
                server.read_exact(&mut received).unwrap();
                assert_eq!(received, sent);
                carry(client, server, seed);
                continued += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
            Ok(count) => panic!("{count} bytes from a session without any"),
        }
    }
    continued
}

fn one_thread() -> Settings {
    Settings {
        threads: 1,
        ..settings()
    }
}

/// The sessions that have moved continue.
#[test]
fn a_predecessor_that_panics_loses_the_sessions_that_it_still_has() {
    let (bench, policy) = fatal_bench(1);
    let mut pairs: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == SESSIONS);
    let new = Relay::start(&one_thread(), Vec::new()).unwrap();
    let (handed, taken, new, ()) = hand_over_through(&bench, new, |near, far| {
        pass_all_on(near, far, || panic_at_next_sample(&policy, &pairs));
    });
    let handed = handed.unwrap();
    assert_eq!(taken.unwrap(), handed);
    let old = bench.statistics();
    assert_eq!((old.panics, old.sessions_active), (1, 0));
    assert_eq!(old.sessions_reset + handed, SESSIONS, "{old:?}");
    assert!(0 < handed && handed < SESSIONS, "{handed}");
    assert_eq!(continued(&mut pairs, DATA), handed);
    assert_eq!(new.statistics().sessions_reset, 0);
}

/// Sessions that have not moved yet stay in the predecessor, and continue there.
#[test]
fn a_successor_that_panics_loses_the_sessions_that_it_has() {
    let (bench, _) = fatal_bench(1);
    let mut pairs: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == SESSIONS);
    let (next, _) = fatal_bench(1);
    let (handed, taken, new, ()) = hand_over_through(&bench, next.relay, |near, far| {
        pass_all_on(near, far, || plant(next.address, FATAL));
    });
    let handed = handed.unwrap();
    assert_eq!(taken.unwrap(), handed);
    let (old, next) = (bench.statistics(), new.statistics());
    assert_eq!((old.panics, old.sessions_reset), (0, 0));
    assert_eq!((next.panics, next.sessions_active), (1, 0));
    assert_eq!(next.sessions_reset, handed);
    assert_eq!(old.sessions_active + handed, SESSIONS, "{old:?}");
    assert!(0 < handed && handed < SESSIONS, "{handed}");
    assert_eq!(continued(&mut pairs, b""), old.sessions_active);
}
