//! Ends, resets and failures, in each mode.

use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use socket2::SockRef;

use super::support::*;

#[kernel_test]
fn half_close_in_each_mode() {
    let _proxy = Midspan::here(&each_mode(""));
    let listener = TcpListener::bind(SERVER).unwrap();
    for mode in MODES {
        // The client ends its data first; the answer follows.
        let mut client = through(mode);
        let mut server = bounded(listener.accept().unwrap().0);
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut server), b"question", "{mode}");
        server.write_all(b"answer").unwrap();
        drop(server);
        assert_eq!(rest(&mut client), b"answer", "{mode}");
        // The server sends first, and ends its data first.
        let mut client = through(mode);
        let mut server = bounded(listener.accept().unwrap().0);
        server.write_all(b"banner").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut client), b"banner", "{mode}");
        client.write_all(b"after").unwrap();
        drop(client);
        assert_eq!(rest(&mut server), b"after", "{mode}");
    }
}

#[kernel_test]
fn resets_in_each_mode() {
    let _proxy = Midspan::here(&each_mode(""));
    let listener = TcpListener::bind(SERVER).unwrap();
    for mode in MODES {
        for by_server in [true, false] {
            let client = through(mode);
            let server = bounded(listener.accept().unwrap().0);
            let (mut ends, stays) = match by_server {
                true => (server, client),
                false => (client, server),
            };
            ends.write_all(b"last").unwrap();
            SockRef::from(&ends)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(ends);
            is_reset_after(stays, b"last");
        }
    }
}

#[kernel_test]
fn early_data_is_kept() {
    let _proxy = Midspan::here(&each_mode(""));
    let listener = TcpListener::bind(SERVER).unwrap();
    let greeting = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82".to_vec();
    let connect_head = b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let data: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
    for (address, head, reply) in [(SOCKS, greeting, 12), (HTTP, connect_head, 39)] {
        // The client sends everything at once, and its FIN.
        let mut client = connect(address);
        client.write_all(&[head, data.clone()].concat()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut server = bounded(listener.accept().unwrap().0);
        assert!(rest(&mut server) == data, "{address}");
        server.write_all(b"done").unwrap();
        drop(server);
        let answer = rest(&mut client);
        assert_eq!(&answer[reply..], b"done", "{address}");
    }
}

#[kernel_test]
fn failures_have_codes() {
    let proxy = Midspan::here(&each_mode("connect_timeout = \"500 ms\""));
    let socks = |target: &[u8]| {
        let mut client = connect(SOCKS);
        client.write_all(b"\x05\x01\x00").unwrap();
        exactly::<2>(&mut client);
        client
            .write_all(&[b"\x05\x01\x00", target].concat())
            .unwrap();
        let reply = rest(&mut client);
        assert_eq!(reply.len(), 10);
        reply[1]
    };
    let http = |target: &str| {
        let mut client = connect(HTTP);
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let reply = rest(&mut client);
        String::from_utf8_lossy(&reply[9..12]).into_owned()
    };
    // A refusal, no answer, no route, and a name that does not exist.
    assert_eq!(socks(b"\x01\x7f\x00\x00\x01\x00\x09"), 5);
    assert_eq!(socks(b"\x01\xc0\x00\x02\x09\x00\x09"), 6);
    assert_eq!(socks(b"\x01\xcb\x00\x71\x09\x00\x09"), 3);
    assert_eq!(socks(b"\x03\x0fnonsuch.invalid\x00\x09"), 4);
    assert_eq!(http("127.0.0.1:9"), "502");
    assert_eq!(http("192.0.2.9:9"), "504");
    assert_eq!(http("203.0.113.9:9"), "502");
    assert_eq!(http("nonsuch.invalid:9"), "502");
    assert_refusals("name", 2.0);
    wait_until("logged", || proxy.ended_sessions().len() == 6);
    let ended = |how: &str| {
        metric(&format!(
            "midspan_sessions_ended_total{{listener=\"socks\",how=\"{how}\"}}"
        ))
    };
    assert_eq!(ended("refused"), 1.0);
    assert_eq!(ended("connect_timed_out"), 1.0);
    assert_eq!(ended("server_unreachable"), 1.0);
    wait_until("forgotten", || metric("midspan_negotiations") == 0.0);
}
