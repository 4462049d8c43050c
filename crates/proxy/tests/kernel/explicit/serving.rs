//! What each mode does for its clients.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Once;

use super::support::*;

/// One server for all tests that need one.
pub fn web() {
    static START: Once = Once::new();
    START.call_once(|| {
        serve_http("127.0.0.1:9091");
        serve_http("[::1]:9091");
        // Listens on IPv4 only.
        serve_http("127.0.0.1:9092");
    });
}

fn is_served(arguments: &[&str], line: &str) {
    let (code, text) = curl(arguments);
    assert_eq!((code, text.as_str()), (0, line), "{arguments:?}");
}

#[kernel_test]
fn curl_by_socks5() {
    if !has("curl") {
        return skip("there is no curl");
    }
    web();
    let proxy = Midspan::here(&each_mode(""));
    let line = "GET /page HTTP/1.1";
    for url in ["http://127.0.0.1:9091/page", "http://[::1]:9091/page"] {
        is_served(&["--socks5", SOCKS, url], line);
        is_served(&["--socks5-hostname", SOCKS, url], line);
    }
    // The name has addresses of both families, and only one of them answers.
    is_served(
        &["--socks5-hostname", SOCKS, "http://localhost:9092/page"],
        line,
    );
    wait_until("logged", || proxy.ended_sessions().len() == 5);
    let lines = proxy.ended_sessions();
    let named = lines
        .iter()
        .find(|line| line["destination"] == "localhost:9092");
    let named = named.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(named["listener"], "socks");
    assert_eq!(named["server"], "127.0.0.1:9092");
    wait_until("forgotten", || metric("midspan_negotiations") == 0.0);
}

#[kernel_test]
fn curl_by_http() {
    if !has("curl") {
        return skip("there is no curl");
    }
    web();
    let _proxy = Midspan::here(&each_mode(""));
    let line = "GET /page?x=1 HTTP/1.1";
    let proxy = format!("http://{HTTP}");
    for url in [
        "http://127.0.0.1:9091/page?x=1",
        "http://[::1]:9091/page?x=1",
        "http://localhost:9092/page?x=1",
    ] {
        is_served(&["--proxy", &proxy, url], line);
        is_served(&["--proxy", &proxy, "-p", url], line);
    }
    // A body follows the head.
    let body = "x".repeat(100_000);
    is_served(
        &["--proxy", &proxy, "-d", &body, "http://127.0.0.1:9091/"],
        "POST / HTTP/1.1",
    );
}

#[kernel_test]
fn names_and_passwords() {
    if !has("curl") {
        return skip("there is no curl");
    }
    web();
    let _proxy = Midspan::here(&each_mode("users = { alice = \"secret\", bob = \"x\" }"));
    let url = "http://127.0.0.1:9091/";
    let line = "GET / HTTP/1.1";
    let http = format!("http://{HTTP}");
    for proxy in [["--socks5", SOCKS], ["--proxy", &http]] {
        let with = |user| [&proxy[..], &["--proxy-user", user, url]].concat();
        is_served(&with("alice:secret"), line);
        is_served(&with("bob:x"), line);
        let (code, text) = curl(&with("alice:wrong"));
        assert_ne!((code, text.as_str()), (0, line));
        let (code, text) = curl(&[&proxy[..], &[url]].concat());
        assert_ne!((code, text.as_str()), (0, line));
    }
    let (_, status) = curl(&[
        "--proxy",
        &http,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        url,
    ]);
    assert_eq!(status, "407");
    assert_refusals("unauthenticated", 5.0);
}

/// After wrong passwords, a client's logins are refused for a while, even with the right password.
/// Another client is served.
#[kernel_test]
fn wrong_passwords_are_limited() {
    let _server = TcpListener::bind(SERVER).unwrap();
    let _proxy = Midspan::here(&each_mode("users = { alice = \"secret\" }"));
    // The server's answer (RFC 1929): 0 means success.
    let answer = |from: u8, password: &[u8]| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let from = std::net::SocketAddr::from(([127, 0, 0, from], 0));
        socket.bind(&from.into()).unwrap();
        let to: std::net::SocketAddr = SOCKS.parse().unwrap();
        socket.connect(&to.into()).unwrap();
        let mut stream = bounded(socket.into());
        stream.write_all(&[5, 1, 2]).unwrap();
        assert_eq!(exactly(&mut stream), [5, 2]);
        let length = u8::try_from(password.len()).unwrap();
        let said = [&[1, 5][..], b"alice", &[length], password].concat();
        stream.write_all(&said).unwrap();
        exactly::<2>(&mut stream)[1]
    };
    let is_accepted = |from, password| answer(from, password) == 0;
    assert!(is_accepted(2, b"secret"));
    for _ in 0..10 {
        assert!(!is_accepted(2, b"guess"));
    }
    // The proxy counts the failure when the connection ends, a moment after its answer.
    wait_until("limited", || !is_accepted(2, b"secret"));
    assert!(is_accepted(3, b"secret"));
    assert!(!is_accepted(2, b"secret"));
}

#[kernel_test]
fn many_at_once() {
    let _proxy = Midspan::here(&each_mode(""));
    let listener = TcpListener::bind(SERVER).unwrap();
    let server = std::thread::spawn(move || {
        let mut streams = Vec::new();
        for _ in 0..200 {
            streams.push(bounded(listener.accept().unwrap().0));
        }
        for mut stream in streams {
            std::thread::spawn(move || {
                let bytes = rest(&mut stream);
                stream.write_all(&bytes).unwrap();
            });
        }
    });
    let clients: Vec<_> = (0..200_u32)
        .map(|number| {
            std::thread::spawn(move || {
                let mode = ["socks5", "http"][number as usize % 2];
                let mut client = through(mode);
                let sent = vec![number as u8; 20_000];
                client.write_all(&sent).unwrap();
                client.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(rest(&mut client), sent);
            })
        })
        .collect();
    server.join().unwrap();
    for client in clients {
        client.join().unwrap();
    }
    wait_until("ended", || {
        metric("midspan_sessions_ended_total{listener=\"socks\",how=\"closed\"}") == 100.0
    });
}

#[kernel_test]
fn a_reload_keeps_sessions() {
    let proxy = Midspan::here(&each_mode("users = { alice = \"old\" }"));
    let listener = TcpListener::bind(SERVER).unwrap();
    let login = |password: &[u8]| {
        let mut client = connect(SOCKS);
        client.write_all(b"\x05\x01\x02").unwrap();
        assert_eq!(exactly::<2>(&mut client), *b"\x05\x02");
        let length = [password.len() as u8];
        client
            .write_all(&[b"\x01\x05alice", &length[..], password].concat())
            .unwrap();
        let [_, status] = exactly::<2>(&mut client);
        (client, status)
    };
    let (mut client, status) = login(b"old");
    assert_eq!(status, 0);
    client
        .write_all(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82")
        .unwrap();
    let mut server = bounded(listener.accept().unwrap().0);
    exactly::<10>(&mut client);
    // A negotiation that has begun continues with the old settings.
    let (mut speaking, _) = login(b"old");
    proxy.reload_by_signal(&each_mode("users = { alice = \"new\" }"));
    server.write_all(b"still").unwrap();
    assert_eq!(exactly::<5>(&mut client), *b"still");
    speaking
        .write_all(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82")
        .unwrap();
    assert_eq!(exactly::<10>(&mut speaking)[1], 0);
    assert_eq!(login(b"old").1, 1);
    assert_eq!(login(b"new").1, 0);
    client.write_all(b"too").unwrap();
    let mut bytes = [0; 3];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"too");
}
