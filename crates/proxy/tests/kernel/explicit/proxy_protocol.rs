//! The PROXY protocol, with HAProxy in front of Midspan and behind it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use midspan_proxy::command::Request;

use super::support::*;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const HAPROXY: &str = "
global
    maxconn 100
defaults
    timeout connect 5s
    timeout client 10s
    timeout server 10s
frontend before_v1
    mode tcp
    bind 127.0.0.1:7001
    default_backend v1
backend v1
    mode tcp
    server midspan 127.0.0.1:8001 send-proxy
frontend before_v2
    mode tcp
    bind 127.0.0.1:7002
    default_backend v2
backend v2
    mode tcp
    server midspan 127.0.0.1:8002 send-proxy-v2
frontend before_socks
    mode tcp
    bind 127.0.0.1:7003
    default_backend socks
backend socks
    mode tcp
    server midspan 127.0.0.1:1080 send-proxy-v2
frontend behind
    mode http
    bind 127.0.0.1:9094 accept-proxy
    http-request return status 200 content-type text/plain lf-string \"%[src] %[dst]:%[dst_port]\"
";

const LISTENERS: &str = r#"
[[listener]]
name = "v1"
listen = "127.0.0.1:8001"
to = "127.0.0.1:9094"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
send_proxy_protocol = "v2"
clients = ["127.0.0.7"]
[[listener]]
name = "v2"
listen = "127.0.0.1:8002"
to = "127.0.0.1:9094"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
send_proxy_protocol = "v1"
[[listener]]
name = "socks"
mode = "socks5"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
access = [{ allow = "127.0.0.0/8", from = "127.0.0.7" }]
[[listener]]
name = "sender"
listen = "127.0.0.1:8003"
to = "127.0.0.1:9095"
send_proxy_protocol = "v1"
"#;

/// The client in the header is drained, not the proxy that sent it.
#[kernel_test]
fn the_told_client_is_drained() {
    let listener = TcpListener::bind("127.0.0.1:9095").unwrap();
    let proxy = Midspan::here(&with_head(
        r#"
[[listener]]
name = "told"
listen = "127.0.0.1:8004"
to = "127.0.0.1:9095"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
"#,
    ));
    let answer = proxy.ask(&Request::DrainOn {
        listener: "told".to_owned(),
        clients: vec!["192.0.2.0/25".to_owned(), "127.0.0.0/8".to_owned()],
    });
    assert!(answer.ok, "{answer:?}");
    let from = |client: &str| {
        let mut stream = connect("127.0.0.1:8004");
        let header = format!("PROXY TCP4 {client} 192.0.2.1 1000 80\r\nx");
        stream.write_all(header.as_bytes()).unwrap();
        stream
    };
    assert!(from("192.0.2.7").read_exact(&mut [0]).is_err());
    assert_refusals("drained", 1.0);
    let mut client = from("192.0.2.200");
    let mut server = bounded(listener.accept().unwrap().0);
    assert_eq!(exactly::<1>(&mut server), *b"x");
    server.write_all(b"y").unwrap();
    assert_eq!(exactly::<1>(&mut client), *b"y");
}

/// A listener with a limit for each client counts the client in the header, not the proxy that sent
/// it.
#[kernel_test]
fn the_told_client_counts() {
    let listener = TcpListener::bind("127.0.0.1:9095").unwrap();
    let proxy = Midspan::here(&with_head(
        r#"
[[listener]]
name = "capped"
listen = "127.0.0.1:8004"
to = "127.0.0.1:9095"
accept_proxy_protocol = true
proxy_protocol_from = ["127.0.0.1"]
sessions_per_client = 1
"#,
    ));
    let from = |client: &str| {
        let mut stream = connect("127.0.0.1:8004");
        let header = format!("PROXY TCP4 {client} 192.0.2.1 1000 80\r\nx");
        stream.write_all(header.as_bytes()).unwrap();
        stream
    };
    let serve = || {
        let mut server = bounded(listener.accept().unwrap().0);
        server.read_exact(&mut [0]).unwrap();
        server
    };
    let first = (from("192.0.2.7"), serve());
    let _second = (from("192.0.2.8"), serve());
    assert!(from("192.0.2.7").read(&mut [0]).is_err());
    drop(first);
    wait_until("one has ended", || proxy.ended_sessions().len() == 1);
    let _again = (from("192.0.2.7"), serve());
}

#[kernel_test]
fn with_haproxy() {
    if !has("haproxy") || !has("curl") {
        return skip("there is no haproxy or no curl");
    }
    super::serving::web();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("haproxy.cfg");
    fs::write(&file, HAPROXY).unwrap();
    let mut haproxy = Command::new("haproxy");
    haproxy.arg("-db").arg("-f").arg(&file);
    haproxy.stdout(Stdio::null()).stderr(Stdio::null());
    let _haproxy = Ended(haproxy.spawn().unwrap());
    let proxy = Midspan::here(&with_head(LISTENERS));
    wait_until("HAProxy is there", || {
        std::net::TcpStream::connect("127.0.0.1:9094").is_ok()
    });
    // Midspan passes on the client in HAProxy's header, and `clients` applies to this client.
    for port in ["7001", "7002"] {
        let url = format!("http://127.0.0.1:{port}/");
        let (code, text) = curl(&["--interface", "127.0.0.7", &url]);
        assert_eq!((code, text), (0, format!("127.0.0.7 127.0.0.1:{port}")));
    }
    let (code, _) = curl(&["--interface", "127.0.0.8", "http://127.0.0.1:7001/"]);
    assert_ne!(code, 0);
    // Access rules apply to the client in the header.
    let socks = |source| {
        let url = "http://127.0.0.1:9091/";
        curl(&["--interface", source, "--socks5", "127.0.0.1:7003", url])
    };
    assert_eq!(socks("127.0.0.7"), (0, "GET / HTTP/1.1".to_owned()));
    assert_ne!(socks("127.0.0.8").0, 0);
    wait_until("logged", || proxy.ended_sessions().len() == 3);
    for line in proxy.ended_sessions() {
        let client = line["client"].as_str().unwrap();
        assert!(client.starts_with("127.0.0.7:"), "{line}");
    }
    // A connection from an unknown proxy is refused, and a wrong header ends the connection.
    let mut other = connect("127.0.0.1:8002");
    other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(other.read(&mut [0]).is_err());
    assert!(refusals("malformed") >= 1.0);
    // The server gets the header before the client has sent data.
    let listener = TcpListener::bind("127.0.0.1:9095").unwrap();
    let client = connect("127.0.0.1:8003");
    let mut server = bounded(listener.accept().unwrap().0);
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} 8003\r\n",
        client.local_addr().unwrap().port()
    );
    let mut header = vec![0; expected.len()];
    server.read_exact(&mut header).unwrap();
    assert_eq!(String::from_utf8_lossy(&header), expected);
}
