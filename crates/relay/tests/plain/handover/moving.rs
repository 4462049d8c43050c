//! Sessions that move.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::SessionSettings;
use midspan_relay::access::AccessRules;
use midspan_relay::observation::{Question, SessionReport};
use midspan_relay::{
    Destination, Language, Listener, ListenerLimits, Negotiation, OpenListener, Relay,
    SessionLimits, Settings,
};
use midspan_units::{ByteSize, TimeSpan};
use socket2::{Domain, Socket, Type};

use super::{carry, check_all, move_all, move_to, send_until, wait};
use crate::support::*;

fn reports(relay: &Relay) -> Vec<SessionReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let question = Question {
        after: 0,
        limit: 1000,
    };
    let answer = runtime.block_on(relay.observer().sessions(question));
    assert!(answer.complete);
    answer.sessions
}

#[test]
fn sessions_continue_and_end_in_another_relay() {
    const SESSIONS: u64 = 300;
    let bench = bench();
    let mut pairs: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    for (seed, (client, server)) in (1..).zip(&mut pairs) {
        carry(client, server, seed);
    }
    let before = reports(&bench.relay);
    let (new, count) = move_all(&bench.relay);
    assert_eq!(count, SESSIONS);
    wait(&bench.relay, "handed over", |now| {
        (now.sessions_active, now.sessions_handed_over) == (0, SESSIONS)
    });
    let of_listener = |relay: &Relay| relay.observer().listeners()["test"].active;
    assert_eq!(of_listener(&bench.relay), 0);
    // Both relays still run.
    for (seed, (client, server)) in (1000..).zip(&mut pairs) {
        carry(client, server, seed);
    }
    let Bench { relay, .. } = bench;
    relay.stop();
    for (seed, (client, server)) in (2000..).zip(&mut pairs) {
        carry(client, server, seed);
    }
    let now = new.statistics();
    assert_eq!(
        (now.sessions_active, now.sessions_taken_over),
        (SESSIONS, SESSIONS)
    );
    assert_eq!(of_listener(&new), SESSIONS);
    // They are the same sessions.
    let after = reports(&new);
    assert_eq!(after.len(), before.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            (before.id, before.client, before.server, &before.listener),
            (after.id, after.client, after.server, &after.listener)
        );
        assert_eq!(before.setup_seconds, after.setup_seconds);
        assert!(after.duration_seconds > before.duration_seconds);
        assert_eq!(after.bytes_to_client, before.bytes_to_client + 10_000);
        assert_eq!(after.bytes_to_server, before.bytes_to_server + 10_000);
    }
    // The first ones end with a FIN each way, the others by a reset of the client.
    let others = pairs.split_off(200);
    for (client, mut server) in pairs {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), (Vec::new(), Ending::Clean));
    }
    for (client, mut server) in others {
        reset(client);
        assert_eq!(read_all(&mut server), (Vec::new(), Ending::Reset));
    }
    wait(&new, "all have ended", |now| {
        (now.sessions_closed, now.sessions_reset, now.sessions_active) == (200, 100, 0)
    });
}

#[test]
fn no_byte_is_lost_while_data_flows_through_many_relays() {
    const SESSIONS: u64 = 4;
    let variants = [
        settings(),
        Settings {
            threads: 1,
            ..settings()
        },
        // Without pipes, data is in memory.
        Settings {
            threads: 3,
            pipe_memory: ByteSize::from_bytes(0),
            ..settings()
        },
        Settings {
            pipe_size: ByteSize::from_bytes(64 << 10),
            ..settings()
        },
    ];
    let bench = bench();
    let pairs: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut ends = Vec::new();
        for (seed, (client, server)) in (1..).zip(&pairs) {
            for (from, to, seed) in [(client, server, seed), (server, client, seed + 100)] {
                let from = from.try_clone().unwrap();
                let to = to.try_clone().unwrap();
                let stop = &stop;
                let sent = scope.spawn(move || send_until(from, seed, stop));
                let received = scope.spawn(move || check_all(to, seed));
                ends.push((sent, received));
            }
        }
        let mut relay = bench.relay;
        for variant in variants.iter().cycle().take(12) {
            wait(&relay, "data flows", |now| {
                now.bytes_to_client > 1_000_000 && now.bytes_to_server > 1_000_000
            });
            let (next, count) = move_to(&relay, variant, Vec::new(), Vec::new());
            assert_eq!(count, SESSIONS);
            relay.stop();
            relay = next;
        }
        stop.store(true, Ordering::Relaxed);
        for (sent, received) in ends {
            assert_eq!(sent.join().unwrap(), received.join().unwrap());
        }
        wait(&relay, "all have ended", |now| {
            now.sessions_closed == SESSIONS && now.pipes_in_use == 0
        });
    });
}

/// Waits until the relay moves nothing any more.
fn wait_until_stalled(relay: &Relay) {
    let read = || {
        let now = relay.statistics();
        (now.bytes_to_client, now.bytes_to_server, now.pipes_in_use)
    };
    let mut before = read();
    let holds = eventually(|| {
        thread::sleep(Duration::from_millis(100));
        let now = read();
        std::mem::replace(&mut before, now) == now
    });
    assert!(holds, "data still moves");
}

#[test]
fn data_in_a_pipe_and_an_unread_end_move_too() {
    let bench = bench();
    let (client, mut server) = bench.pair();
    let mut reader = client.try_clone().unwrap();
    let data = Pattern::new(3).bytes(20_000_000);
    thread::scope(|scope| {
        scope.spawn(|| send_and_finish(client, &data, 4));
        bench.wait_for("a pipe is full", |now| now.pipes_in_use == 1);
        wait_until_stalled(&bench.relay);
        assert_eq!(bench.statistics().pipes_in_use, 1);
        let (new, _) = move_all(&bench.relay);
        bench.wait_for("no pipe is left", |now| now.pipes_in_use == 0);
        wait(&new, "the pipe is here", |now| now.pipes_in_use == 1);
        let (received, ending) = read_all(&mut server);
        assert_same(&received, &data);
        assert_eq!(ending, Ending::Clean);
        wait(&new, "the pipe is empty", |now| now.pipes_in_use == 0);
        let answer = b"the other direction is open";
        server.write_all(answer).unwrap();
        drop(server);
        assert_eq!(read_all(&mut reader), (answer.to_vec(), Ending::Clean));
        wait(&new, "closed", |now| now.sessions_closed == 1);
    });
}

#[test]
fn data_in_memory_moves_too() {
    let settings = Settings {
        pipe_memory: ByteSize::from_bytes(0),
        ..settings()
    };
    let bench = bench_with(settings.clone(), SessionSettings::default());
    let mut pairs: Vec<_> = (0..20).map(|_| bench.pair()).collect();
    let data = Pattern::new(5).bytes(8_000_000);
    thread::scope(|scope| {
        for (client, _) in &pairs {
            let client = client.try_clone().unwrap();
            scope.spawn(|| send_and_finish(client, &data, 6));
        }
        bench.wait_for("data flows", |now| now.bytes_to_server > 0);
        wait_until_stalled(&bench.relay);
        let (new, count) = move_to(&bench.relay, &settings, Vec::new(), Vec::new());
        assert_eq!(count, 20);
        for (_, server) in &mut pairs {
            let (received, ending) = read_all(server);
            assert_same(&received, &data);
            assert_eq!(ending, Ending::Clean);
        }
        assert_eq!(new.statistics().bytes_spliced, 0);
    });
}

#[test]
fn half_closed_sessions_stay_half_closed() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let (mut other_client, mut other_server) = bench.pair();
    client.write_all(b"request").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), (b"request".to_vec(), Ending::Clean));
    other_server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut other_client), (Vec::new(), Ending::Clean));
    let (new, count) = move_all(&bench.relay);
    assert_eq!(count, 2);
    let answer = Pattern::new(8).bytes(3_000_000);
    thread::scope(|scope| {
        scope.spawn(|| send_and_finish(server, &answer, 9));
        let (received, ending) = read_all(&mut client);
        assert_same(&received, &answer);
        assert_eq!(ending, Ending::Clean);
    });
    other_client.write_all(b"more").unwrap();
    other_client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(
        read_all(&mut other_server),
        (b"more".to_vec(), Ending::Clean)
    );
    wait(&new, "closed", |now| now.sessions_closed == 2);
}

#[test]
fn a_session_whose_server_has_failed_still_delivers() {
    let bench = bench();
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(11).bytes(40_000_000);
    // As much as there is room for, or more than the client has room for, and a reset.
    server.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut is_blocked = false;
    let is_full = eventually(|| match server.write(&data[sent..]) {
        Ok(0) => true,
        Ok(count) => {
            sent += count;
            is_blocked = false;
            false
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            thread::sleep(Duration::from_millis(100));
            std::mem::replace(&mut is_blocked, true)
        }
        Err(error) => panic!("{error}"),
    });
    assert!(
        is_full,
        "{sent} bytes have been sent, and there is still room"
    );
    reset(server);
    // The client gets a reset only after the data.
    let is_settling = eventually(|| {
        let reports = reports(&bench.relay);
        matches!(&reports[..], [report] if format!("{:?}", report.phase) == "Settling")
    });
    assert!(is_settling);
    let (new, count) = move_all(&bench.relay);
    assert_eq!(count, 1);
    let (received, ending) = read_all(&mut client);
    assert_eq!(ending, Ending::Reset);
    assert!(!received.is_empty() && received.len() <= sent);
    assert_same(&received, &data[..received.len()]);
    wait(&new, "reset", |now| {
        (now.sessions_reset, now.sessions_active) == (1, 0)
    });
    assert_eq!(new.observer().listeners()["test"].active, 0);
}

#[test]
fn a_session_that_connects_continues_to_connect() {
    // While another connection waits to be accepted, the kernel ignores SYNs.
    let server = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    server.bind(&any.into()).unwrap();
    server.listen(0).unwrap();
    let server = TcpListener::from(server);
    let to = server.local_addr().unwrap();
    let filler = TcpStream::connect(to).unwrap();
    let settings = settings();
    let sessions = SessionSettings {
        connect_timeout: Some(TimeSpan::from_seconds(25)),
        ..SessionSettings::default()
    };
    let listener = listener(&settings, to, sessions);
    let address = local_address(&listener);
    let old = Relay::start(&settings, vec![listener]).unwrap();
    let mut client = bounded(TcpStream::connect(address).unwrap());
    client.write_all(b"early").unwrap();
    wait(&old, "begun", |now| now.sessions_active == 1);
    assert_eq!(format!("{:?}", reports(&old)[0].phase), "Connecting");
    let (new, count) = move_all(&old);
    assert_eq!(count, 1);
    old.stop();
    drop((accept_from(&server), filler));
    let mut accepted = accept_from(&server);
    let mut early = [0; 5];
    accepted.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    carry(&mut client, &mut accepted, 12);
    assert!(reports(&new)[0].setup_seconds.is_some());
}

#[test]
fn sessions_of_another_relay_count_for_the_limits() {
    let bench = bench();
    let mut pairs = vec![bench.pair(), bench.pair()];
    // Before they are accepted, they are no sessions.
    bench.wait_for("two sessions", |now| now.sessions_active == 2);
    let settings = settings();
    let mut listener = listener(
        &settings,
        bench.server.local_addr().unwrap(),
        SessionSettings::default(),
    );
    listener.listener.limits = ListenerLimits {
        sessions: SessionLimits {
            sessions: Some(2),
            sessions_per_client: None,
        },
        ..ListenerLimits::default()
    };
    let address = local_address(&listener);
    let (new, count) = move_to(&bench.relay, &settings, vec![listener], Vec::new());
    assert_eq!(count, 2);
    let mut refused = bounded(TcpStream::connect(address).unwrap());
    assert!(refused.read(&mut [0]).is_err());
    wait(&new, "shed", |now| now.shed_sessions == 1);
    drop(pairs.pop());
    wait(&new, "one has ended", |now| now.sessions_active == 1);
    let mut client = bounded(TcpStream::connect(address).unwrap());
    carry(&mut client, &mut bench.accept(), 13);
    // New sessions have larger numbers.
    let ids: Vec<u64> = reports(&new).iter().map(|report| report.id).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids[1] > 2, "{ids:?}");
}

#[test]
fn a_client_that_negotiates_stays() {
    let settings = settings();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let OpenListener { sockets, .. } = listener(&settings, to, SessionSettings::default());
    let negotiation = Negotiation {
        language: Language::Http,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: None,
        as_clients: None,
    };
    let to_named = Destination::Negotiated(Box::new(negotiation));
    let listener = OpenListener {
        listener: Listener::new("test", to_named),
        sockets,
    };
    let address = local_address(&listener);
    let old = Relay::start(&settings, vec![listener]).unwrap();
    let connect = || bounded(TcpStream::connect(address).unwrap());
    let (mut tunnel, mut late) = (connect(), connect());
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    tunnel.write_all(request.as_bytes()).unwrap();
    let mut far_tunnel = accept_from(&server);
    let answer = |stream: &mut TcpStream| {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    };
    answer(&mut tunnel);
    late.write_all(&request.as_bytes()[..20]).unwrap();
    wait(&old, "both are here", |now| {
        (now.sessions_active, now.negotiations_active) == (2, 1)
    });
    let (new, count) = move_all(&old);
    // The tunnel is a session like any other.
    assert_eq!(count, 1);
    carry(&mut tunnel, &mut far_tunnel, 14);
    late.write_all(&request.as_bytes()[20..]).unwrap();
    let mut far_late = accept_from(&server);
    answer(&mut late);
    carry(&mut late, &mut far_late, 15);
    assert_eq!(old.statistics().sessions_active, 1);
    // The next successor gets it.
    let (newer, count) = move_all(&old);
    assert_eq!(count, 1);
    carry(&mut late, &mut far_late, 16);
    drop((new, newer));
}

#[test]
fn no_connection_is_refused_meanwhile() {
    let settings = settings();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let mut first = listener(&settings, to, SessionSettings::default());
    let address = local_address(&first);
    first.listener.listen = Some(address);
    let inherited = first.listener.clone();
    let mut relay = Relay::start(&settings, vec![first]).unwrap();
    let (stop, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in server.incoming() {
                let mut stream = bounded(stream.unwrap());
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                scope.spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() > 0 {
                        stream.write_all(&byte).unwrap();
                    }
                });
            }
        });
        let clients = scope.spawn(|| {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let mut client = bounded(TcpStream::connect(address).unwrap());
                for byte in 0..3 {
                    client.write_all(&[byte]).unwrap();
                    let mut received = [9];
                    client.read_exact(&mut received).unwrap();
                    assert_eq!(received, [byte]);
                }
                count += 1;
            }
            count
        });
        for _ in 0..10 {
            wait(&relay, "connections arrive", |now| {
                now.sessions_opened - now.sessions_taken_over > 20
            });
            let (new, _) = move_to(&relay, &settings, Vec::new(), vec![inherited.clone()]);
            wait(&relay, "all have moved", |now| now.sessions_active == 0);
            relay.stop();
            relay = new;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(clients.join().unwrap() > 100);
        // This closure owns the relay, and its end would reset a session that has not ended yet.
        wait(&relay, "all have ended", |now| now.sessions_active == 0);
        is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(to).unwrap());
    });
}

#[test]
fn many_sessions_move_at_once() {
    const SESSIONS: u64 = 1500;
    let bench = bench();
    let mut pairs: Vec<_> = (0..SESSIONS).map(|_| bench.pair()).collect();
    bench.wait_for("all are open", |now| now.sessions_active == SESSIONS);
    let mut relay = bench.relay;
    for round in 0..5 {
        let begin = Instant::now();
        let (new, count) = move_all(&relay);
        println!("{count} sessions move in {:?}", begin.elapsed());
        assert_eq!(count, SESSIONS);
        relay.stop();
        relay = new;
        for (seed, (client, server)) in (round..).zip(&mut pairs) {
            carry(client, server, seed);
        }
    }
    let now = relay.statistics();
    assert_eq!((now.sessions_active, now.sessions_reset), (SESSIONS, 0));
}
