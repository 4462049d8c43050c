//! Every byte arrives, once, in order, in both directions, by every method.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use midspan_policy::SessionSettings;
use midspan_relay::{Relay, Settings};
use midspan_units::ByteSize;
use socket2::SockRef;

use crate::support::*;

/// Sends `up` and `down` at once over a new session and checks both, and both ends.
fn exchange(bench: &Bench, up: usize, down: usize, seed: u64) {
    println!("{up} bytes up, {down} bytes down, seed {seed}");
    let (mut client, mut server) = bench.pair();
    let up = Pattern::new(seed).bytes(up);
    let down = Pattern::new(seed + 1).bytes(down);
    thread::scope(|scope| {
        let client_writer = client.try_clone().unwrap();
        let server_writer = server.try_clone().unwrap();
        scope.spawn(|| send_and_finish(client_writer, &up, seed));
        scope.spawn(|| send_and_finish(server_writer, &down, seed + 2));
        let at_client = scope.spawn(|| read_all(&mut client));
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &up);
        assert_eq!(ending, Ending::Clean);
        let (received, ending) = at_client.join().unwrap();
        assert_same(&received, &down);
        assert_eq!(ending, Ending::Clean);
    });
}

/// Below a low-water mark, the kernel does not report data, and here neither an end nor more data follows.
#[test]
fn a_fast_transfer_that_pauses_arrives_completely() {
    const PIECES: usize = 200;
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let piece = Pattern::new(3).bytes(1 << 20);
    for (rest, pause) in [(1, 5), (1000, 0), (100_000, 5), (300_000, 1)] {
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..PIECES).for_each(|_| client.write_all(&piece).unwrap());
                thread::sleep(Duration::from_millis(pause));
                client.write_all(&piece[..rest]).unwrap();
            });
            // A slow comparison would make this a slow transfer.
            let mut received = vec![0; piece.len()];
            for _ in 0..PIECES {
                server.read_exact(&mut received).unwrap();
                assert!(received == piece);
            }
            server.read_exact(&mut received[..rest]).unwrap();
            assert!(received[..rest] == piece[..rest]);
        });
    }
}

const SIZES: [(usize, usize); 7] = [
    (0, 0),
    (1, 0),
    (0, 1),
    (32_768, 32_769),
    (1_000_003, 100),
    (65_536, 5_000_000),
    (20_000_000, 20_000_000),
];

#[test]
fn every_byte_arrives_both_ways_at_once() {
    let bench = bench();
    for (seed, (up, down)) in (1..).zip(SIZES) {
        exchange(&bench, up, down, seed);
    }
    bench.wait_for("all closed in good order", |now| {
        now.sessions_closed == SIZES.len() as u64 && now.pipes_in_use == 0
    });
    let now = bench.statistics();
    let up: usize = SIZES.iter().map(|(up, _)| up).sum();
    let down: usize = SIZES.iter().map(|(_, down)| down).sum();
    assert_eq!(now.bytes_to_server, up as u64);
    assert_eq!(now.bytes_to_client, down as u64);
    assert_eq!(now.bytes_copied + now.bytes_spliced, (up + down) as u64);
    assert!(now.bytes_spliced > 0, "bulk is spliced: {now:?}");
    assert_eq!((now.sessions_active, now.sessions_reset), (0, 0));
}

#[test]
fn without_pipes_bulk_is_copied() {
    let no_pipes = [
        // No pipes are configured.
        (ByteSize::from_bytes(1 << 20), ByteSize::from_bytes(0)),
        // No pipe that the kernel would make: 4 GiB each.
        (ByteSize::from_bytes(1 << 32), ByteSize::from_bytes(1 << 40)),
    ];
    for (pipe_size, pipe_memory) in no_pipes {
        let settings = Settings {
            pipe_size,
            pipe_memory,
            ..settings()
        };
        let bench = bench_with(settings, SessionSettings::default());
        exchange(&bench, 5_000_000, 5_000_000, 11);
        bench.wait_for("closed", |now| now.sessions_closed == 1);
        bench.wait_for("counted", |now| now.pipe_shortages > 0);
        let now = bench.statistics();
        assert_eq!((now.bytes_spliced, now.pipes), (0, 0));
    }
}

#[test]
fn when_pipes_are_short_the_rest_is_copied() {
    let settings = Settings {
        threads: 1,
        pipe_memory: ByteSize::from_bytes(2 << 20),
        ..Settings::default()
    };
    let bench = bench_with(settings, SessionSettings::default());
    let data = Pattern::new(7).bytes(16_000_000);
    let mut sessions: Vec<_> = (0..8).map(|_| bench.pair()).collect();
    thread::scope(|scope| {
        for (client, _) in &sessions {
            let client = client.try_clone().unwrap();
            let data = &data;
            scope.spawn(move || send_and_finish(client, data, 3));
        }
        // No end reads yet, so the first sessions keep their pipes.
        bench.wait_for("pipes run out", |now| {
            now.pipes_in_use == 2 && now.pipe_shortages > 0
        });
        for (_, server) in &mut sessions {
            let (received, ending) = read_all(server);
            assert_same(&received, &data);
            assert_eq!(ending, Ending::Clean);
        }
    });
    bench.wait_for("pipes are given back", |now| now.pipes_in_use == 0);
    let now = bench.statistics();
    assert!(now.bytes_spliced > 0 && now.bytes_copied > 0, "{now:?}");
    assert_eq!(now.pipes, 2);
}

#[test]
fn single_bytes_go_out_at_once() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    // A corked byte waits 200 ms: 1000 of them would exceed the deadline.
    let start = std::time::Instant::now();
    for round in 0..1000_u32 {
        let byte = [(round % 251) as u8];
        let mut received = [0];
        client.write_all(&byte).unwrap();
        server.read_exact(&mut received).unwrap();
        assert_eq!(received, byte);
        server.write_all(&received).unwrap();
        client.read_exact(&mut received).unwrap();
        assert_eq!(received, byte);
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
    bench.wait_for("counted", |now| now.bytes_copied == 2000);
    assert_eq!(bench.statistics().pipes, 0);
}

#[test]
fn a_byte_after_bulk_goes_out_at_once() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let bulk = Pattern::new(5).bytes(300_001);
    let start = std::time::Instant::now();
    for round in 0..150_u8 {
        client.write_all(&bulk).unwrap();
        client.write_all(&[round]).unwrap();
        let mut received = vec![0; bulk.len() + 1];
        server.read_exact(&mut received).unwrap();
        assert_same(&received[..bulk.len()], &bulk);
        assert_eq!(received[bulk.len()], round);
        server.write_all(&[round]).unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
    assert!(start.elapsed() < DEADLINE, "{:?}", start.elapsed());
}

#[test]
fn many_sessions_at_once_do_not_mix() {
    const SESSIONS: u64 = 600;
    let bench = bench();
    let mut sessions: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == SESSIONS);
    for round in 0..3 {
        for (number, (client, server)) in (0..).zip(&mut sessions) {
            client.write_all(&message(number, round)).unwrap();
            server.write_all(&message(number + 1000, round)).unwrap();
        }
        for (number, (client, server)) in (0..).zip(&mut sessions) {
            let mut received = vec![0; message(0, 0).len()];
            server.read_exact(&mut received).unwrap();
            assert_same(&received, &message(number, round));
            client.read_exact(&mut received).unwrap();
            assert_same(&received, &message(number + 1000, round));
        }
    }
    bench.wait_for("idle sessions hold no pipe", |now| now.pipes_in_use == 0);
    assert_eq!(bench.statistics().sessions_active, SESSIONS);
    drop(sessions);
    bench.wait_for("all have ended", |now| now.sessions_closed == SESSIONS);
}

fn message(number: u64, round: u64) -> Vec<u8> {
    Pattern::new(number * 10 + round + 1).bytes(5_000)
}

/// Short sessions, one after the other, reuse slots and descriptors at once.
#[test]
fn places_are_used_again_by_short_sessions() {
    let bench = bench();
    thread::scope(|scope| {
        for client in 0..4_u64 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..250 {
                    let mut stream = bench.connect();
                    let data = Pattern::new(client * 1000 + round).bytes(700);
                    stream.write_all(&data).unwrap();
                    let mut answer = vec![0; data.len()];
                    stream.read_exact(&mut answer).unwrap();
                    assert_same(&answer, &data);
                    if round % 3 == 0 {
                        reset(stream);
                    }
                }
            });
        }
        for _ in 0..1000 {
            let mut stream = bench.accept();
            scope.spawn(move || {
                let mut buffer = [0; 700];
                stream.read_exact(&mut buffer).unwrap();
                stream.write_all(&buffer).unwrap();
                // Until the client closes or resets.
                let _ = stream.read(&mut buffer);
            });
        }
    });
    bench.wait_for("all have ended", |now| {
        now.sessions_closed + now.sessions_reset == 1000
    });
    assert_eq!(bench.statistics().sessions_active, 0);
}

#[test]
fn urgent_data_stays_in_the_stream() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(9).bytes(400_000);
    for cut in [1, 100_000, 350_000] {
        client.write_all(&data[..cut]).unwrap();
        // The last of these bytes is the urgent one.
        let mut rest = &data[cut..cut + 10];
        while !rest.is_empty() {
            let sent = SockRef::from(&client).send_out_of_band(rest).unwrap();
            rest = &rest[sent..];
        }
        client.write_all(&data[cut + 10..]).unwrap();
        let mut received = vec![0; data.len()];
        server.read_exact(&mut received).unwrap();
        assert_same(&received, &data);
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), (Vec::new(), Ending::Clean));
}

#[test]
fn ipv6_works_the_same() {
    let Ok(server) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        println!("skipped: no IPv6 on loopback");
        return;
    };
    let settings = settings();
    let listener = listener(
        &settings,
        server.local_addr().unwrap(),
        SessionSettings::default(),
    );
    let address = local_address(&listener);
    assert!(address.is_ipv6());
    let bench = Bench {
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        address,
        server,
    };
    exchange(&bench, 3_000_000, 2_000_000, 21);
}

#[test]
fn two_listeners_lead_to_two_servers() {
    let settings = settings();
    let servers = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let listeners: Vec<_> = servers
        .iter()
        .map(|server| {
            let to = server.local_addr().unwrap();
            listener(&settings, to, SessionSettings::default())
        })
        .collect();
    let addresses: Vec<_> = listeners.iter().map(local_address).collect();
    let relay = Relay::start(&settings, listeners).unwrap();
    for (number, (address, server)) in (0..).zip(addresses.iter().zip(&servers)) {
        let mut client = bounded(TcpStream::connect(address).unwrap());
        let mut accepted = accept_from(server);
        client.write_all(&[number]).unwrap();
        let mut byte = [9];
        accepted.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [number]);
    }
    relay.stop();
}
