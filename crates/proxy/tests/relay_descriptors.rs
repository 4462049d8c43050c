//! Running out of descriptors. Alone in its program, since the limit is the whole process's.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod relay_support;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use relay_support::*;

#[test]
fn accepting_pauses_without_descriptors_and_old_sessions_live() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let mut echo = || {
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        server.write_all(b"y").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    echo();
    let callers: Vec<_> = (0..10)
        .map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap())
        .collect();
    let old = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(3),
            maximum: old.maximum,
        },
    )
    .unwrap();
    for caller in &callers {
        // The kernel answers; the relay cannot take it.
        caller.connect(&bench.address.into()).unwrap();
    }
    bench.wait_for("accepting pauses", |now| now.accept_pauses > 0);
    echo();
    thread::sleep(Duration::from_millis(500));
    let now = bench.statistics();
    // Two threads that try ten times a second, not thousands of times.
    assert!(now.accept_errors <= 40, "{now:?}");
    assert_eq!(now.sessions_active, 1);
    echo();
    setrlimit(Resource::Nofile, old).unwrap();
    bench.wait_for("all are accepted", |now| now.sessions_active == 11);
    let mut accepted: Vec<_> = callers.iter().map(|_| bench.accept()).collect();
    for server in &mut accepted {
        server.write_all(b"welcome").unwrap();
    }
    for caller in callers {
        bounded(caller.into()).read_exact(&mut [0; 7]).unwrap();
    }
    echo();
}
