//! Sessions over three nodes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use midspan_testbed::program::Launch;

use super::support::*;

#[kernel_test]
fn data_passes_both_ways_and_the_server_sees_the_exit() {
    let sites = Sites::new("");
    let nodes = sites.all();
    let (mut client, code) = socks(&sites, &address(2, PORT));
    assert_eq!(code, 0);
    let (mut server, seen) = accept(&sites.listener);
    assert_eq!(seen.ip().to_string(), "10.4.0.1");
    echoes(&mut client, &mut server);
    // The other way first, so that the server's end comes first.
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    carries(from_server, to_client, 10_000_000);
    carries(client, server, 10_000_000);
    for node in nodes {
        let log = node.end();
        for fault in ["hop refused", "client refused", "route broken"] {
            assert!(!log.contains(fault), "{log}");
        }
    }
}

#[kernel_test]
fn each_mode_enters_the_overlay() {
    let sites = Sites::new("");
    let _nodes = sites.all();
    // A forward listener; the server sends first.
    let mut client = from(&sites.client, "10.1.0.1", 8080);
    let (mut server, _) = accept(&sites.listener);
    server.write_all(b"banner").unwrap();
    assert_eq!(&exactly::<6>(&mut client), b"banner");
    echoes(&mut client, &mut server);
    // CONNECT, with data before the answer.
    let mut client = from(&sites.client, "10.1.0.1", 3128);
    let head = b"CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\n\r\nearly";
    client.write_all(head).unwrap();
    let (mut server, _) = accept(&sites.listener);
    assert_eq!(&exactly::<5>(&mut server), b"early");
    assert!(exactly::<12>(&mut client).ends_with(b"200"));
    // A plain request; its answer is the server's.
    let mut client = from(&sites.client, "10.1.0.1", 3128);
    let head = b"GET http://10.4.0.2/x HTTP/1.1\r\nHost: 10.4.0.2\r\nConnection: close\r\n\r\n";
    client.write_all(head).unwrap();
    let (server, _) = accept(&sites.listener);
    let mut line = String::new();
    BufReader::new(&server).read_line(&mut line).unwrap();
    assert_eq!(line, "GET /x HTTP/1.1\r\n");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    (&server).write_all(answer).unwrap();
    assert!(rest(&mut client).ends_with(b"\r\n\r\nhi"));
}

#[kernel_test]
fn the_exit_looks_names_up() {
    let sites = Sites::new("");
    let _nodes = sites.all();
    let name = [&b"\x03\x0dwww.site.test"[..], &PORT.to_be_bytes()].concat();
    let (mut client, code) = socks(&sites, &name);
    assert_eq!(code, 0);
    let (mut server, _) = accept(&sites.listener);
    echoes(&mut client, &mut server);
}

#[kernel_test]
fn half_close_passes_three_hops() {
    let sites = Sites::new("");
    let _nodes = sites.all();
    assert_half_closes_pass(|| session(&sites));
}

#[kernel_test]
fn a_reset_passes_three_hops() {
    let sites = Sites::new("");
    let _nodes = sites.all();
    assert_resets_pass(|| session(&sites));
}

#[kernel_test]
fn clients_learn_why_there_is_no_session() {
    let sites = Sites::new("");
    let _nodes = sites.all();
    // Refused by the server; a host that does not exist is silent for longer than the exit waits.
    assert_eq!(socks(&sites, &address(2, 81)).1, 5);
    assert_eq!(socks(&sites, &address(99, PORT)).1, 6);
    // The exit itself.
    assert_eq!(socks(&sites, &address(1, 22)).1, 2);
    let mut client = from(&sites.client, "10.1.0.1", 3128);
    let head = b"CONNECT 10.4.0.2:81 HTTP/1.1\r\nHost: 10.4.0.2:81\r\n\r\n";
    client.write_all(head).unwrap();
    let answer = String::from_utf8(rest(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.ends_with("the server refused the connection\n"),
        "{answer}"
    );
}

#[kernel_test]
fn a_killed_transit_node_resets_its_sessions() {
    let sites = Sites::new("");
    let [_sin, fra, ams] = sites.all();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    drop(fra);
    assert!(is_reset(&mut client) && is_reset(&mut server));
    // It is the route that is broken, not the server.
    assert_eq!(socks(&sites, &address(2, PORT)).1, 1);
    wait_until("logged", || ams.log().contains("route broken"));
    assert!(ams.log().contains("connection_refused"), "{}", ams.log());
    // With a new transit node, sessions pass again.
    let _fra = sites.fra();
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
}

/// The node `proxy`, which is no Midspan, in the place of `sin`.
const PROXY: &str = "[[node]]\nname = \"proxy\"\naddress = \"10.3.0.2:3128\"\nkind = \"connect\"\n\
                     security = \"network\"\n";

/// The nodes before it.
fn before_proxy(sites: &Sites) -> [Midspan; 2] {
    let text = sites.text(&blocks()[1]).replace("\"sin\"", "\"proxy\"");
    [sites.fra(), Midspan::ready(&sites.ams, &text)]
}

#[kernel_test]
fn a_proxy_that_knows_no_hops_is_an_exit() {
    let sites = Sites::new(PROXY);
    let plain = "[relay]\nthreads = 1\n[[listener]]\nname = \"http\"\nmode = \"http\"\n\
                 listen = \"10.3.0.2:3128\"\nclients = [\"10.3.0.1\"]\n";
    let _proxy = Midspan::ready(&sites.sin, plain);
    let _nodes = before_proxy(&sites);
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    // That proxy has no way to report more than a status.
    assert_eq!(socks(&sites, &address(2, 81)).1, 4);
    assert_eq!(socks(&sites, &address(1, 22)).1, 2);
}

#[kernel_test]
fn tinyproxy_is_an_exit() {
    if Command::new("tinyproxy").arg("-v").output().is_err() {
        return skip("tinyproxy is not installed");
    }
    let sites = Sites::new(PROXY);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "Port 3128\nListen 10.3.0.2\nAllow 10.3.0.1\nMaxClients 20\nTimeout 60\n\
                ConnectPort 80\nConnectPort 81\n";
    file.write_all(text.as_bytes()).unwrap();
    let _proxy = Launch::new("tinyproxy")
        .args(["-d", "-c"])
        .arg(file.path())
        .inside(&sites.sin)
        .start()
        .unwrap();
    let second = Duration::from_secs(1);
    wait_until("tinyproxy listens", || {
        connect_from(&sites.fra, "10.3.0.2", 3128, second).is_ok()
    });
    let _nodes = before_proxy(&sites);
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    // It answers with status 500 that it is unable to connect, and with 403 to other ports.
    assert_eq!(socks(&sites, &address(2, 81)).1, 4);
    assert_eq!(socks(&sites, &address(2, 22)).1, 2);
}

#[kernel_test]
fn a_stopped_transit_node_takes_no_longer_than_the_time_limit() {
    let sites = Sites::new("");
    let fra = sites.fra();
    let limited = "mode = \"socks5\"\nconnect_timeout = \"1500 ms\"";
    let text = sites.text(&blocks()[1]);
    let text = text.replace("mode = \"socks5\"", limited);
    let _ams = Midspan::ready(&sites.ams, &text);
    // Its kernel still accepts connections. Its watchdog ends it later.
    stop_process(fra.relay());
    let begin = Instant::now();
    assert_eq!(socks(&sites, &address(2, PORT)).1, 6);
    assert!(begin.elapsed() >= Duration::from_millis(1500));
}

#[kernel_test]
fn curl_is_an_ingress() {
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("there is no curl");
    }
    let sites = Sites::new("");
    let _nodes = [sites.sin(), sites.fra()];
    let listener = sites.listener.try_clone().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut server, _) = accept(&listener);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            server.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        server.write_all(answer).unwrap();
    });
    let arguments = [
        "-q",
        "-sS",
        "--noproxy",
        "",
        "--max-time",
        "20",
        "--proxytunnel",
        "--proxy",
        "http://10.2.0.2:7704",
        "--proxy-header",
        "Midspan-Route: sin",
        "http://10.4.0.2/",
    ];
    assert_eq!(output(&sites.ams, "curl", &arguments), "hello");
    serving.join().unwrap();
}
