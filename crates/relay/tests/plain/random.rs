//! Sessions whose ends send, finish and reset at random: everything that one end sees is an action
//! of the other.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::{LegSettings, PacingBy, SessionSettings};
use midspan_relay::Settings;
use midspan_units::ByteSize;

use crate::support::*;

const SEEDS: u64 = 60;
const SESSIONS_PER_SEED: u64 = 6;

/// The actions of one end.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    /// Bytes to send.
    length: usize,
    /// Resets instead of finishing, after all bytes are sent.
    resets: bool,
    /// Reads only after it has sent everything.
    reads_late: bool,
    /// Most bytes of one read.
    read_size: usize,
}

impl Plan {
    fn random(random: &mut Pattern) -> Self {
        let mut below = |limit: u64| (random.next() >> 20) % limit;
        let length = [0, 1, 5_000, 100_000, 2_000_000][below(5) as usize];
        Self {
            seed: below(u64::MAX),
            length: length + below(1000) as usize,
            resets: below(3) == 0,
            reads_late: below(4) == 0,
            read_size: [100, 10_000, 200_000][below(3) as usize],
        }
    }

    fn data(&self) -> Vec<u8> {
        Pattern::new(self.seed).bytes(self.length)
    }
}

/// What one end has seen.
#[derive(Debug)]
struct Seen {
    received: Vec<u8>,
    /// `None` if it no longer read.
    ending: Option<Ending>,
    /// It has reset the connection itself.
    has_reset: bool,
    /// The kernel accepted all its data, and its FIN followed.
    finished: bool,
}

/// Carries out a plan.
fn run(mut stream: TcpStream, plan: Plan) -> Seen {
    stream.set_nonblocking(true).unwrap();
    let data = plan.data();
    let mut buffer = vec![0; plan.read_size];
    let mut sent = 0;
    let mut seen = Seen {
        received: Vec::new(),
        ending: None,
        has_reset: false,
        finished: false,
    };
    let mut last = Instant::now();
    while seen.ending.is_none() || !seen.finished {
        let mut moved = false;
        if sent < data.len() {
            match stream.write(&data[sent..]) {
                Ok(count) => (sent, moved) = (sent + count, true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    // A read does not show which error it was.
                    seen.ending = Some(Ending::Reset);
                    return seen;
                }
            }
        } else if plan.resets {
            reset(stream);
            seen.has_reset = true;
            return seen;
        } else if !seen.finished {
            if stream.shutdown(Shutdown::Write).is_err() {
                seen.ending = Some(Ending::Reset);
                return seen;
            }
            (seen.finished, moved) = (true, true);
        }
        let stuck = last.elapsed() > Duration::from_millis(50);
        if seen.ending.is_none() && (!plan.reads_late || sent == data.len() || stuck) {
            match stream.read(&mut buffer) {
                Ok(0) => (seen.ending, moved) = (Some(Ending::Clean), true),
                Ok(count) => {
                    seen.received.extend_from_slice(&buffer[..count]);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    seen.ending = Some(Ending::Reset);
                    return seen;
                }
            }
        }
        if moved {
            last = Instant::now();
        } else {
            assert!(last.elapsed() < DEADLINE, "stuck: {plan:?}, {sent} sent");
            thread::sleep(Duration::from_micros(200));
        }
    }
    seen
}

/// Checks the results `seen` of an end whose peer had the plan `peer` and the results `peer_seen`.
fn check(seen: &Seen, plan: &Plan, peer: &Plan, peer_seen: &Seen) {
    let data = peer.data();
    let prefix = &data[..seen.received.len().min(data.len())];
    assert_same(&seen.received, prefix);
    if seen.ending == Some(Ending::Clean) {
        assert!(
            peer_seen.finished,
            "an end that was none: {plan:?} {peer:?}"
        );
        assert_same(&seen.received, &data);
    }
    if !plan.resets && !peer.resets {
        assert_eq!(seen.ending, Some(Ending::Clean), "{plan:?} {peer:?}");
    }
}

#[test]
fn what_one_end_sees_the_other_has_done() {
    let start = Instant::now();
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let mut random = Pattern::new(seed);
        let settings = Settings {
            threads: 1 + (seed % 2) as usize,
            // From no pipe at all to plenty.
            pipe_memory: ByteSize::from_bytes([0, 2 << 20, 64 << 20][(seed % 3) as usize]),
            ..Settings::default()
        };
        // Every fourth is paced at the input of TCP, at up to a chunk every few microseconds.
        let leg = LegSettings {
            pacing_by: PacingBy::Input,
            pacing_rate: (seed % 4 == 0).then(|| "2 Gbit/s".parse().unwrap()),
            ..LegSettings::default()
        };
        let sessions = SessionSettings {
            client: leg.clone(),
            server: leg,
            ..SessionSettings::default()
        };
        let bench = bench_with(settings, sessions);
        let sessions: Vec<_> = (0..SESSIONS_PER_SEED)
            .map(|_| {
                let (client, server) = bench.pair();
                let plans = [Plan::random(&mut random), Plan::random(&mut random)];
                let client = thread::spawn(move || run(client, plans[0]));
                let server = thread::spawn(move || run(server, plans[1]));
                (plans, client, server)
            })
            .collect();
        for (plans, client, server) in sessions {
            let (client, server) = (client.join().unwrap(), server.join().unwrap());
            check(&client, &plans[0], &plans[1], &server);
            check(&server, &plans[1], &plans[0], &client);
        }
        bench.wait_for("all have ended", |now| {
            now.sessions_closed + now.sessions_reset == SESSIONS_PER_SEED && now.pipes_in_use == 0
        });
        assert_eq!(bench.statistics().threads_running, bench_threads(seed));
    }
    println!("{SEEDS} seeds in {:?}", start.elapsed());
}

fn bench_threads(seed: u64) -> u64 {
    1 + seed % 2
}
