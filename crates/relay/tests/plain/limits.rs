//! Limits of sessions and memory, and idle time-outs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use midspan_policy::SessionSettings;
use midspan_relay::{ListenerLimits, RelayLimits, SessionLimits, Settings};
use midspan_units::{ByteSize, TimeSpan};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::*;

fn sessions(all: u32, per_client: u32) -> SessionLimits {
    SessionLimits {
        sessions: Some(all),
        sessions_per_client: Some(per_client),
    }
}

fn relay_limits(limits: SessionLimits) -> Settings {
    Settings {
        limits: RelayLimits {
            sessions: limits,
            ..RelayLimits::default()
        },
        ..settings()
    }
}

impl Bench {
    fn connect_from(&self, host: u8) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let from: std::net::SocketAddr = ([127, 0, 0, host], 0).into();
        socket.bind(&SockAddr::from(from)).unwrap();
        socket.connect(&self.address.into()).unwrap();
        bounded(socket.into())
    }
}

fn echo(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    server.write_all(b"y").unwrap();
    client.read_exact(&mut [0]).unwrap();
}

#[test]
fn sessions_are_capped_per_client_and_in_all_and_a_reload_changes_that() {
    let bench = bench_with(relay_limits(sessions(3, 2)), SessionSettings::default());
    let mut old: Vec<_> = (0..2).map(|_| bench.pair()).collect();
    assert!(wait_for_reset(&bench.connect()));
    bench.wait_for("one shed", |now| now.shed_client == 1);
    let other = (bench.connect_from(2), bench.accept());
    assert!(wait_for_reset(&bench.connect_from(3)));
    bench.wait_for("two shed", |now| now.shed_sessions == 1);
    for (client, server) in &mut old {
        echo(client, server);
    }
    bench.relay.change_limits(&RelayLimits {
        sessions: sessions(4, 3),
        ..RelayLimits::default()
    });
    let more = bench.pair();
    assert!(wait_for_reset(&bench.connect_from(3)));
    // When a session has ended, its place is free again.
    drop(other);
    bench.wait_for("one gone", |now| now.sessions_active == 3);
    let last = (bench.connect_from(4), bench.accept());
    drop((more, last));
    for (client, server) in &mut old {
        echo(client, server);
    }
}

fn crowded(sessions: u32, idle: TimeSpan) -> Settings {
    Settings {
        limits: RelayLimits {
            sessions: SessionLimits {
                sessions: Some(sessions),
                sessions_per_client: None,
            },
            idle,
            ..RelayLimits::default()
        },
        ..settings()
    }
}

fn made_way(bench: &Bench) -> u64 {
    let ended = &bench.relay.observer().listeners()["test"].ended;
    ended[midspan_relay::observation::Ending::MadeWay.index()]
}

#[test]
fn the_longest_idle_session_of_the_client_with_most_makes_way() {
    let idle = TimeSpan::from_seconds(1);
    let bench = bench_with(crowded(16, idle), SessionSettings::default());
    let pair_of = |host| (bench.connect_from(host), bench.accept());
    // The oldest session belongs to a client that has few.
    let mut few = pair_of(2);
    let mut most: Vec<_> = (0..12).map(|_| pair_of(3)).collect();
    thread::sleep(Duration::from_millis(1500));
    // The second session of this client is no longer idle.
    let (client, server) = &mut most[0];
    echo(client, server);
    let mut others = vec![pair_of(4)];
    assert_eq!(made_way(&bench), 0);
    // With 14 sessions, each new one evicts an idle one.
    for (evicted, host) in (1..).zip(5..8) {
        others.push(pair_of(host));
        // Another thread may have the idle session, and evict it a moment later. Its place may become free another moment
        // after it is counted; 1 of the 16 places is left for that.
        bench.wait_for("one gone", |now| now.sessions_reset == evicted);
    }
    assert_eq!(made_way(&bench), 3);
    // A socket reports its error once.
    let mut gone = BTreeSet::new();
    let all_are_gone = eventually(|| {
        let has_error = |pair: &(TcpStream, TcpStream)| pair.0.take_error().unwrap().is_some();
        gone.extend((0..most.len()).filter(|index| has_error(&most[*index])));
        gone.len() == 3
    });
    assert!(all_are_gone && !gone.contains(&0), "{gone:?}");
    let (client, server) = &mut most[0];
    echo(client, server);
    echo(&mut few.0, &mut few.1);
    for (client, server) in &mut others {
        echo(client, server);
    }
}

#[test]
fn a_session_that_is_not_idle_makes_no_way() {
    let bench = bench_with(
        crowded(8, TimeSpan::from_seconds(60)),
        SessionSettings::default(),
    );
    let mut open: Vec<_> = (0..8)
        .map(|_| (bench.connect_from(2), bench.accept()))
        .collect();
    assert!(wait_for_reset(&bench.connect_from(3)));
    for (client, server) in &mut open {
        echo(client, server);
    }
    assert_eq!(made_way(&bench), 0);
}

#[test]
fn a_client_has_a_quarter_of_what_is_carried_and_a_number_of_its_own_counts_instead() {
    let bench = bench_with(
        crowded(800, TimeSpan::from_seconds(60)),
        SessionSettings::default(),
    );
    let open: Vec<_> = (0..200).map(|_| bench.pair()).collect();
    assert!(wait_for_reset(&bench.connect()));
    bench.wait_for("shed", |now| now.shed_client == 1);
    let other = (bench.connect_from(2), bench.accept());
    bench.relay.change_limits(&RelayLimits {
        sessions: sessions(800, 201),
        ..RelayLimits::default()
    });
    let more = bench.pair();
    assert!(wait_for_reset(&bench.connect()));
    drop((open, other, more));
}

#[test]
fn a_listener_has_limits_of_its_own() {
    let limits = ListenerLimits {
        sessions: sessions(2, 1),
        ..ListenerLimits::default()
    };
    let bench = bench_limited(settings(), SessionSettings::default(), limits);
    let _one = bench.pair();
    assert!(wait_for_reset(&bench.connect()));
    let _two = (bench.connect_from(2), bench.accept());
    assert!(wait_for_reset(&bench.connect_from(3)));
    let now = bench.statistics();
    assert_eq!((now.shed_client, now.shed_sessions), (1, 1));
}

fn still(idle: u64, half_closed: u64) -> ListenerLimits {
    let some = |milliseconds| {
        Some(TimeSpan::from_milliseconds(milliseconds)).filter(|t| t.nanoseconds() > 0)
    };
    ListenerLimits {
        idle_timeout: some(idle),
        half_closed_timeout: some(half_closed),
        ..ListenerLimits::default()
    }
}

#[test]
fn an_idle_session_is_reset_and_a_busy_one_is_not() {
    let bench = bench_limited(settings(), SessionSettings::default(), still(1500, 0));
    let (mut client, mut server) = bench.pair();
    let (idle, idle_server) = bench.pair();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        echo(&mut client, &mut server);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(wait_for_reset(&idle) && wait_for_reset(&idle_server));
    let ended = &bench.relay.observer().listeners()["test"].ended;
    let timed_out = midspan_relay::observation::Ending::IdleTimedOut;
    assert_eq!(ended[timed_out.index()], 1);
    assert_eq!(bench.statistics().sessions_active, 1);
}

#[test]
fn a_half_closed_session_is_reset_when_nothing_moves_the_other_way() {
    let bench = bench_limited(settings(), SessionSettings::default(), still(0, 1000));
    let (client, mut server) = bench.pair();
    let (still_open, _server) = bench.pair();
    client.shutdown(Shutdown::Write).unwrap();
    // Data in the other direction keeps the session open.
    for _ in 0..30 {
        server.write_all(b"x").unwrap();
        (&client).read_exact(&mut [0]).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    assert!(wait_for_reset(&client));
    // A reset after a FIN: EPIPE.
    assert!(eventually(|| server.take_error().unwrap().is_some()));
    assert!(still_open.take_error().unwrap().is_none());
    let ended = &bench.relay.observer().listeners()["test"].ended;
    let timed_out = midspan_relay::observation::Ending::HalfClosedTimedOut;
    assert_eq!(ended[timed_out.index()], 1);
}

/// A peer that slowly reads data from the kernel's buffers is not idle.
#[test]
fn what_is_still_being_delivered_is_not_idle() {
    // Longer than a busy machine lets the reader wait, and shorter than the reader takes.
    let bench = bench_limited(settings(), SessionSettings::default(), still(2000, 0));
    let (mut client, mut server) = bench.pair();
    socket2::SockRef::from(&server)
        .set_recv_buffer_size(32 << 10)
        .unwrap();
    let data = Pattern::new(5).bytes(1_000_000);
    let sent = data.clone();
    let writer = thread::spawn(move || {
        client.write_all(&sent).unwrap();
        client
    });
    let mut received = Vec::new();
    let mut buffer = vec![0; 20_000];
    while received.len() < data.len() {
        let count = server.read(&mut buffer).unwrap();
        received.extend_from_slice(&buffer[..count]);
        thread::sleep(Duration::from_millis(100));
    }
    assert_same(&received, &data);
    drop(writer.join().unwrap());
}

const BUDGET: u64 = 128 << 20;

fn bench_with_memory(budget: u64) -> Bench {
    let settings = Settings {
        limits: with_memory(budget),
        ..settings()
    };
    bench_with(settings, SessionSettings::default())
}

fn with_memory(budget: u64) -> RelayLimits {
    RelayLimits {
        memory: Some(ByteSize::from_bytes(budget)),
        ..RelayLimits::default()
    }
}

impl Bench {
    /// A client with segments as over Ethernet, and the server's end of its session. Segments over loopback have half of the largest
    /// window, 32 KB. Linux sends no smaller ones, so a window that has become smaller passes only a probe each 200 ms.
    fn pair_over_ethernet(&self) -> (TcpStream, TcpStream) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_tcp_mss(1448).unwrap();
        socket.connect(&self.address.into()).unwrap();
        (bounded(socket.into()), self.accept())
    }

    /// Memory of the queues of the relay's sockets, read from the kernel by another way.
    fn queues(&self) -> u64 {
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let server = self.server.local_addr().unwrap();
        let mut sum = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
            let number = entry.unwrap().file_name().into_string().unwrap();
            // Other tests may close sockets meanwhile.
            let Ok(file) = pidfd_getfd(&process, number.parse().unwrap(), PidfdGetfdFlags::empty())
            else {
                continue;
            };
            let socket = socket2::SockRef::from(&file);
            let is = |address: std::io::Result<SockAddr>, wanted| {
                address.is_ok_and(|address| address.as_socket() == Some(wanted))
            };
            if is(socket.local_addr(), self.address) || is(socket.peer_addr(), server) {
                let memory = midspan_linux::tcp::memory(&file).unwrap_or_default();
                sum += memory.receive.bytes() + memory.send.bytes();
            }
        }
        sum
    }
}

/// Each client sends until the kernel accepts no more, and no server reads. Returns the largest
/// memory in use: as the relay reports it, and as the queues of its sockets have it.
fn fill(bench: &Bench, slow: &[(TcpStream, TcpStream)]) -> (u64, u64) {
    let observer = bench.relay.observer();
    let piece = vec![7; 256 << 10];
    for (client, _) in slow {
        client.set_nonblocking(true).unwrap();
    }
    let (mut most, mut queues, mut last) = (0, 0, Instant::now());
    while last.elapsed() < Duration::from_secs(1) {
        let mut moved = false;
        for (number, (client, _)) in slow.iter().enumerate() {
            let mut client = client;
            moved |= client.write(&piece).is_ok();
            most = most.max(observer.memory().used);
            if number % 50 == 0 {
                queues = queues.max(bench.queues());
            }
        }
        if moved {
            last = Instant::now();
        } else {
            thread::sleep(Duration::from_millis(5));
        }
    }
    (most.max(observer.memory().used), queues.max(bench.queues()))
}

fn transfer(client: &mut TcpStream, server: &mut TcpStream, data: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(data).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let (received, ending) = read_all(server);
        assert_same(&received, data);
        assert_eq!(ending, Ending::Clean);
    });
}

#[test]
fn slow_readers_stay_within_the_memory_budget_and_an_old_session_finishes() {
    let bench = bench_with_memory(BUDGET);
    let (mut old_client, mut old_server) = bench.pair_over_ethernet();
    let mut slow: Vec<_> = (0..200).map(|_| bench.pair()).collect();
    let observer = bench.relay.observer();
    let (most, queues) = fill(&bench, &slow);
    println!(
        "of {BUDGET} bytes at most {most} were used, {queues} of them in queues; {:?}; {:?}",
        observer.memory(),
        bench.statistics()
    );
    assert!(most < BUDGET && queues < BUDGET, "{most}, {queues}");
    assert!(most > BUDGET / 4, "{most}: the budget was never tried");
    assert!(bench.statistics().directions_bounded > 0);
    // Data that waits for slow readers does not stop a fast reader.
    let data = Pattern::new(9).bytes(20_000_000);
    transfer(&mut old_client, &mut old_server, &data);
    // A smaller budget sheds new sessions.
    bench.relay.change_limits(&with_memory(BUDGET / 8));
    assert!(wait_for_reset(&bench.connect()));
    bench.wait_for("one shed", |now| now.shed_memory == 1);
    bench.relay.change_limits(&with_memory(BUDGET));
    // Readers that continue get all their data.
    let (client, mut server) = slow.swap_remove(0);
    client.shutdown(Shutdown::Write).unwrap();
    // The client's kernel may repeat a segment that found no room in the smaller queue, at intervals that have grown up to
    // two minutes while the server did not read.
    server
        .set_read_timeout(Some(Duration::from_secs(150)))
        .unwrap();
    let (received, ending) = read_all(&mut server);
    assert!(received.iter().all(|byte| *byte == 7) && ending == Ending::Clean);
    drop((client, server, slow, old_client, old_server));
    bench.wait_for("all ended", |now| now.sessions_active == 0);
    let is_free = || (observer.memory().used, observer.memory().reserved) == (0, 0);
    assert!(eventually(is_free), "{:?}", observer.memory());
}

/// Memory that idle sessions have reserved is given to sessions that need it.
#[test]
fn a_bulk_session_among_many_idle_ones_has_the_room_that_they_leave() {
    let bench = bench_with_memory(BUDGET);
    let mut idle: Vec<_> = (0..500).map(|_| bench.pair()).collect();
    for (client, server) in &mut idle {
        echo(client, server);
    }
    let observer = bench.relay.observer();
    let is_quiet = || observer.memory().reserved < BUDGET / 2;
    assert!(eventually(is_quiet), "{:?}", observer.memory());
    let bounded = bench.statistics().directions_bounded;
    // The reader pauses from time to time, so that queues fill as far as they may.
    let (mut client, mut server) = bench.pair();
    let data = Pattern::new(3).bytes(30_000_000);
    let mut most = 0;
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&data).unwrap());
        let mut received = vec![0; data.len()];
        for piece in received.chunks_mut(1 << 20) {
            thread::sleep(Duration::from_millis(10));
            most = most.max(bench.queues());
            server.read_exact(piece).unwrap();
        }
        assert_same(&received, &data);
    });
    println!(
        "{most} bytes in queues; {bounded} directions bounded; {:?}",
        observer.memory()
    );
    // An equal share for all sessions would be half a megabyte, of which the session uses one
    // direction.
    assert!(most > 1 << 20, "{most}");
    assert!(most < BUDGET);
    for (client, server) in &mut idle {
        echo(client, server);
    }
    assert!(observer.memory().used < BUDGET);
}
