//! A stuck thread is replaced: its sessions are reset, and a new thread has its listening sockets.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, Decision, Handshake, KnowledgeParts, Policy, Request, SessionId, SessionSample,
    SessionSettings, Start,
};
use midspan_relay::access::AccessRules;
use midspan_relay::kick::Target;
use midspan_relay::observation::Question;
use midspan_relay::{
    Language, Listener, ListenerLimits, Negotiation, Relay, SessionLimits, Settings,
};
use midspan_units::{Time, TimeSpan};
use socket2::{Domain, Socket, Type};

use crate::support::*;

/// A client for which the policy does not return.
const ENDLESS: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);
/// A new thread serves within this time on a machine that is busy with something else. The time is printed; on an idle
/// machine it is about a millisecond, and has to be less than 100 ms.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A door that holds threads until it is opened.
#[derive(Clone, Default)]
struct Door(Arc<(Mutex<DoorState>, Condvar)>);

#[derive(Default)]
struct DoorState {
    is_open: bool,
    /// A thread waits, or has waited.
    is_reached: bool,
}

impl Door {
    fn pass(&self) {
        self.change(|state| state.is_reached = true);
        self.wait_until(|state| state.is_open);
    }

    fn open(&self) {
        self.change(|state| state.is_open = true);
    }

    fn wait_until_reached(&self) {
        self.wait_until(|state| state.is_reached);
    }

    fn change(&self, change: impl FnOnce(&mut DoorState)) {
        let (state, changed) = &*self.0;
        change(&mut state.lock().unwrap());
        changed.notify_all();
    }

    fn wait_until(&self, condition: impl Fn(&DoorState) -> bool) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        drop(
            changed
                .wait_while(state, |state| !condition(state))
                .unwrap(),
        );
    }
}

/// A policy that does not return at the start of one client's session.
struct Endless(Door);

impl Policy for Endless {
    fn admit(&mut self, _: Time, _: &Request) -> Admission {
        Admission::Intercept {
            handshake: Handshake::Early,
            connect_timeout: None,
        }
    }

    fn start(
        &mut self,
        _: Time,
        request: &Request,
        _: Option<LearnedStart>,
        _: &mut dyn KnowledgeParts,
    ) -> Start {
        if request.client.ip() == IpAddr::V4(ENDLESS) {
            self.0.pass();
        }
        Start::default()
    }

    fn sample(&mut self, _: Time, _: &SessionSample, _: &mut dyn KnowledgeParts) -> Decision {
        Decision::default()
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        None
    }
}

/// A relay whose policy may not return, and the door at which it waits. Each thread has a listening socket of
/// its own.
fn endless_bench(threads: usize, sessions: SessionLimits) -> (Bench, Door) {
    bench_with_sockets(threads, threads, sessions)
}

/// As [`endless_bench`], with this number of listening sockets.
fn bench_with_sockets(threads: usize, sockets: usize, sessions: SessionLimits) -> (Bench, Door) {
    let settings = Settings {
        threads,
        ..Settings::default()
    };
    let with_sockets = Settings {
        threads: sockets,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let mut listener = listener(&with_sockets, to, SessionSettings::default());
    listener.listener.limits = ListenerLimits {
        sessions,
        ..ListenerLimits::default()
    };
    let address = local_address(&listener);
    let door = Door::default();
    let relay = Relay::start_with(&settings, vec![listener], |_| {
        Box::new(Endless(door.clone()))
    });
    let bench = Bench {
        relay: relay.unwrap(),
        address,
        server,
    };
    (bench, door)
}

/// Connects from this address.
fn connect_from(client: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    bounded(TcpStream::from(socket))
}

fn carries(client: &mut TcpStream, server: &mut TcpStream) -> bool {
    let mut byte = [0];
    client.write_all(b"b").is_ok() && server.read_exact(&mut byte).is_ok() && byte == *b"b"
}

/// The thread that makes no turn although it is woken.
fn stuck_thread(relay: &Relay) -> usize {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        let before = relay.turns();
        relay.wake();
        std::thread::sleep(Duration::from_millis(200));
        let after = relay.turns();
        let stuck: Vec<usize> = (0..after.len())
            .filter(|thread| before[*thread] == after[*thread])
            .collect();
        if let [stuck] = stuck[..] {
            return stuck;
        }
    }
    panic!("no thread is stuck");
}

#[test]
fn a_new_thread_serves_at_once_and_the_stuck_one_ends_later() {
    let (mut bench, door) = endless_bench(1, SessionLimits::default());
    let mut pairs: Vec<_> = (0..9).map(|_| bench.pair()).collect();
    assert!(
        pairs
            .iter_mut()
            .all(|(client, server)| carries(client, server))
    );
    let mut fatal = connect_from(ENDLESS, bench.address);
    assert_eq!(stuck_thread(&bench.relay), 0);
    // This connection waits in the accept queue of the stuck thread.
    let mut waiting = bench.connect();
    let begin = Instant::now();
    assert_eq!(bench.relay.replace_thread(0, None).unwrap(), 9);
    let mut served = bench.accept();
    assert!(carries(&mut waiting, &mut served));
    let after = begin.elapsed();
    println!("a session {after:?} after the decision");
    assert!(after < AT_ONCE, "{after:?}");
    for (client, server) in &mut pairs {
        assert_eq!(read_all(client), (Vec::new(), Ending::Reset));
        assert_eq!(read_all(server), (Vec::new(), Ending::Reset));
    }
    let now = bench.statistics();
    assert_eq!((now.threads_replaced, now.threads_running), (1, 1));
    assert_eq!((now.sessions_active, now.sessions_reset), (1, 9));
    let of_listener = &bench.relay.observer().listeners()["test"];
    assert_eq!((of_listener.opened, of_listener.active), (10, 1));
    // The connection for which the thread is stuck is a suspect, and the next one is relayed plainly.
    let mut again = connect_from(ENDLESS, bench.address);
    let mut served_again = bench.accept();
    assert!(carries(&mut again, &mut served_again));
    assert_eq!(bench.statistics().sessions_plain, 1);
    drop((again, served_again));
    // The stuck thread continues, notices that it is replaced, and ends.
    door.open();
    assert!(fatal.read(&mut [0]).map_or(true, |count| count == 0));
    // Its last server leg, which has been reset.
    drop(bench.accept());
    for _ in 0..20 {
        let (mut client, mut server) = bench.pair();
        assert!(carries(&mut client, &mut server));
    }
    assert!(carries(&mut waiting, &mut served));
    drop((waiting, served));
    bench.wait_for("all ended", |now| now.sessions_active == 0);
    let memory = bench.relay.observer().memory();
    assert_eq!((memory.used, memory.reserved), (0, 0), "{memory:?}");
    let now = bench.statistics();
    assert_eq!(
        now.sessions_opened,
        now.sessions_closed + now.sessions_reset
    );
}

#[test]
fn sessions_of_other_threads_go_on() {
    let (mut bench, door) = endless_bench(2, SessionLimits::default());
    let mut pairs: Vec<_> = (0..32).map(|_| bench.pair()).collect();
    bench.wait_for("all are counted", |now| now.sessions_active == 32);
    let _fatal = connect_from(ENDLESS, bench.address);
    let stuck = stuck_thread(&bench.relay);
    let reset = bench.relay.replace_thread(stuck, None).unwrap();
    assert!((1..32).contains(&reset), "{reset} of 32 were reset");
    bench.wait_for("reset", |now| now.sessions_active == 32 - reset as u64);
    let is_reset = |client: &mut TcpStream| {
        client.set_nonblocking(true).unwrap();
        let read = client.read(&mut [0]);
        client.set_nonblocking(false).unwrap();
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    };
    let mut gone = 0;
    let all_gone = eventually(|| {
        pairs.retain_mut(|(client, _)| {
            let is_reset = is_reset(client);
            gone += usize::from(is_reset);
            !is_reset
        });
        gone == reset
    });
    assert!(all_gone, "{gone} of {reset}");
    assert!(
        pairs
            .iter_mut()
            .all(|(client, server)| carries(client, server))
    );
    // Both threads accept connections, and answer.
    let more: Vec<_> = (0..32).map(|_| bench.pair()).collect();
    let active = pairs.len() as u64 + 32;
    bench.wait_for("accepted", |now| now.sessions_active == active);
    assert!(
        bench
            .relay
            .sessions_of_threads()
            .iter()
            .all(|count| *count > 0)
    );
    let question = Question {
        after: 0,
        limit: 1000,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = runtime.block_on(bench.relay.observer().sessions(question));
    assert!(answer.complete);
    assert_eq!(answer.sessions.len() as u64, active);
    door.open();
    drop((pairs, more));
    bench.wait_for("all ended", |now| now.sessions_active == 0);
}

#[test]
fn places_are_free_although_the_thread_never_continues() {
    let sessions = SessionLimits {
        sessions: Some(4),
        sessions_per_client: None,
    };
    let (mut bench, _closed_door) = endless_bench(1, sessions);
    // The stuck connection has the fourth place.
    let _pairs: Vec<_> = (0..3).map(|_| bench.pair()).collect();
    let _fatal = connect_from(ENDLESS, bench.address);
    stuck_thread(&bench.relay);
    bench.relay.replace_thread(0, None).unwrap();
    let mut served: Vec<_> = (0..3).map(|_| bench.pair()).collect();
    assert!(
        served
            .iter_mut()
            .all(|(client, server)| carries(client, server))
    );
    assert_eq!(bench.statistics().sessions_active, 3);
}

/// More sessions than a thread has before it leaves a shared socket to one without any.
const MANY: usize = 24;

/// Both threads accept from one socket. The thread that hangs has no sessions.
#[test]
fn a_shared_socket_is_not_left_to_a_thread_that_hangs() {
    let (bench, door) = bench_with_sockets(2, 1, SessionLimits::default());
    let _fatal = connect_from(ENDLESS, bench.address);
    stuck_thread(&bench.relay);
    bench.server.set_nonblocking(true).unwrap();
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    let are_served = (1..=MANY).all(|count| {
        clients.push(bench.connect());
        eventually(|| {
            // As the owner of a relay does several times a second.
            bench.relay.wake();
            served.extend(bench.server.accept());
            served.len() == count
        })
    });
    // Otherwise the relay could not end.
    door.open();
    assert!(are_served, "{} of {MANY}", served.len());
}

/// The other thread may pass connections on to one of which nothing shows yet that it hangs.
#[test]
fn connections_for_a_thread_that_has_just_begun_to_hang_come_back() {
    let (bench, door) = bench_with_sockets(2, 1, SessionLimits::default());
    let _fatal = connect_from(ENDLESS, bench.address);
    door.wait_until_reached();
    let _clients: Vec<TcpStream> = (0..MANY).map(|_| bench.connect()).collect();
    bench.server.set_nonblocking(true).unwrap();
    let mut served = Vec::new();
    let are_served = eventually(|| {
        served.extend(bench.server.accept());
        served.len() == MANY
    });
    door.open();
    assert!(are_served, "{} of {MANY}", served.len());
}

#[test]
fn commands_do_not_wait_for_a_replaced_thread() {
    let (mut bench, door) = endless_bench(2, SessionLimits::default());
    let _fatal = connect_from(ENDLESS, bench.address);
    let stuck = stuck_thread(&bench.relay);
    let mut kick = bench.relay.kick(Target::Session(1 << 60), 0);
    assert_eq!(kick.result(Duration::from_millis(100)), None);
    bench.relay.replace_thread(stuck, None).unwrap();
    kick.forget_thread(stuck);
    assert!(kick.result(Duration::from_secs(1)).is_some());
    assert!(bench.relay.wait_for_updates(Duration::from_secs(1)));
    // A thread that was replaced is not replaced again, but its successor may be.
    assert!(bench.relay.replace_thread(7, None).is_err());
    assert_eq!(bench.relay.replace_thread(stuck, None).unwrap(), 0);
    assert_eq!(bench.statistics().threads_replaced, 2);
    let (mut client, mut server) = bench.pair();
    assert!(carries(&mut client, &mut server));
    door.open();
    bench.relay.drain();
    assert!(carries(&mut client, &mut server));
}

#[test]
fn negotiations_end_too() {
    let settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let negotiation = Negotiation {
        language: Language::Socks5,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: None,
        as_clients: None,
    };
    let mut open = listener(
        &settings,
        server.local_addr().unwrap(),
        SessionSettings::default(),
    );
    let address = local_address(&open);
    open.listener = Listener::new("test", negotiation.into());
    let mut bench = Bench {
        relay: Relay::start(&settings, vec![open]).unwrap(),
        address,
        server,
    };
    let mut clients: Vec<_> = (0..5).map(|_| bench.connect()).collect();
    for client in &mut clients {
        client.write_all(b"\x05\x01\x00").unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
    }
    bench.wait_for("negotiating", |now| now.negotiations_active == 5);
    // The thread is well, which makes no difference.
    assert_eq!(bench.relay.replace_thread(0, None).unwrap(), 5);
    for client in &mut clients {
        assert_eq!(read_all(client), (Vec::new(), Ending::Reset));
    }
    bench.wait_for("none is left", |now| now.negotiations_active == 0);
    let mut client = bench.connect();
    client.write_all(b"\x05\x01\x00").unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    let memory = bench.relay.observer().memory();
    drop(client);
    let is_free = || {
        let memory = bench.relay.observer().memory();
        (memory.used, memory.reserved) == (0, 0)
    };
    assert!(memory.reserved > 0 && eventually(is_free));
}
