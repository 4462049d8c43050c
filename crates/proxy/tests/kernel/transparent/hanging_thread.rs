//! A thread of the relay that hangs: the others decide about new connections, and serve them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::support::*;
use crate::common::held_thread::HeldThread;

/// A client whose SYN is lost repeats it after 1 s.
const AT_ONCE: Duration = Duration::from_millis(900);
/// More than the other thread keeps for itself while both make turns.
const SESSIONS: usize = 24;

#[kernel_test]
fn new_connections_do_not_wait_for_a_thread_that_hangs() {
    let network = Network::new();
    let far = network.listen(PORT);
    for listener in [TRANSPARENT.to_owned(), early()] {
        let text = format!("[interception]\nwatchdog_timeout = \"1 h\"\n{listener}");
        let midspan = Midspan::ready(&network.gateway, &text);
        for thread in ["relay 0", "relay 1"] {
            let held = HeldThread::hold(midspan.status().relay_pid, thread);
            let is_late = || {
                let late = midspan.status().late_threads;
                late.iter().any(|late| late.thread == thread)
            };
            wait_until("late", is_late);
            let mut sessions = Vec::new();
            for (server, _) in BOTH.repeat(SESSIONS / BOTH.len()) {
                let start = Instant::now();
                let mut near = network.connect(server, PORT).unwrap();
                let (mut served, _) = accept(&far);
                echoes(&mut near, &mut served);
                let after = start.elapsed();
                assert!(after < AT_ONCE, "{after:?}: {}", midspan.log());
                sessions.push((near, served));
            }
            assert_eq!(network.taken(PORT), SESSIONS, "{}", midspan.log());
            for (near, _) in sessions {
                abort(near);
            }
            wait_until("closed", || network.taken(PORT) == 0);
            drop(held);
        }
        midspan.stop();
    }
}

/// Whether a session carries a byte.
fn is_alive(near: &mut TcpStream, served: &mut TcpStream) -> bool {
    near.write_all(b"x").is_ok() && served.read(&mut [0]).is_ok_and(|count| count == 1)
}

/// SYNs that are held for a server at once.
const WAITING: usize = 8;

/// The sessions of a stuck thread are reset. A SYN that the thread holds is not lost, although its server
/// answers while the thread is stuck.
#[kernel_test]
fn a_stuck_thread_is_replaced() {
    let network = Network::new();
    let far = network.listen(PORT);
    let text = format!("[interception]\nwatchdog_timeout = \"1 s\"\n{TRANSPARENT}");
    let midspan = Midspan::ready(&network.gateway, &text);
    let relay = midspan.status().relay_pid;
    let session = || {
        let near = network.connect(SERVER, PORT).unwrap();
        (near, accept(&far).0)
    };
    let mut held = Vec::new();
    for (number, thread) in ["relay 0", "relay 1"].into_iter().enumerate() {
        let mut sessions: Vec<_> = (0..SESSIONS).map(|_| session()).collect();
        for (near, served) in &mut sessions {
            echoes(near, served);
        }
        let slow = network.listen(PORT + 1);
        network.filter_port(PORT + 1);
        let clients: Vec<_> = std::thread::scope(|scope| {
            let connect = || network.connect(SERVER, PORT + 1);
            let clients: Vec<_> = (0..WAITING).map(|_| scope.spawn(connect)).collect();
            wait_until("held", || unanswered(&network.gateway, PORT + 1) == WAITING);
            held.push(HeldThread::hold(relay, thread));
            network.unfilter();
            let joined = clients.into_iter().map(|client| client.join().unwrap());
            joined.map(Result::unwrap).collect()
        });
        wait_until("replaced", || {
            midspan.log().matches("a new thread replaces it").count() == number + 1
        });
        assert_eq!(network.taken(PORT + 1), WAITING, "{}", midspan.log());
        let mut served: Vec<_> = clients.iter().map(|_| accept(&slow).0).collect();
        for server in &mut served {
            server.write_all(b"x").unwrap();
        }
        clients.into_iter().for_each(abort);
        drop(slow);
        wait_until("closed", || network.taken(PORT + 1) == 0);
        let alive = sessions
            .iter_mut()
            .filter_map(|(near, served)| is_alive(near, served).then_some(()))
            .count();
        assert!((1..SESSIONS).contains(&alive), "{alive} of {SESSIONS}");
        assert_eq!(network.taken(PORT), alive, "{}", midspan.log());
        for (near, _) in sessions {
            abort(near);
        }
        wait_until("closed", || network.taken(PORT) == 0);
        assert_eq!(midspan.status().relay_pid, relay);
    }
    // The stuck threads continue, and end.
    drop(held);
    wait_until("ended", || {
        midspan.log().matches("goes on, and ends").count() == 2
    });
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| session()).collect();
    for (near, served) in &mut sessions {
        echoes(near, served);
    }
    assert_eq!(network.taken(PORT), SESSIONS, "{}", midspan.log());
    for (near, _) in sessions {
        abort(near);
    }
    midspan.stop();
}
