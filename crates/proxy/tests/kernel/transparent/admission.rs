//! The gate carries out the policy's decision about a SYN.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use midspan_gateway::initial_window::MarkField;
use midspan_gateway::interception::{
    Interception, InterceptionNumbers, LeftAlone, Plan, Selection,
};
use midspan_linux::raw_packet::{Family, RawSocket};
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::opening_bound::OpeningLimits;
use midspan_policy::{
    Admission, Configured, Decision, KnowledgeParts, Policy, Request, SessionSample,
    SessionSettings, Start,
};
use midspan_proxy::gate::{Gate, GateListener, GateSettings};
use midspan_relay::{Destination, Listener, ListenerMarks, Relay, Settings};
use midspan_units::{Time, TimeSpan};

use super::support::*;

const BYPASSED: u16 = 81;
const REFUSED: u16 = 82;
const FATAL: u16 = 83;

/// A policy that lets connections to one port pass untouched, refuses those to another, panics for those
/// to a third, and records the requests.
struct ByPort {
    seen: Arc<Mutex<Vec<Request>>>,
    otherwise: Configured,
}

impl Policy for ByPort {
    fn admit(&mut self, now: Time, request: &Request) -> Admission {
        self.seen.lock().unwrap().push(*request);
        match request.server.port() {
            BYPASSED => Admission::Bypass,
            REFUSED => Admission::Refuse,
            FATAL => panic!("a planted fault"),
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

    fn sampling_interval(&self) -> Option<TimeSpan> {
        None
    }
}

/// Rules, and a relay without listeners whose threads decide about SYNs. Connections that pass
/// untouched or are refused need no listener.
fn start(seen: &Arc<Mutex<Vec<Request>>>) -> (Interception, Gate, Relay) {
    let plan = Plan {
        numbers: InterceptionNumbers {
            table: "midspan".to_owned(),
            marks: MarkField::new(0x0f00_0000).unwrap(),
            routing_table: 7690,
            rule_priority: 100,
            zone: 7700,
            queue: 7700,
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
    let relay = Relay::start(&relay_settings(), Vec::new()).unwrap();
    let raw = [Family::V4, Family::V6].map(|family| Some(RawSocket::open(family).unwrap()));
    let listeners = || {
        let policy = ByPort {
            seen: Arc::clone(seen),
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

fn relay_settings() -> Settings {
    Settings {
        threads: 2,
        ..Settings::default()
    }
}

#[kernel_test]
fn the_policy_is_asked_at_the_syn() {
    let network = Network::new();
    let _refused = network.listen(REFUSED);
    let listener = network.listen(BYPASSED);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let (interception, gate, relay) = network.gateway.run(move || start(&noted)).unwrap();
    for (server, client) in BOTH {
        let mut near = network.connect(server, BYPASSED).unwrap();
        let (mut far, from) = accept(&listener);
        assert_eq!(from, near.local_addr().unwrap());
        assert_eq!(network.taken(BYPASSED), 0);
        echoes(&mut near, &mut far);
        let refused = network.connect(server, REFUSED).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        let asked = std::mem::take(&mut *seen.lock().unwrap());
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
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let (interception, gate, relay) = network.gateway.run(move || start(&noted)).unwrap();
    for (number, (server, _)) in (1..).zip(BOTH) {
        for _ in 0..2 {
            let mut near = network.connect(server, FATAL).unwrap();
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
