//! A process without free descriptors. The limit applies to the whole process, so each test has a
//! process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use midspan_testbed::kernel_test;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::support::*;

#[kernel_test]
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
        // The kernel completes the handshake; the relay cannot accept the connection.
        caller.connect(&bench.address.into()).unwrap();
    }
    bench.wait_for("accepting pauses", |now| now.accept_pauses > 0);
    echo();
    thread::sleep(Duration::from_millis(500));
    let now = bench.statistics();
    // Two threads try ten times per second, not thousands of times.
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

/// The relay has a descriptor in reserve, with which it resets new connections at once.
#[kernel_test]
fn new_sessions_are_shed_without_descriptors_and_old_ones_complete() {
    let bench = bench();
    let sessions: Vec<_> = (0..4).map(|_| bench.pair()).collect();
    let callers: Vec<_> = (0..20)
        .map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap())
        .collect();
    let highest = std::fs::read_dir("/proc/self/fd").unwrap();
    let highest = highest
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok())
        .max()
        .unwrap();
    let old = getrlimit(Resource::Nofile);
    let low = Rlimit {
        current: Some(highest),
        maximum: old.maximum,
    };
    setrlimit(Resource::Nofile, low).unwrap();
    // Opens files until the limit is reached.
    let mut fill = Vec::new();
    while let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, None) {
        fill.push(socket);
    }
    let data = Pattern::new(3).bytes(8_000_000);
    // A session that ends frees descriptors, so none ends before every new client has got its
    // reset.
    let all_told = Barrier::new(sessions.len() + 1);
    let mut reset_or_served = false;
    thread::scope(|scope| {
        for (client, mut server) in sessions {
            let (data, all_told) = (&data, &all_told);
            scope.spawn(move || send_and_finish(client, data, 3));
            scope.spawn(move || {
                all_told.wait();
                let (received, ending) = read_all(&mut server);
                assert_same(&received, data);
                assert_eq!(ending, Ending::Clean);
            });
        }
        for caller in &callers {
            caller.connect(&bench.address.into()).unwrap();
        }
        // A pipe that returns to the pool makes room for one more session.
        reset_or_served = eventually(|| {
            let now = bench.statistics();
            now.shed_descriptors + now.sessions_active == 20 + 4
        });
        all_told.wait();
    });
    let now = bench.statistics();
    println!("{now:?}");
    assert!(reset_or_served && now.shed_descriptors > 0, "{now:?}");
    setrlimit(Resource::Nofile, old).unwrap();
    drop(fill);
    let served = 20 - now.shed_descriptors;
    for _ in 0..served {
        bench.accept().write_all(b"welcome").unwrap();
    }
    let welcome = callers.into_iter().map(|caller| {
        let (received, ending) = read_all(&mut bounded(caller.into()));
        (received == b"welcome").then_some(ending)
    });
    let welcome = welcome.filter(|it| *it == Some(Ending::Clean)).count();
    assert_eq!(welcome as u64, served);
    let (mut client, mut server) = bench.pair();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
}
