//! Negotiations while system calls are interrupted, or report less data and room than there is.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use midspan_policy::SessionSettings;
use midspan_relay::access::AccessRules;
use midspan_relay::failing_calls::{self, Rates};
use midspan_relay::{Destination, Language, Negotiation, Relay, Settings};
use midspan_units::TimeSpan;

use support::*;

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
    }));
    Bench {
        address: local_address(&listener),
        relay: Relay::start(&settings, vec![listener]).unwrap(),
        server,
    }
}

#[test]
fn every_negotiation_becomes_a_session() {
    let bench = socks5();
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
