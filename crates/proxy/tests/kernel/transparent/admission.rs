//! The gate carries out the policy's decision about a SYN.

use std::fs;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use midspan_gateway::initial_window::MarkField;
use midspan_gateway::interception::{
    Interception, InterceptionNumbers, LeftAlone, Plan, Selection,
};
use midspan_linux::packet_queue::{BUFFER, PacketQueue, Verdict};
use midspan_linux::raw_packet::{Family, RawSocket};
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::opening_bound::OpeningLimits;
use midspan_policy::{
    Admission, Configured, Decision, Handshake, KnowledgeParts, Policy, Request, SessionId,
    SessionSample, SessionSettings, Start,
};
use midspan_proxy::gate::{Gate, GateListener, GateSettings};
use midspan_relay::{Destination, Listener, ListenerMarks, Relay, Settings};
use midspan_units::{Time, TimeSpan};

use super::support::*;

const BYPASSED: u16 = 81;
const REFUSED: u16 = 82;
const FATAL: u16 = 83;
const SLOW: u16 = 84;
const HELD: u16 = 85;
/// The gate's queue, and one for what servers answer.
const QUEUE: u16 = 7700;
const ANSWERS: u16 = 1;

/// What the policy and the test share.
#[derive(Clone, Default)]
struct Shared {
    /// The requests.
    seen: Arc<Mutex<Vec<Request>>>,
    /// While it is locked, the policy does not return for one port.
    door: Arc<Mutex<()>>,
}

/// A policy that lets connections to one port pass untouched, refuses those to another, panics for those
/// to a third, waits at a door for those to a fourth, intercepts those to a fifth, and records the requests.
struct ByPort {
    shared: Shared,
    otherwise: Configured,
}

impl Policy for ByPort {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.shared.seen.lock().unwrap().push(*request);
        match request.server.port() {
            BYPASSED => Admission::Bypass,
            REFUSED => Admission::Refuse,
            FATAL => panic!("a planted fault"),
            SLOW => {
                drop(self.shared.door.lock().unwrap());
                Admission::Bypass
            }
            HELD => Admission::Intercept {
                handshake: Handshake::EndToEnd,
                connect_timeout: None,
            },
            _ => self.otherwise.admit(now, request),
        }
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

    fn sample(
        &mut self,
        now: Time,
        sample: &SessionSample,
        known: &mut dyn KnowledgeParts,
    ) -> Decision {
        self.otherwise.sample(now, sample, known)
    }

    fn sampling_interval(&self, _: SessionId) -> Option<TimeSpan> {
        None
    }
}

/// Rules, and a relay without listeners whose threads decide about SYNs. Connections that pass
/// untouched or are refused need no listener.
fn start(shared: &Shared, threads: usize) -> (Interception, Gate, Relay) {
    let plan = Plan {
        numbers: InterceptionNumbers {
            table: "midspan".to_owned(),
            marks: MarkField::new(0x0f00_0000).unwrap(),
            routing_table: 7690,
            rule_priority: 100,
            zone: 7700,
            queue: QUEUE,
            forward_priority: 100,
        },
        selections: vec![Selection {
            interfaces: vec!["acc".to_owned()],
            ipv4_port: Some(40_000),
            ipv6_port: Some(40_000),
            ..Selection::default()
        }],
        as_clients: false,
        client_leg_marks: [].into(),
        server_leg_marks: [].into(),
        former_sessions: Vec::new(),
        former_listeners: None,
        more_interfaces: [].into(),
        bypasses: Vec::new(),
        left_alone: LeftAlone::default(),
    };
    let place = plan.numbers.clone();
    let mut interception = Interception::install(plan).unwrap();
    let marks = interception.marks();
    let listener = Listener {
        marks: ListenerMarks {
            syn: Some(marks.listeners[0]),
            server: Some(marks.server_leg),
            ..ListenerMarks::default()
        },
        ..Listener::new("test", Destination::Original)
    };
    let settings = GateSettings {
        queue: place.queue,
        mask: marks.mask,
        refused_mark: marks.refused,
        watched_mark: marks.watched,
        server_zone: place.server_zone(),
        asymmetric_route_time: TimeSpan::ZERO,
        opening_limits: OpeningLimits::new(16, 16, Some(64)),
    };
    let settings_of_relay = Settings {
        threads,
        ..Settings::default()
    };
    let relay = Relay::start(&settings_of_relay, Vec::new()).unwrap();
    let raw = [Family::V4, Family::V6].map(|family| Some(RawSocket::open(family).unwrap()));
    let listeners = || {
        let policy = ByPort {
            shared: shared.clone(),
            otherwise: Configured::new(SessionSettings::default()),
        };
        vec![GateListener::with_policy(
            listener.clone(),
            Box::new(policy),
        )]
    };
    let gate = Gate::start(&settings, listeners, &relay, raw).unwrap();
    interception.set_taking(true).unwrap();
    (interception, gate, relay)
}

/// Packets in the gate's queue that have no verdict yet.
fn waiting(network: &Network) -> usize {
    let read = || fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap();
    let text = network.gateway.run(read).unwrap();
    // Each row has the number of a queue, the port of its reader, and the number of waiting packets.
    let mut rows = text
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row[0] == QUEUE.to_string());
    row.map_or(0, |row| row[2].parse().unwrap())
}

#[kernel_test]
fn the_policy_is_asked_at_the_syn() {
    let network = Network::new();
    let _refused = network.listen(REFUSED);
    let listener = network.listen(BYPASSED);
    let shared = Shared::default();
    let of_policy = shared.clone();
    let started = network.gateway.run(move || start(&of_policy, 2));
    let (interception, gate, relay) = started.unwrap();
    for (server, client) in BOTH {
        let mut near = network.connect(server, BYPASSED).unwrap();
        let (mut far, from) = accept(&listener);
        assert_eq!(from, near.local_addr().unwrap());
        assert_eq!(network.taken(BYPASSED), 0);
        echoes(&mut near, &mut far);
        let refused = network.connect(server, REFUSED).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        let asked = std::mem::take(&mut *shared.seen.lock().unwrap());
        let ports: Vec<u16> = asked.iter().map(|request| request.server.port()).collect();
        assert_eq!(ports, [BYPASSED, REFUSED]);
        for request in asked {
            assert_eq!(request.client.ip().to_string(), client);
            assert_eq!(request.server.ip().to_string(), server);
        }
    }
    let statistics = gate.statistics();
    assert_eq!(statistics.passed_by_policy, 2);
    assert_eq!(statistics.refused_by_policy, 2);
    assert_eq!(statistics.taken, 0);
    assert!(gate.is_running());
    drop(gate);
    assert_eq!(relay.statistics().threads_running, 2);
    drop(relay);
    network.gateway.run(move || drop(interception)).unwrap();
}

/// The SYN for which the gate has panicked is not decided on. When the client repeats the SYN, the connection
/// passes untouched.
#[kernel_test]
fn a_panic_of_the_gate_names_a_suspect() {
    let network = Network::new();
    let fatal = network.listen(FATAL);
    let listener = network.listen(BYPASSED);
    let shared = Shared::default();
    let of_policy = shared.clone();
    let started = network.gateway.run(move || start(&of_policy, 2));
    let (interception, gate, relay) = started.unwrap();
    for (number, (server, _)) in (1..).zip(BOTH) {
        for _ in 0..2 {
            // Writing the backtrace of a panic takes a busy machine many seconds.
            let mut near = connect_from(&network.client, server, FATAL, LIMIT).unwrap();
            let (mut far, _) = accept(&fatal);
            echoes(&mut near, &mut far);
        }
        assert_eq!(relay.statistics().panics, number);
        assert_eq!(gate.statistics().passed_suspects, 2 * number);
        let mut near = network.connect(server, BYPASSED).unwrap();
        let (mut far, _) = accept(&listener);
        echoes(&mut near, &mut far);
    }
    assert!(gate.is_running());
    drop(gate);
    assert_eq!(relay.statistics().threads_running, 2);
    drop(relay);
    network.gateway.run(move || drop(interception)).unwrap();
}

/// The thread has read several SYNs when it panics for one of them. The others get a verdict as well, so none
/// stays in the queue.
#[kernel_test]
fn packets_that_the_thread_has_read_get_a_verdict_after_a_panic() {
    let network = &Network::new();
    let _listening = [SLOW, FATAL, BYPASSED].map(|port| network.listen(port));
    let shared = Shared::default();
    let of_policy = shared.clone();
    let started = network.gateway.run(move || start(&of_policy, 1));
    let (interception, gate, relay) = started.unwrap();
    std::thread::scope(|scope| {
        let connect = |port| scope.spawn(move || network.connect(SERVER, port).unwrap());
        let door = shared.door.lock().unwrap();
        let mut clients = vec![connect(SLOW)];
        wait_until("asked", || !shared.seen.lock().unwrap().is_empty());
        clients.push(connect(FATAL));
        wait_until("two wait", || waiting(network) == 2);
        clients.extend([connect(BYPASSED), connect(BYPASSED)]);
        wait_until("four wait", || waiting(network) == 4);
        drop(door);
        // Each client whose SYN was dropped repeats it.
        for client in clients {
            client.join().unwrap();
        }
    });
    wait_until("no packet waits", || waiting(network) == 0);
    assert_eq!(relay.statistics().panics, 1);
    assert_eq!(gate.statistics().passed_suspects, 1);
    drop(gate);
    drop(relay);
    network.gateway.run(move || drop(interception)).unwrap();
}

/// The server of a held SYN answers while the thread is busy. The thread panics before it notices the answer.
#[kernel_test]
fn the_answer_to_a_held_syn_is_not_lost_by_a_panic() {
    let network = &Network::new();
    let _listening = [SLOW, FATAL].map(|port| network.listen(port));
    // Not every kernel has the statement `queue` of nftables.
    let (held, answers) = (HELD.to_string(), ANSWERS.to_string());
    let change = |action| {
        let rule = [action, "FORWARD", "-p", "tcp", "--sport", &held];
        let target = ["-j", "NFQUEUE", "--queue-num", &answers];
        output(&network.router, "iptables", &[&rule[..], &target].concat());
    };
    change("-A");
    let bind = || PacketQueue::bind(ANSWERS, 64, 64).unwrap();
    let mut queue = network.router.run(bind).unwrap();
    let shared = Shared::default();
    let of_policy = shared.clone();
    let started = network.gateway.run(move || start(&of_policy, 1));
    let (interception, gate, relay) = started.unwrap();
    std::thread::scope(|scope| {
        let connect = |port| scope.spawn(move || network.connect(SERVER, port));
        let held = connect(HELD);
        let (mut answers, mut buffer) = (Vec::new(), vec![0; BUFFER]);
        wait_until("an answer", || {
            let received = queue.receive(&mut buffer, |packet| answers.push(packet.id));
            received.unwrap();
            !answers.is_empty()
        });
        let door = shared.door.lock().unwrap();
        let slow = connect(SLOW);
        let is_slow = |request: &Request| request.server.port() == SLOW;
        wait_until("asked", || shared.seen.lock().unwrap().iter().any(is_slow));
        let fatal = connect(FATAL);
        // With the held one.
        wait_until("three wait", || waiting(network) >= 3);
        for answer in answers {
            queue
                .decide(answer, Verdict::Accept { mark: None })
                .unwrap();
        }
        queue.flush().unwrap();
        wait_until("answered", || unanswered(&network.gateway, HELD) == 0);
        drop(door);
        // What the server answers from now on passes.
        change("-D");
        let refused = held.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        for client in [slow, fatal] {
            client.join().unwrap().unwrap();
        }
    });
    wait_until("no packet waits", || waiting(network) == 0);
    assert_eq!(relay.statistics().panics, 1);
    drop(gate);
    drop(relay);
    network.gateway.run(move || drop(interception)).unwrap();
}
