//! The policy is called at the right moments, and its decisions are carried out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Decision, Handshake, KnowledgeParts, LegDecision, LegSettings, Policy, Request,
    SessionId, SessionSample, SessionSettings, Start,
};
use midspan_relay::{Error, Relay, Settings};
use midspan_units::{BitRate, ByteSize, Time, TimeSpan};

use crate::support::*;

/// A call of a policy.
#[derive(Debug, Clone, PartialEq)]
enum Call {
    Admit(Request),
    Start(Request),
    Sample(Box<SessionSample>),
}

type Calls = Arc<Mutex<Vec<Call>>>;

struct Recorder {
    calls: Calls,
    admission: Admission,
    decision: Decision,
}

impl Policy for Recorder {
    fn admit(&mut self, _now: Time, request: &Request) -> Admission {
        self.calls.lock().unwrap().push(Call::Admit(*request));
        self.admission
    }

    fn start(
        &mut self,
        _now: Time,
        request: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        self.calls.lock().unwrap().push(Call::Start(*request));
        Start::default()
    }

    fn sample(
        &mut self,
        _now: Time,
        sample: &SessionSample,
        _: &mut dyn KnowledgeParts,
    ) -> Decision {
        self.calls
            .lock()
            .unwrap()
            .push(Call::Sample(Box::new(*sample)));
        self.decision
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        Some(TimeSpan::from_milliseconds(20))
    }
}

const INTERCEPT: Admission = Admission::Intercept {
    handshake: Handshake::Early,
    connect_timeout: None,
};

fn bench_of(admission: Admission, decision: Decision) -> (Bench, Calls) {
    let settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let listener = listener(&settings, to, SessionSettings::default());
    let address = local_address(&listener);
    let calls = Calls::default();
    let relay = Relay::start_with(&settings, vec![listener], |_| {
        Box::new(Recorder {
            calls: Arc::clone(&calls),
            admission,
            decision,
        })
    });
    let bench = Bench {
        relay: relay.unwrap(),
        address,
        server,
    };
    (bench, calls)
}

fn samples(calls: &Calls) -> Vec<SessionSample> {
    let calls = calls.lock().unwrap();
    let sample = |call: &Call| match call {
        Call::Sample(sample) => Some(**sample),
        _ => None,
    };
    calls.iter().filter_map(sample).collect()
}

#[test]
fn the_policy_is_asked_in_order_and_sees_both_legs() {
    let (bench, calls) = bench_of(INTERCEPT, Decision::default());
    let (mut client, mut server) = bench.pair();
    let request = Request {
        client: client.local_addr().unwrap(),
        server: bench.server.local_addr().unwrap(),
    };
    assert_eq!(
        *calls.lock().unwrap(),
        [Call::Admit(request), Call::Start(request)]
    );
    client.write_all(&[1; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[2; 3000]).unwrap();
    client.read_exact(&mut [0; 3000]).unwrap();
    assert!(eventually(|| !samples(&calls).is_empty()));
    // An idle session is sampled no more.
    thread::sleep(Duration::from_millis(100));
    let count = samples(&calls).len();
    assert!(count <= 2, "{count} samples of one exchange");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(samples(&calls).len(), count);
    let last = samples(&calls)[count - 1];
    assert_eq!(last.client.bytes_received, ByteSize::from_bytes(1000));
    assert_eq!(last.server.bytes_received, ByteSize::from_bytes(3000));
    assert!(last.client.round_trip_time.is_some());
    // Data again, samples again.
    client.write_all(&[1; 10]).unwrap();
    assert!(eventually(|| samples(&calls).len() > count));
    assert_eq!(bench.statistics().samples, samples(&calls).len() as u64);
}

#[test]
fn a_live_pacing_rate_holds_back_the_sender() {
    let decision = Decision {
        server: LegDecision {
            pacing_rate: BitRate::from_bits_per_second(16_000_000),
            ..LegDecision::default()
        },
        ..Decision::default()
    };
    let (bench, calls) = bench_of(INTERCEPT, decision);
    let (mut client, mut server) = bench.pair();
    client.write_all(&[0; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();
    bench.wait_for("decided", |now| now.samples > 0);
    // 2 MB at 16 Mbit/s take a second; a burst may be sent at once.
    let data = Pattern::new(1).bytes(2_000_000);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&data).unwrap());
        let mut received = vec![0; data.len()];
        server.read_exact(&mut received).unwrap();
        assert_same(&received, &data);
    });
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(700), "{elapsed:?}");
    assert_eq!(bench.statistics().option_errors, 0);
    let paced = samples(&calls).into_iter().any(|sample| {
        let rate = sample.server.pacing_rate;
        rate.is_some_and(|rate| rate.bits_per_second() <= 16_000_000)
    });
    assert!(paced, "TCP_INFO shows the rate");
}

#[test]
fn a_refused_connection_is_reset_and_never_reaches_the_server() {
    let (bench, calls) = bench_of(Admission::Refuse, Decision::default());
    let mut client = bench.connect();
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset));
    bench.wait_for("refused", |now| now.refused_by_policy == 1);
    assert_eq!(bench.statistics().sessions_opened, 0);
    assert_eq!(calls.lock().unwrap().len(), 1);
    bench.server.set_nonblocking(true).unwrap();
    assert!(bench.server.accept().is_err());
}

#[test]
fn a_bypassed_connection_is_relayed_without_set_up() {
    let (bench, calls) = bench_of(Admission::Bypass, Decision::default());
    let (mut client, mut server) = bench.pair();
    // Several intervals of samples.
    for _ in 0..5 {
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    assert!(samples(&calls).is_empty());
    assert_eq!(bench.statistics().sessions_plain, 1);
    let calls = calls.lock().unwrap();
    assert!(!calls.iter().any(|call| matches!(call, Call::Start(_))));
}

/// The duration of a download shows the configured pacing rate of the client leg.
#[test]
fn the_configured_start_is_carried_out_before_the_first_byte() {
    let sessions = SessionSettings {
        client: LegSettings {
            congestion_control: Some("reno".into()),
            pacing_rate: BitRate::from_bits_per_second(16_000_000),
            notsent_lowat: Some(ByteSize::from_bytes(128 << 10)),
            ..LegSettings::default()
        },
        ..SessionSettings::default()
    };
    let bench = bench_with(settings(), sessions);
    let (mut client, server) = bench.pair();
    let data = Pattern::new(2).bytes(2_000_000);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| send_and_finish(server, &data, 1));
        let (received, ending) = read_all(&mut client);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
    });
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(700), "{elapsed:?}");
    assert_eq!(bench.statistics().option_errors, 0);
}

#[test]
fn an_option_the_kernel_refuses_is_counted_and_the_session_goes_on() {
    let sessions = SessionSettings {
        server: LegSettings {
            congestion_control: Some("no-such-algorithm".into()),
            ..LegSettings::default()
        },
        ..SessionSettings::default()
    };
    let bench = bench_with(settings(), sessions);
    let (mut client, mut server) = bench.pair();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    assert_eq!(bench.statistics().option_errors, 1);
}

#[test]
fn draining_finishes_what_is_there_and_takes_no_more() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    bench.relay.drain();
    let refused = eventually(|| TcpStream::connect(bench.address).is_err());
    assert!(refused, "no new connections");
    // Connections that arrived before the threads got the command become sessions too.
    bench.server.set_nonblocking(true).unwrap();
    while bench.server.accept().is_ok() {}
    client.write_all(b"still here").unwrap();
    server.read_exact(&mut [0; 10]).unwrap();
    drop(client);
    assert_eq!(read_all(&mut server), (Vec::new(), Ending::Clean));
    drop(server);
    bench.wait_for("all done", |now| now.sessions_active == 0);
    assert_eq!(bench.statistics().threads_running, 2);
    bench.relay.stop();
}

#[test]
fn stopping_resets_what_is_left() {
    let Bench {
        relay,
        address,
        server,
    } = bench();
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let mut accepted = accept_from(&server);
    relay.stop();
    assert_eq!(read_all(&mut client), (Vec::new(), Ending::Reset));
    assert_eq!(read_all(&mut accepted), (Vec::new(), Ending::Reset));
}

#[test]
fn a_relay_that_cannot_work_says_why() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let two = settings();
    let listener = listener(&two, to, SessionSettings::default());
    let one = Settings {
        threads: 1,
        ..settings()
    };
    let error = Relay::start(&one, vec![listener]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "listener \"test\" has 2 sockets and the relay 1 threads: open at least one and at most one \
         per thread (SO_REUSEPORT)"
    );
    let none = Settings {
        threads: 0,
        ..settings()
    };
    assert!(matches!(
        Relay::start(&none, Vec::new()),
        Err(Error::NoThreads)
    ));
}
