//! Clients that break the rules of a protocol, or exceed a time limit.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::{Duration, Instant};

use super::support::*;

/// The answer to a client of SOCKS4 in its own protocol.
const REJECTED_BY_SOCKS4: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

#[kernel_test]
fn a_client_of_socks4_is_told() {
    let _proxy = Midspan::here(&each_mode(""));
    let mut client = connect(SOCKS);
    client
        .write_all(b"\x04\x01\x23\x82\x7f\x00\x00\x01user\x00")
        .unwrap();
    assert_eq!(rest(&mut client), REJECTED_BY_SOCKS4);
    drop(client);
    assert_refusals("unsupported", 1.0);
}

#[kernel_test]
fn clients_that_break_rules() {
    let _proxy = Midspan::here(&each_mode(""));
    let _listener = TcpListener::bind(SERVER).unwrap();
    let mut endless = b"GET http://127.0.0.1:9090/ HTTP/1.1\r\n".to_vec();
    while endless.len() < 200_000 {
        endless.extend(b"X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n");
    }
    let by_socks: [&[u8]; 7] = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
        b"\x05\x00",
        b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x23\x82",
        b"\x05\x01\x00\x05\x01\x00\x09\x7f",
        b"\x05\x01\x00\x05\x01\x00\x03\x04a..b\x23\x82",
    ];
    let by_http: [&[u8]; 6] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x HTTP/1.1\r\n\r\n",
        b"GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n",
        b"POST http://127.0.0.1:9090/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: \
          chunked\r\n\r\n",
        &endless,
    ];
    let socks = by_socks.iter().map(|bytes| (SOCKS, bytes, &b"\x05"[..]));
    let http = by_http.iter().map(|bytes| (HTTP, bytes, &b"HTTP/1.1 "[..]));
    for (address, bytes, start) in socks.chain(http) {
        let mut client = connect(address);
        let _ = client.write_all(bytes);
        let _ = client.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with(start) || answer == REJECTED_BY_SOCKS4,
            "{shown}: {answer:?}"
        );
        let http_status = answer.get(9..10);
        assert!(
            address == SOCKS || http_status == Some(b"4") || http_status == Some(b"5"),
            "{shown}: {answer:?}"
        );
    }
    assert_refusals("gone", 1.0);
    assert_refusals("malformed", 7.0);
    assert_refusals("unsupported", 4.0);
    assert_refusals("unauthenticated", 1.0);
    wait_until("forgotten", || metric("midspan_negotiations") == 0.0);
    // The listener serves other clients as before.
    through("socks5");
}

#[kernel_test]
fn slow_clients_are_sent_away() {
    let _proxy = Midspan::here(&each_mode("negotiation_timeout = \"2 s\""));
    let _listener = TcpListener::bind(SERVER).unwrap();
    let start = Instant::now();
    let mut silent: Vec<_> = (0..50).map(|_| connect(SOCKS)).collect();
    // A client that sends a byte now and then gets no more time.
    let mut slow = connect(HTTP);
    let mut sent = 0;
    let head = b"GET http://127.0.0.1:9090/ HTTP/1.1\r\nX: ";
    for byte in head.iter().chain(std::iter::repeat(&b'y')) {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        sent += 1;
        assert!(start.elapsed() < LIMIT, "{sent} bytes");
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in &mut silent {
        assert!(client.read(&mut [0]).is_err());
    }
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_refusals("silent", 51.0);
    // A slow client within the time limit is served; sessions have other limits.
    let client = through("http");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(metric("midspan_sessions_active{listener=\"http\"}"), 1.0);
    drop(client);
}
