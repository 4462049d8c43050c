//! Listeners with several servers: which one a session gets, and what checks and look-ups change.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use midspan_linux::descriptor_passing;
use midspan_policy::SessionSettings;
use midspan_policy::servers::{Health, Server, ServerReading, ServerSettings};
use midspan_relay::access::AccessRules;
use midspan_relay::negotiation::resolver::{Answer, Question, receive, send};
use midspan_relay::{Language, Listener, Negotiation, OpenListener, Relay};
use midspan_testbed::testing::{NamedServer, is_answered, name_of_server};
use midspan_units::TimeSpan;
use rustix::net::SendFlags;

use crate::support::*;

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A listener with these servers, which are checked after each such time in milliseconds.
fn with_servers(listener: Listener, servers: &[Server], check: Option<u64>) -> Listener {
    let negotiation = Negotiation {
        language: Language::Servers,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(10),
        proxies: None,
        header: None,
        overlay: None,
        as_clients: None,
    };
    Listener {
        to: negotiation.into(),
        servers: Some(ServerSettings {
            servers: servers.to_vec(),
            health_check: check.map(TimeSpan::from_milliseconds),
        }),
        ..listener
    }
}

fn open(servers: &[Server], check: Option<u64>) -> (OpenListener, SocketAddr) {
    let sessions = SessionSettings {
        connect_timeout: Some(TimeSpan::from_seconds(20)),
        ..SessionSettings::default()
    };
    let OpenListener { listener, sockets } = listener(&settings(), LOOPBACK.into(), sessions);
    let listener = with_servers(listener, servers, check);
    let open = OpenListener { listener, sockets };
    let address = local_address(&open);
    (open, address)
}

fn start(servers: &[Server], check: Option<u64>) -> (Relay, SocketAddr) {
    let (open, address) = open(servers, check);
    (Relay::start(&settings(), vec![open]).unwrap(), address)
}

fn at(server: &NamedServer) -> Server {
    Server::Address(server.address())
}

/// A new session, and the name of its server.
fn session(address: SocketAddr) -> (TcpStream, u8) {
    let mut stream = bounded(TcpStream::connect(address).unwrap());
    let name = name_of_server(&mut stream);
    (stream, name)
}

fn readings(relay: &Relay) -> Vec<ServerReading> {
    relay
        .observer()
        .servers()
        .remove("test")
        .unwrap_or_default()
}

fn health(relay: &Relay) -> Vec<Option<Health>> {
    readings(relay).iter().map(|of| of.health).collect()
}

fn sessions(relay: &Relay) -> Vec<u64> {
    readings(relay).iter().map(|of| of.sessions).collect()
}

#[test]
fn the_fewest_sessions_decide() {
    let servers = [1, 2].map(|name| NamedServer::start(LOOPBACK, name));
    let (relay, address) = start(&servers.each_ref().map(at), None);
    let all: Vec<(TcpStream, u8)> = (0..6).map(|_| session(address)).collect();
    assert_eq!(sessions(&relay), [3, 3]);
    let (first, second): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, name)| *name == 1);
    assert_eq!((first.len(), second.len()), (3, 3));
    drop(first);
    assert!(eventually(|| sessions(&relay) == [0, 3]));
    for _ in 0..3 {
        let (stream, name) = session(address);
        assert_eq!(name, 1);
        drop(stream);
        assert!(eventually(|| sessions(&relay) == [0, 3]));
    }
}

#[test]
fn a_session_that_cannot_connect_gets_the_next_server() {
    let alive = NamedServer::start(LOOPBACK, 1);
    let dead = Server::Address(NamedServer::start(LOOPBACK, 2).stop());
    let (relay, address) = start(&[dead, at(&alive)], None);
    let first = session(address);
    assert_eq!(first.1, 1);
    let (suspect, up) = (Some(Health::Suspect), Some(Health::Up));
    assert_eq!(health(&relay), [suspect, up]);
    for _ in 0..10 {
        let (mut stream, name) = session(address);
        assert_eq!(name, 1);
        assert!(is_answered(&mut stream));
    }
    drop(first);
    assert!(eventually(|| sessions(&relay) == [0, 0]));
    assert_eq!(relay.statistics().sessions_unconnected, 0);
}

#[test]
fn a_dead_server_loses_its_new_sessions_only_and_comes_back() {
    let first = NamedServer::start(LOOPBACK, 1);
    let second = NamedServer::start(LOOPBACK, 2);
    let (relay, address) = start(&[at(&first), at(&second)], Some(100));
    let mut live = [session(address), session(address)];
    let address_of_second = second.stop();
    assert!(eventually(|| health(&relay)[1] == Some(Health::Down)));
    assert!(readings(&relay)[1].failed_checks >= 3);
    for _ in 0..4 {
        assert_eq!(session(address).1, 1);
    }
    for (stream, _) in &mut live {
        assert!(is_answered(stream));
    }
    let _second = NamedServer::start(address_of_second, 2);
    assert!(eventually(|| health(&relay)[1] == Some(Health::Up)));
    let names = [session(address), session(address)].map(|(_, name)| name);
    assert!(names.contains(&2), "{names:?}");
}

#[test]
fn with_all_down_the_servers_are_tried() {
    let servers = [1, 2].map(|name| NamedServer::start(LOOPBACK, name));
    let addresses = servers.map(NamedServer::stop);
    let (relay, address) = start(&addresses.map(Server::Address), Some(100));
    let down = Some(Health::Down);
    assert!(eventually(|| health(&relay) == [down, down]));
    let mut refused = bounded(TcpStream::connect(address).unwrap());
    assert_eq!(read_all(&mut refused), (Vec::new(), Ending::Reset));
    let _back = NamedServer::start(addresses[1], 2);
    // Whether or not a check has found it.
    assert_eq!(session(address).1, 2);
}

/// A resolver for the relay with these names.
fn resolver(relay: &Relay, names: &[(&str, &[IpAddr])]) -> Arc<Mutex<Vec<String>>> {
    let (own, there) = descriptor_passing::pair().unwrap();
    let known: Vec<(String, Vec<IpAddr>)> = (names.iter())
        .map(|(name, addresses)| ((*name).to_owned(), addresses.to_vec()))
        .collect();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok(Some(question)) = receive::<Question>(&own) {
            let found = known.iter().find(|(name, _)| *name == question.name);
            let answer = Answer {
                number: question.number,
                addresses: Some(found.map_or_else(Vec::new, |(_, of)| of.clone())),
            };
            noted.lock().unwrap().push(question.name);
            let _ = send(&own, &answer, SendFlags::NOSIGNAL);
        }
    });
    relay.set_resolver(there).unwrap();
    asked
}

#[test]
fn all_addresses_of_a_name_are_used_in_turn() {
    let first = NamedServer::start(LOOPBACK, 1);
    let port = first.address().port();
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let _second = NamedServer::start((other, port), 2);
    let servers = [
        Server::Name("a.example".to_owned(), port),
        Server::Name("none.example".to_owned(), port),
    ];
    let (relay, address) = start(&servers, None);
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(other)];
    let asked = resolver(&relay, &[("a.example", &addresses)]);
    // The first session may come before the addresses, and waits for them.
    let names: Vec<u8> = (0..4).map(|_| session(address).1).collect();
    assert_eq!(names, [1, 2, 1, 2]);
    assert!(eventually(|| asked.lock().unwrap().len() >= 2));
    assert_eq!(health(&relay), [Some(Health::Up), None]);
}

#[test]
fn a_reload_changes_the_servers_and_sessions_go_on() {
    let servers = [1, 2, 3].map(|name| NamedServer::start(LOOPBACK, name));
    let first = servers[0].address();
    let open = listener(&settings(), first, SessionSettings::default());
    let (address, listener) = (local_address(&open), open.listener.clone());
    let mut relay = Relay::start(&settings(), vec![open]).unwrap();
    let id = Relay::first_listeners(1).next().unwrap();
    let mut before = session(address);
    assert!(readings(&relay).is_empty());
    let two = [at(&servers[0]), at(&servers[1])];
    relay.change_listener(id, with_servers(listener.clone(), &two, Some(100)));
    assert!(relay.wait_for_updates(DEADLINE));
    let mut live = [session(address), session(address)];
    assert_eq!(sessions(&relay), [1, 1]);
    let others = [at(&servers[1]), at(&servers[2])];
    relay.change_listener(id, with_servers(listener, &others, Some(100)));
    assert!(relay.wait_for_updates(DEADLINE));
    assert_eq!(sessions(&relay), [1, 0]);
    assert_eq!(session(address).1, 3);
    for (stream, _) in live.iter_mut().chain([&mut before]) {
        assert!(is_answered(stream));
    }
    drop(live);
    assert!(eventually(|| sessions(&relay) == [0, 0]));
}
