//! Hops that a node refuses.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use midspan_explicit::hop::{RowReader, row_request};

use super::support::*;

/// What the exit answers to a hop from the transit node's host.
fn answer(sites: &Sites, target: &str, fields: &str) -> String {
    let mut hop = from(&sites.fra, "10.3.0.2", 7704);
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields}\r\n");
    hop.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    hop.read_to_string(&mut answer).unwrap();
    answer
}

#[kernel_test]
fn an_exit_refuses_what_it_does_not_carry() {
    let sites = Sites::new("");
    let sin = sites.sin();
    let prohibited = "destination_ip_prohibited";
    let denied = "http_request_denied";
    for (target, fields, error) in [
        // Its own addresses, loopback, another network, mail.
        ("10.4.0.1:22", "", prohibited),
        ("10.3.0.2:7704", "", prohibited),
        ("127.0.0.1:22", "", prohibited),
        ("[::1]:22", "", prohibited),
        ("localhost:22", "", prohibited),
        ("10.1.0.2:22", "", prohibited),
        ("10.4.0.2:25", "", prohibited),
        (
            "10.4.0.2:80",
            "Via: 1.1 sin, 1.1 fra\r\n",
            "proxy_loop_detected",
        ),
        (
            "10.4.0.2:80",
            "Midspan-Route: ams, sin\r\n",
            "proxy_loop_detected",
        ),
        // fra sends in the name of ams.
        ("10.4.0.2:80", "Via: 1.1 ams\r\n", denied),
        // It is no transit node.
        (
            "10.4.0.2:80",
            "Via: 1.1 fra\r\nMidspan-Route: ams\r\n",
            denied,
        ),
        ("10.4.0.2:80", "Forwarded: for=x\r\n", "http_request_error"),
        ("10.4.0.2:80", "Content-Length: 1\r\n", "http_request_error"),
    ] {
        let answer = answer(&sites, target, fields);
        let expected = format!("Proxy-Status: sin; error={error}\r\n");
        assert!(answer.contains(&expected), "{target} {fields}: {answer}");
    }
    for why in [
        "has passed this node already",
        "its Via ends with another node",
        "this node is no transit node",
        "this node does not connect to this server",
        "its request is malformed",
    ] {
        let is_logged = |line: &str| {
            line.contains("hop refused") && line.contains(why) && line.contains("sender=10.3.0.1:")
        };
        wait_until(why, || sin.log().lines().any(is_logged));
    }
    // A member that is allowed to, and an address of the client that is not the sender's.
    let mut hop = from(&sites.fra, "10.3.0.2", 7704);
    let head = "CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\nVia: 1.1 ams, 1.1 fra\r\n\
                Forwarded: for=\"192.0.2.7:9\"\r\n\r\n";
    hop.write_all(head.as_bytes()).unwrap();
    let (mut server, _) = accept(&sites.listener);
    assert!(exactly::<12>(&mut hop).ends_with(b"200"));
    server.write_all(b"x").unwrap();
}

/// The next node would take a client that arrives from this machine for this machine.
#[kernel_test]
fn a_client_does_not_become_a_node() {
    let sites = Sites::new("");
    let [_ams, _fra, sin] = sites.all();
    for (node, name) in [([10, 2, 0, 2], "fra"), ([10, 3, 0, 2], "sin")] {
        let mut destination = vec![1];
        destination.extend(node);
        destination.extend(7704_u16.to_be_bytes());
        assert_eq!(socks(&sites, &destination).1, 2, "{name}");
    }
    assert!(!sin.log().contains("hop refused"), "{}", sin.log());
}

/// Requests the row of the exit, and reads the answer.
fn request_row(hop: &mut TcpStream) {
    hop.write_all(&row_request(&"sin".parse().unwrap(), None))
        .unwrap();
    let (mut reader, mut buffer) = (RowReader::default(), [0; 4096]);
    loop {
        let count = hop.read(&mut buffer).unwrap();
        assert!(count > 0, "the connection ended before the answer");
        if reader.take(&buffer[..count]).unwrap().is_some() {
            return;
        }
    }
}

/// Every request has an answer, but only some connections stay open after it. They would take the places of other nodes
/// and of clients.
#[kernel_test]
fn a_node_keeps_only_its_share_of_connections_for_rows() {
    /// 128 in each of two threads.
    const SHARE: usize = 256;
    const CONNECTIONS: usize = 400;
    let sites = Sites::new("");
    let _sin = sites.sin();
    let mut hops = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut hop = from(&sites.fra, "10.3.0.2", 7704);
        request_row(&mut hop);
        hop.set_nonblocking(true).unwrap();
        hops.push(hop);
    }
    let is_open = |hop: &mut TcpStream| {
        let read = hop.read(&mut [0]);
        matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    // Half of the time after which a connection without another request is closed.
    wait_within(Duration::from_secs(15), "the others are closed", || {
        hops.retain_mut(is_open);
        hops.len() <= SHARE
    });
    // Those that stay have another answer, and a new one has an answer, too.
    let mut hop = hops.pop().unwrap();
    hop.set_nonblocking(false).unwrap();
    request_row(&mut hop);
    request_row(&mut from(&sites.fra, "10.3.0.2", 7704));
}

#[kernel_test]
fn a_stranger_is_reset_unread() {
    let sites = Sites::new("");
    let text = sites
        .text(&blocks()[3])
        .replace("10.3.0.2:7704", "0.0.0.0:7704");
    let sin = Midspan::ready(&sites.sin, &text);
    // The reset may arrive before `connect` returns.
    let met = connect_from(&sites.server, "10.4.0.1", 7704, LIMIT);
    let met = met.and_then(|mut stranger| stranger.read(&mut [0]));
    assert!(met.is_err(), "{met:?}");
    wait_until("logged", || {
        sin.log().contains("client refused reason=access")
    });
}

#[kernel_test]
fn a_transit_node_goes_only_to_members() {
    let sites =
        Sites::new("[[node]]\nname = \"laptop\"\nfrom = \"10.2.0.9\"\nsecurity = \"network\"\n");
    let fra = sites.fra();
    let answer = |route: &str| {
        let mut hop = from(&sites.ams, "10.2.0.2", 7704);
        let head = format!(
            "CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\n{route}Via: 1.1 ams\r\n\r\n"
        );
        hop.write_all(head.as_bytes()).unwrap();
        String::from_utf8(rest(&mut hop)).unwrap()
    };
    for route in [
        "",
        "Midspan-Route: nobody\r\n",
        "Midspan-Route: laptop\r\n",
        "Midspan-Route: sin, a, b, c, d\r\n",
    ] {
        let answer = answer(route);
        let denied = "403 Forbidden\r\nProxy-Status: fra; error=http_request_denied\r\n";
        assert!(answer.contains(denied), "{route}: {answer}");
    }
    // No Midspan runs at sin: the transit node reports this, not the exit.
    let answer = answer("Midspan-Route: sin\r\n");
    assert!(
        answer.contains("Proxy-Status: fra; error=connection_refused\r\n"),
        "{answer}"
    );
    wait_until("logged", || fra.log().contains("route broken"));
}
