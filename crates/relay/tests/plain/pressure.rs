//! Memory stays bounded, whatever the peers do.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::{Buffer, LegSettings, SessionSettings};
use midspan_units::ByteSize;

use crate::support::*;

fn fixed_buffers(size: u64) -> SessionSettings {
    let buffer = Buffer::Fixed(ByteSize::from_bytes(size));
    let leg = LegSettings {
        send_buffer: buffer,
        receive_buffer: buffer,
        ..LegSettings::default()
    };
    SessionSettings {
        client: leg.clone(),
        server: leg,
        ..SessionSettings::default()
    }
}

#[test]
fn a_slow_reader_stops_the_sender() {
    let bench = bench_with(settings(), fixed_buffers(64 << 10));
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(1).bytes(40_000_000);
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(300) && sent < data.len() {
        match client.write(&data[sent..]) {
            Ok(count) => {
                sent += count;
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
    // The relay holds at most one pipe; the rest waits in the kernel's buffers, of which the two
    // of this test may grow to 4 and 6 MB.
    println!("{sent} bytes sent to a reader that does not read");
    assert!(sent < 16_000_000, "{sent} bytes");
    let held = sent - usize::try_from(bench.statistics().bytes_to_server).unwrap();
    assert!(held < 8_000_000, "{held} bytes are not yet forwarded");
    // And all of it arrives when the reader wakes up.
    client.set_nonblocking(false).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send_and_finish(client, &data[sent..], 1));
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
    });
}

#[test]
fn idle_sessions_hold_no_pipe_and_pipes_are_bounded() {
    let bench = bench();
    let data = Pattern::new(2).bytes(2_000_000);
    let mut sessions: Vec<_> = (0..20).map(|_| bench.pair()).collect();
    for (client, server) in &mut sessions {
        thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            let mut received = vec![0; data.len()];
            server.read_exact(&mut received).unwrap();
            assert_same(&received, &data);
        });
    }
    bench.wait_for("no pipe in use", |now| now.pipes_in_use == 0);
    let now = bench.statistics();
    assert_eq!(now.sessions_active, 20);
    assert!(now.bytes_spliced > 0);
    // One after the other, the sessions need one pipe per thread.
    assert!(now.pipes <= 2, "{now:?}");
}

/// A session that always has data must not delay the other sessions of its thread.
#[test]
fn a_fast_session_does_not_starve_the_others() {
    let settings = midspan_relay::Settings {
        threads: 1,
        ..settings()
    };
    let bench = bench_with(settings, SessionSettings::default());
    let (fast_client, fast_server) = bench.pair();
    let (mut client, mut server) = bench.pair();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let data = vec![0; 1 << 20];
            while !stopped() && (&fast_client).write_all(&data).is_ok() {}
            drop(fast_client);
        });
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 20];
            while (&fast_server)
                .read(&mut buffer)
                .is_ok_and(|count| count > 0)
            {}
        });
        for _ in 0..200 {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
