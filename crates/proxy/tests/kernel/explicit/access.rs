//! Access: which clients may use a listener, and which servers they may reach.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::support::*;

/// The answer code of the SOCKS5 listener to a request for this destination.
pub fn socks(destination: &[u8]) -> u8 {
    let mut client = connect(SOCKS);
    client.write_all(b"\x05\x01\x00").unwrap();
    exactly::<2>(&mut client);
    client
        .write_all(&[b"\x05\x01\x00", destination].concat())
        .unwrap();
    exactly::<10>(&mut client)[1]
}

#[kernel_test]
fn own_addresses_are_out_of_reach() {
    let _listeners = ["127.0.0.1:9090", "[::1]:9090", "192.0.2.1:9090"]
        .map(|address| TcpListener::bind(address).unwrap());
    let _proxy = Midspan::here(&with_head(
        "[[listener]]\nname = \"socks\"\nmode = \"socks5\"\n\
         [[listener]]\nname = \"http\"\nmode = \"http\"\n",
    ));
    let own: [&[u8]; 8] = [
        b"\x01\x7f\x00\x00\x01\x23\x82",
        b"\x01\x7f\x01\x02\x03\x23\x82",
        b"\x01\x00\x00\x00\x00\x23\x82",
        b"\x01\xc0\x00\x02\x01\x23\x82",
        b"\x01\xa9\xfe\xa9\xfe\x23\x82",
        b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x23\x82",
        // 127.0.0.1 inside an IPv6 address, and a name whose address is this machine's.
        b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x23\x82",
        b"\x03\x09localhost\x23\x82",
    ];
    for destination in own {
        assert_eq!(socks(destination), 2, "{destination:?}");
    }
    assert_refusals("access", 8.0);
    let mut client = connect(HTTP);
    client
        .write_all(b"GET http://localhost:9464/metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(rest(&mut client).starts_with(b"HTTP/1.1 403 "));
}

/// Whether the proxy refuses a client; the reset may arrive before `connect` returns.
pub fn is_refused_from(source: &str, to: &str) -> bool {
    let read = connect_as(source, to).and_then(|mut client| client.read(&mut [0]));
    read.is_err()
}

#[kernel_test]
fn rules_decide() {
    let listener = TcpListener::bind(SERVER).unwrap();
    let _other = TcpListener::bind("127.0.0.1:9093").unwrap();
    let _proxy = Midspan::here(&with_head(
        r#"
[[listener]]
name = "socks"
mode = "socks5"
access = [
    { allow = "127.0.0.0/8", ports = [9090], from = "127.0.0.1" },
    { deny = "all" },
]
[[listener]]
name = "forward"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
clients = ["127.0.0.7"]
[[listener]]
name = "open"
mode = "socks5"
listen = "0.0.0.0:1081"
clients = ["127.0.0.7"]
access = [{ allow = "127.0.0.1" }]
"#,
    ));
    assert_eq!(socks(b"\x01\x7f\x00\x00\x01\x23\x82"), 0);
    assert_eq!(socks(b"\x01\x7f\x00\x00\x01\x23\x85"), 2);
    assert_eq!(socks(b"\x01\xc0\x00\x02\x09\x23\x82"), 2);
    // A client that may not use the listener.
    let mut client = connect_as("127.0.0.2:0", SOCKS).unwrap();
    client
        .write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x23\x82")
        .unwrap();
    assert_eq!(exactly::<12>(&mut client)[3], 2);
    drop(listener.accept().unwrap());
    // A forward listener refuses the client before it connects to the server.
    assert!(is_refused_from("127.0.0.2:0", FORWARD));
    let mut served = connect_as("127.0.0.7:0", FORWARD).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"x").unwrap();
    assert_eq!(exactly::<1>(&mut served), *b"x");
    // A listener on all addresses refuses the client too.
    assert!(is_refused_from("127.0.0.2:0", "127.0.0.1:1081"));
    let mut heard = connect_as("127.0.0.7:0", "127.0.0.1:1081").unwrap();
    heard.write_all(b"\x05\x01\x00").unwrap();
    assert_eq!(exactly::<2>(&mut heard), *b"\x05\x00");
}

/// The log line has the documented form for programs that read it, and the number of lines is
/// limited.
#[kernel_test]
fn refused_clients_are_logged() {
    let proxy = Midspan::here(
        r#"
[relay]
threads = 1
drain_timeout = "0 s"
[admin]
listen = "127.0.0.1:9464"
[[listener]]
name = "socks"
mode = "socks5"
users = { alice = "secret" }
access = [{ allow = "192.0.2.0/24" }]
[[listener]]
name = "http"
mode = "http"
users = { alice = "secret" }
[[listener]]
name = "forward"
listen = "127.0.0.1:8080"
to = "127.0.0.1:9090"
clients = ["127.0.0.7"]
"#,
    );
    let lines = |reason: &str| -> Vec<String> {
        let start = format!("client refused reason={reason} client=");
        let log = proxy.log();
        let found = log.lines().filter_map(|line| line.split_once(&start));
        found.map(|(_, rest)| rest.to_owned()).collect()
    };
    let login = |address: &str, user: &str, password: &str| {
        let mut client = connect_as(address, SOCKS).unwrap();
        let text = [
            b"\x05\x01\x02\x01".as_slice(),
            &[u8::try_from(user.len()).unwrap()],
            user.as_bytes(),
            &[u8::try_from(password.len()).unwrap()],
            password.as_bytes(),
        ];
        client.write_all(&text.concat()).unwrap();
        exactly::<4>(&mut client)[3]
    };
    assert_eq!(login("127.0.0.3:0", "alice", "guess\n\x1b[31m"), 1);
    // If a client sends no password, the answer contains the supported method.
    let mut client = connect(HTTP);
    client
        .write_all(b"GET http://192.0.2.9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert!(rest(&mut client).starts_with(b"HTTP/1.1 407 "));
    let mut client = connect_as("127.0.0.4:0", HTTP).unwrap();
    let wrong =
        "GET http://192.0.2.9/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic YTpi\r\n\r\n";
    client.write_all(wrong.as_bytes()).unwrap();
    assert!(rest(&mut client).starts_with(b"HTTP/1.1 407 "));
    assert!(is_refused_from("127.0.0.5:0", FORWARD));
    wait_until("logged", || {
        lines("login").len() == 2 && lines("access").len() == 1
    });
    let [socks, http] = &lines("login")[..] else {
        panic!("{}", proxy.log());
    };
    let form = |line: &str, client: &str, listener: &str| {
        let rest = line.strip_prefix(&format!("{client} port=")).unwrap();
        let (port, rest) = rest.split_once(' ').unwrap();
        assert!(port.parse::<u16>().unwrap() > 0);
        assert_eq!(rest, format!("listener={listener} not_logged=0"));
    };
    form(socks, "127.0.0.3", "socks");
    form(http, "127.0.0.4", "http");
    form(&lines("access")[0], "127.0.0.5", "forward");
    assert!(!proxy.log().contains("guess"));
    // The rules for destinations do not affect the login.
    assert_eq!(login("127.0.0.6:0", "alice", "secret"), 0);
    for _ in 0..300 {
        assert_eq!(login("127.0.0.3:0", "alice", "wrong"), 1);
    }
    let count = lines("login").len();
    assert!((50..200).contains(&count), "{count}");
    let left_out = || -> u64 {
        let lines = lines("login");
        let counts = lines.iter().filter_map(|line| line.rsplit_once('='));
        counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    };
    wait_until("all told", || {
        assert_eq!(login("127.0.0.3:0", "alice", "wrong"), 1);
        left_out() + 50 > 300 - 100 && left_out() > 0
    });
}
