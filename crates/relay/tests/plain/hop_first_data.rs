//! The ingress of an overlay sends a client's first data with the request of the hop, and no byte arrives twice.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

use midspan_policy::overlay::{Node, NodeKind, OperatorRoute, Overlay, RouteBy, RouteDestination};
use midspan_policy::{Network, SessionSettings};
use midspan_relay::access::AccessRules;
use midspan_relay::{Language, Negotiation, Relay, Settings};
use midspan_units::TimeSpan;

use crate::support::*;

const SUCCESS: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// An ingress with a fixed server. The test is its only exit, at `bench.server`.
fn ingress(kind: NodeKind, first_data: bool) -> Bench {
    let settings = Settings {
        threads: 1,
        ..settings()
    };
    let exit = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let node = |name: &str, kind, address, serves: &[Network]| Node {
        kind,
        serves: serves.to_vec(),
        ..Node::new(name.parse().unwrap(), address)
    };
    let servers = Network {
        address: Ipv4Addr::new(198, 51, 100, 0).into(),
        length: 24,
    };
    let overlay = Overlay {
        routes: vec![OperatorRoute {
            destinations: vec![RouteDestination::All],
            by: RouteBy::Nodes(vec!["exit".parse().unwrap()]),
        }],
        first_data,
        ..Overlay::new(
            "ingress".parse().unwrap(),
            vec![
                node("ingress", NodeKind::Midspan, None, &[]),
                node("exit", kind, exit.local_addr().ok(), &[servers]),
            ],
        )
    };
    let server = SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 80));
    let negotiation = Negotiation {
        language: Language::Fixed(server),
        users: None,
        access: AccessRules::default(),
        timeout: TimeSpan::from_seconds(30),
        proxies: None,
        header: None,
        overlay: Some(overlay),
        as_clients: None,
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listener = listener(&settings, any, SessionSettings::default());
    listener.listener.to = negotiation.into();
    Bench {
        address: local_address(&listener),
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        server: exit,
    }
}

/// The request of the hop, without anything behind it.
fn request(node: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        node.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

fn expect(stream: &mut TcpStream, data: &[u8]) {
    let mut got = vec![0; data.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, data);
}

/// An ingress whose client has sent a question, and the exit that has read the request of the hop.
fn questioned(kind: NodeKind, first_data: bool) -> (Bench, TcpStream, TcpStream) {
    let bench = ingress(kind, first_data);
    let mut client = bench.connect();
    client.write_all(b"question").unwrap();
    let mut node = bench.accept();
    request(&mut node);
    (bench, client, node)
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    rest
}

#[test]
fn first_data_arrives_before_the_answer() {
    let bench = ingress(NodeKind::Midspan, true);
    let mut client = bench.connect();
    client.write_all(b"question").unwrap();
    let mut node = bench.accept();
    assert!(request(&mut node).starts_with("CONNECT 198.51.100.1:80 "));
    expect(&mut node, b"question");
    // It may come in several pieces.
    client.write_all(b" and more").unwrap();
    expect(&mut node, b" and more");
    node.write_all(&[SUCCESS, b"answer"].concat()).unwrap();
    expect(&mut client, b"answer");
    client.write_all(b" after").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut node), b" after");
    node.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client), b"");
    bench.wait_for("each byte is counted once", |now| {
        now.bytes_to_server == "question and more after".len() as u64
    });
}

#[test]
fn more_than_there_is_room_for_follows_the_answer() {
    let bench = ingress(NodeKind::Midspan, true);
    let mut client = bench.connect();
    let data: Vec<u8> = (0..100_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    client.write_all(&data).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut node = bench.accept();
    request(&mut node);
    expect(&mut node, &data[..16 << 10]);
    node.write_all(SUCCESS).unwrap();
    assert!(rest(&mut node) == data[16 << 10..]);
}

#[test]
fn a_foreign_proxy_gets_no_data_before_its_answer() {
    for (kind, first_data) in [(NodeKind::Connect, true), (NodeKind::Midspan, false)] {
        let (_bench, _client, mut node) = questioned(kind, first_data);
        node.set_nonblocking(true).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(node.read(&mut [0]).is_err());
        node.set_nonblocking(false).unwrap();
        node.write_all(SUCCESS).unwrap();
        expect(&mut node, b"question");
    }
}

/// The operator's route is the only one.
#[test]
fn a_node_that_refuses_has_passed_nothing_on() {
    let (_bench, client, mut node) = questioned(NodeKind::Midspan, true);
    expect(&mut node, b"question");
    let refusal =
        b"HTTP/1.1 502 Bad Gateway\r\nProxy-Status: exit; error=connection_refused\r\n\r\n";
    node.write_all(refusal).unwrap();
    assert!(wait_for_reset(&client));
}

#[test]
fn a_node_that_ends_with_first_data_is_not_called_again() {
    let (bench, client, mut node) = questioned(NodeKind::Midspan, true);
    expect(&mut node, b"question");
    drop(node);
    assert!(wait_for_reset(&client));
    bench.server.set_nonblocking(true).unwrap();
    assert!(bench.server.accept().is_err());
}
