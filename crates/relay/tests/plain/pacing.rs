//! Limits of a direction's writing: pacing at the input of TCP, and a cap of the data in flight.
//! Every byte still arrives in order, followed by the end.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use midspan_linux::tcp;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Configured, Decision, FirstFlight, KnowledgeParts, LegDecision, LegSettings, Pacing,
    PacingBy, Policy, Request, SessionId, SessionSample, SessionSettings, Start,
};
use midspan_relay::{Relay, Settings};
use midspan_units::{ByteSize, Time, TimeSpan};

use crate::support::*;

fn paced(rate: &str) -> LegSettings {
    LegSettings {
        pacing_by: PacingBy::Input,
        pacing_rate: Some(rate.parse().unwrap()),
        ..LegSettings::default()
    }
}

#[test]
fn pacing_at_the_input_holds_the_rate_both_ways_and_keeps_every_byte() {
    let sessions = SessionSettings {
        client: paced("16 Mbit/s"),
        server: paced("8 Mbit/s"),
        ..SessionSettings::default()
    };
    let bench = bench_with(settings(), sessions);
    let (client, server) = bench.pair();
    // 1 MB at 16 Mbit/s and 500 KB at 8 Mbit/s: half a second each.
    let (down, up) = (
        Pattern::new(1).bytes(1_000_000),
        Pattern::new(2).bytes(500_000),
    );
    let start = Instant::now();
    thread::scope(|scope| {
        for (mut stream, data) in [
            (client.try_clone().unwrap(), &up),
            (server.try_clone().unwrap(), &down),
        ] {
            scope.spawn(move || {
                stream.write_all(data).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            });
        }
        for (mut stream, data) in [(client, &down), (server, &up)] {
            scope.spawn(move || {
                let (received, ending) = read_all(&mut stream);
                assert_same(&received, data);
                assert_eq!(ending, Ending::Clean);
                let elapsed = start.elapsed();
                assert!(elapsed >= Duration::from_millis(450), "{elapsed:?}");
            });
        }
    });
    bench.wait_for("closed", |now| now.sessions_closed == 1);
    assert_eq!(bench.statistics().option_errors, 0);
}

#[test]
fn data_that_arrived_before_a_reset_is_paced_and_not_lost() {
    let sessions = SessionSettings {
        client: paced("16 Mbit/s"),
        ..SessionSettings::default()
    };
    let bench = bench_with(settings(), sessions);
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(3).bytes(200_000);
    server.write_all(&data).unwrap();
    // All of it is in the relay or its sockets, not yet at the client.
    thread::sleep(Duration::from_millis(20));
    let acknowledged = eventually(|| {
        let unsent = midspan_linux::tcp::unacknowledged_bytes(&server);
        unsent.unwrap().bytes() == 0
    });
    assert!(acknowledged);
    reset(server);
    let (received, ending) = read_all(&mut client);
    assert_same(&received, &data);
    assert_eq!(ending, Ending::Reset);
}

#[test]
fn a_session_that_measures_its_rate_keeps_every_byte() {
    for pacing_by in [PacingBy::Input, PacingBy::Kernel] {
        let leg = LegSettings {
            pacing: Pacing::Auto,
            pacing_by,
            congestion_control: Some("auto".into()),
            ..LegSettings::default()
        };
        let sessions = SessionSettings {
            client: leg.clone(),
            server: leg,
            ..SessionSettings::default()
        };
        let bench = bench_with(settings(), sessions);
        let (mut client, mut server) = bench.pair();
        let data = Pattern::new(4).bytes(3_000_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                // About 40 Mbit/s, for longer than it takes to measure the rate.
                for piece in data.chunks(50_000) {
                    server.write_all(piece).unwrap();
                    thread::sleep(Duration::from_millis(10));
                }
                server.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let (received, ending) = read_all(&mut client);
            assert_same(&received, &data);
            assert_eq!(ending, Ending::Clean);
        });
        assert!(bench.statistics().samples > 3);
    }
}

/// Spreads a first flight of 110 segments towards the client at 8 Mbit/s.
struct Spread(Configured);

impl Policy for Spread {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.0.admit(now, request)
    }

    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> Start {
        let mut start = self.0.start(now, request, window, known);
        start.client.first_flight = Some(FirstFlight {
            segments: 110,
            rate: Some("8 Mbit/s".parse().unwrap()),
        });
        start
    }

    fn sample(&mut self, _: Time, _: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        Decision::default()
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        None
    }
}

#[test]
fn a_first_flight_is_spread_and_what_follows_is_spliced() {
    const FLIGHT: usize = 110 * 1448;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let listener = listener(&settings(), to, SessionSettings::default());
    let address = local_address(&listener);
    let relay = Relay::start_with(&settings(), vec![listener], |_| {
        Box::new(Spread(Configured::new(SessionSettings::default())))
    });
    let bench = Bench {
        relay: relay.unwrap(),
        address,
        server,
    };
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(6).bytes(8_000_000);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            server.write_all(&data).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut flight = vec![0; FLIGHT];
        client.read_exact(&mut flight).unwrap();
        // A hundred of 1,488 bytes at 8 Mbit/s.
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(145), "{elapsed:?}");
        let (rest, ending) = read_all(&mut client);
        flight.extend(rest);
        assert_same(&flight, &data);
        assert_eq!(ending, Ending::Clean);
    });
    bench.wait_for("spliced", |now| now.bytes_spliced > 1_000_000);
}

/// A policy that decides the same for the leg towards the server at each sample, and stores its samples.
struct Always {
    otherwise: Configured,
    decision: LegDecision,
    samples: Arc<Mutex<Vec<SessionSample>>>,
}

impl Policy for Always {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.otherwise.admit(now, request)
    }

    fn start(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
        known: &mut dyn KnowledgeParts,
    ) -> Start {
        self.otherwise.start(now, request, window, known)
    }

    fn sample(&mut self, _: Time, sample: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        self.samples.lock().unwrap().push(*sample);
        Decision {
            server: self.decision,
            ..Decision::default()
        }
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(TimeSpan::from_milliseconds(10))
    }
}

/// What a relay with such a policy has measured.
type Samples = Arc<Mutex<Vec<SessionSample>>>;

fn always(session: &SessionSettings, decision: LegDecision) -> (Bench, Samples) {
    let settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    // A sample counts unacknowledged segments as full ones; on loopback, a full segment would have
    // 64 KiB.
    socket2::SockRef::from(&server).set_tcp_mss(1000).unwrap();
    let to = server.local_addr().unwrap();
    let listener = listener(&settings, to, session.clone());
    let address = local_address(&listener);
    let samples = Samples::default();
    let relay = Relay::start_with(&settings, vec![listener], |_| {
        Box::new(Always {
            otherwise: Configured::new(session.clone()),
            decision,
            samples: Arc::clone(&samples),
        })
    });
    let bench = Bench {
        relay: relay.unwrap(),
        address,
        server,
    };
    (bench, samples)
}

#[test]
fn data_arrives_while_bbr_begins_again_and_again() {
    if tcp::load_congestion_control("bbr").is_err() {
        return println!("skipped: this kernel has no BBR, or may not load it");
    }
    let session = SessionSettings {
        server: LegSettings {
            congestion_control: Some("bbr".to_owned()),
            ..LegSettings::default()
        },
        ..SessionSettings::default()
    };
    let again = LegDecision {
        bbr_again: true,
        ..LegDecision::default()
    };
    let (bench, samples) = always(&session, again);
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(7).bytes(16_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
    });
    assert!(eventually(|| !samples.lock().unwrap().is_empty()));
    assert_eq!(bench.statistics().option_errors, 0);
}

/// How much data waited in the server leg's socket while the server did not read.
fn waiting(cap: Option<ByteSize>) -> u64 {
    let cap = LegDecision {
        in_flight_cap: cap,
        ..LegDecision::default()
    };
    let (bench, samples) = always(&SessionSettings::default(), cap);
    let (mut client, mut server) = bench.pair();
    client.write_all(&[7; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();
    bench.wait_for("a first sample", |now| now.samples > 0);
    let data = Pattern::new(5).bytes(16_000_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let full = |sample: &SessionSample| sample.server.bytes_acknowledged.bytes() > 0;
        assert!(eventually(|| samples.lock().unwrap().iter().any(full)));
        // The server's window fills, and then the socket of its leg.
        thread::sleep(Duration::from_millis(300));
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
    });
    let samples = samples.lock().unwrap();
    let waiting = samples.iter().map(|sample| {
        let leg = sample.server;
        leg.not_sent.bytes() + u64::from(leg.unacknowledged) * u64::from(leg.segment_size)
    });
    waiting.max().unwrap_or(0)
}

#[test]
fn no_more_is_in_flight_than_the_cap_and_all_of_it_comes() {
    let capped = waiting(Some(ByteSize::from_bytes(100_000)));
    // Some segments may not be full.
    assert!(capped <= 100_000 + 20_000, "{capped}");
    let free = waiting(None);
    assert!(free > 200_000, "the test shows nothing: {free}");
}
