//! Negotiations while system calls are interrupted, or report less data and room than there is.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use midspan_policy::overlay::{Node, OperatorRoute, Overlay, RouteBy, RouteDestination};
use midspan_policy::{Network, SessionSettings};
use midspan_relay::access::AccessRules;
use midspan_relay::failing_calls::{self, Rates};
use midspan_relay::{Destination, Language, Negotiation, Relay, Settings};
use midspan_units::TimeSpan;

use crate::support::*;

/// A relay whose clients name the server by SOCKS5.
fn socks5() -> Bench {
    let settings = Settings {
        threads: 1,
        ..settings()
    };
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let any = server.local_addr().unwrap();
    let mut listener = listener(&settings, any, SessionSettings::default());
    listener.listener.to = Destination::Negotiated(Box::new(Negotiation {
        language: Language::Socks5,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: None,
        as_clients: None,
    }));
    Bench {
        address: local_address(&listener),
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        server,
    }
}

/// The same, whose sessions leave at another relay: the node `exit` of an overlay.
fn over_a_hop() -> (Bench, Relay) {
    let bench_settings = Settings {
        threads: 1,
        ..settings()
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut exit = listener(&bench_settings, any, SessionSettings::default());
    let loopback = Network {
        address: any.ip(),
        length: 8,
    };
    let node = |name: &str, address, from: &[Network], serves: &[Network]| Node {
        from: from.to_vec(),
        serves: serves.to_vec(),
        ..Node::new(name.parse().unwrap(), address)
    };
    let nodes = vec![
        node("ingress", None, &[loopback], &[]),
        node("exit", Some(local_address(&exit)), &[], &[loopback]),
    ];
    let overlay = |own: &str| Overlay {
        routes: vec![OperatorRoute {
            destinations: vec![RouteDestination::All],
            by: RouteBy::Nodes(vec!["exit".parse().unwrap()]),
        }],
        first_data: true,
        ..Overlay::new(own.parse().unwrap(), nodes.clone())
    };
    let negotiation = |language, own| Negotiation {
        language,
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: Some(overlay(own)),
        as_clients: None,
    };
    exit.listener.to = negotiation(Language::Hop, "exit").into();
    let mut ingress = listener(&bench_settings, any, SessionSettings::default());
    ingress.listener.to = negotiation(Language::Socks5, "ingress").into();
    let bench = Bench {
        address: local_address(&ingress),
        relay: Relay::start(&bench_settings, vec![ingress]).unwrap(),
        server: TcpListener::bind(any).unwrap(),
    };
    let exit = Relay::start(&bench_settings, vec![exit]).unwrap();
    (bench, exit)
}

/// One after the other, because all relays of a process have the same failing calls.
#[test]
fn every_negotiation_becomes_a_session() {
    becomes_sessions(&socks5());
    let (ingress, exit) = over_a_hop();
    becomes_sessions(&ingress);
    // A relay thread publishes its numbers after it has passed the bytes on.
    assert!(eventually(|| exit.statistics().sessions_opened == 50));
    assert_eq!(exit.statistics().refusals(), 0);
}

fn becomes_sessions(bench: &Bench) {
    let SocketAddr::V4(server) = bench.server.local_addr().unwrap() else {
        panic!("the server has an IPv4 address");
    };
    let (address, port) = (server.ip().octets(), server.port().to_be_bytes());
    let request = [&b"\x05\x01\x00\x01"[..], &address, &port, b"early"].concat();
    let rates = Rates {
        blocked: 200,
        interrupted: 200,
        short: 300,
        ..Rates::default()
    };
    let before = failing_calls::end();
    failing_calls::begin(1, rates);
    for _ in 0..50 {
        let mut client = bench.connect();
        client.write_all(b"\x05\x01\x00").unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"\x05\x00");
        client.write_all(&request).unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer[..4], b"\x05\x00\x00\x01");
        let mut server = bench.accept();
        let mut early = [0; 5];
        server.read_exact(&mut early).unwrap();
        assert_eq!(&early, b"early");
    }
    assert!(failing_calls::end() > before);
    // A relay thread publishes its numbers after it has passed the bytes on.
    bench.wait_for("50 negotiations are sessions", |now| {
        (now.sessions_opened, now.negotiations_active) == (50, 0)
    });
}
