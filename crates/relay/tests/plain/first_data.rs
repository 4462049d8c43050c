//! The last ACK of the handshake with the server carries the client's first data, if this data waits already.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use midspan_linux::tcp;
use midspan_policy::SessionSettings;
use midspan_relay::Relay;

use crate::support::*;

/// Segments that the server has received after the client's first byte, as the kernel counts them.
fn segments_received(server: &mut TcpStream) -> u32 {
    server.read_exact(&mut [0]).unwrap();
    let info = tcp::information(&*server).unwrap();
    assert_eq!(info.data_segments_received(), 1);
    info.segments_received()
}

/// The same for a connection whose client waits for the end of the handshake.
fn segments_of_a_direct_connection() -> u32 {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = bounded(TcpStream::connect(server.local_addr().unwrap()).unwrap());
    client.write_all(b"a").unwrap();
    segments_received(&mut accept_from(&server))
}

#[test]
fn data_that_waits_arrives_with_the_ack_of_the_handshake() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let settings = settings();
    let listener = listener(
        &settings,
        server.local_addr().unwrap(),
        SessionSettings::default(),
    );
    // The kernel completes this handshake, and keeps the byte until the relay exists.
    let mut client = bounded(TcpStream::connect(local_address(&listener)).unwrap());
    client.write_all(b"a").unwrap();
    let relay = Relay::start(&settings, vec![listener]).unwrap();
    let mut server = accept_from(&server);
    let received = segments_received(&mut server);
    assert_eq!(received + 1, segments_of_a_direct_connection());
    // Later data is acknowledged as usual.
    server.write_all(b"b").unwrap();
    client.read_exact(&mut [0]).unwrap();
    drop((client, server));
    assert!(eventually(|| relay.statistics().sessions_closed == 1));
}

/// Without data, the kernel sends a deferred ACK after this time (`TCP_DELACK_MAX`).
const DEFERRED: Duration = Duration::from_millis(200);

#[test]
fn without_data_the_ack_of_the_handshake_is_sent_at_once() {
    let bench = bench();
    // The machine may be busy with something else now and then, but not each time.
    let at_once = eventually(|| {
        let start = Instant::now();
        drop(bench.pair());
        start.elapsed() < DEFERRED / 2
    });
    assert!(at_once);
    let (mut client, mut server) = bench.pair();
    // This server sends first.
    server.write_all(b"b").unwrap();
    client.read_exact(&mut [0]).unwrap();
    client.write_all(b"a").unwrap();
    let received = segments_received(&mut server);
    assert!(
        received >= segments_of_a_direct_connection(),
        "{received} segments"
    );
}
