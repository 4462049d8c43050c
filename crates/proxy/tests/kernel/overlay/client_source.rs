//! An exit that connects to servers from the addresses of their clients (`source = "client"`).

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::support::*;
use crate::common::Control;

/// The sites. The server reaches clients by the exit.
fn sites() -> Sites {
    let sites = Sites::new("");
    route(&sites.server, "10.0.0.0/8", "10.4.0.1", "eth");
    sites
}

/// The configuration of an exit that may use the addresses of these clients.
fn text(sites: &Sites, clients: &str) -> String {
    let keys = format!("mode = \"hop\"\nsource = \"client\"\nclients = [\"{clients}\"]");
    let text = sites.text(&blocks()[3]);
    let changed = text.replace("mode = \"hop\"", &keys);
    assert_ne!(changed, text);
    changed
}

fn exit(sites: &Sites) -> Midspan {
    Midspan::ready(&sites.sin, &text(sites, "10.1.0.0/24"))
}

#[kernel_test]
fn the_server_sees_the_client() {
    let sites = sites();
    let _nodes = [exit(&sites), sites.fra(), sites.ams()];
    let (mut client, code) = socks(&sites, &address(2, PORT));
    assert_eq!(code, 0);
    let (mut server, seen) = accept(&sites.listener);
    assert_eq!(seen, client.local_addr().unwrap());
    echoes(&mut client, &mut server);
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    carries(from_server, to_client, 3_000_000);
    carries(client, server, 3_000_000);
    let (mut client, mut server) = session(&sites);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut server), b"");
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(rest(&mut client), b"answer");
    let (mut client, mut server) = session(&sites);
    echoes(&mut client, &mut server);
    abort(server);
    assert!(is_reset(&mut client));
    assert_eq!(socks(&sites, &address(2, 81)).1, 5);
}

#[kernel_test]
fn an_exit_does_not_use_the_address_of_any_client() {
    let sites = sites();
    let sin = Midspan::ready(&sites.sin, &text(&sites, "10.1.9.0/24"));
    let _nodes = [sites.fra(), sites.ams()];
    assert_eq!(socks(&sites, &address(2, PORT)).1, 2);
    let why = "does not connect from the address of the session's client";
    wait_until("logged", || sin.log().contains(why));
}

/// A hop from the transit node's host for this client.
fn hop(sites: &Sites, client: &str) -> TcpStream {
    let mut hop = from(&sites.fra, "10.3.0.2", 7704);
    let head = format!(
        "CONNECT 10.4.0.2:80 HTTP/1.1\r\nHost: 10.4.0.2:80\r\nForwarded: for=\"{client}\"\r\n\r\n"
    );
    hop.write_all(head.as_bytes()).unwrap();
    assert!(exactly::<12>(&mut hop).ends_with(b"200"));
    hop
}

#[kernel_test]
fn a_port_that_cannot_be_used_is_replaced() {
    let sites = sites();
    let _sin = exit(&sites);
    let _first = hop(&sites, "10.1.0.2:50000");
    let (_server, seen) = accept(&sites.listener);
    let client: SocketAddr = "10.1.0.2:50000".parse().unwrap();
    assert_eq!(seen, client);
    // In use; privileged; not named.
    for other in ["10.1.0.2:50000", "10.1.0.2:99", "10.1.0.2"] {
        let _hop = hop(&sites, other);
        let (_server, seen) = accept(&sites.listener);
        assert_eq!(seen.ip(), client.ip(), "{other}");
        assert_ne!(seen.port(), client.port(), "{other}");
    }
}

#[kernel_test]
fn a_reload_makes_the_rules() {
    let sites = sites();
    let sin = sites.sin();
    let _nodes = [sites.fra(), sites.ams()];
    let seen = || {
        let (mut client, code) = socks(&sites, &address(2, PORT));
        assert_eq!(code, 0);
        let (mut server, seen) = accept(&sites.listener);
        echoes(&mut client, &mut server);
        seen.ip().to_string()
    };
    assert_eq!(seen(), "10.4.0.1");
    assert!(sin.reload(&text(&sites, "10.1.0.0/24")).ok);
    assert_eq!(seen(), "10.1.0.2");
    let own = sites.text(&blocks()[3]);
    assert!(sin.reload(&own).ok);
    assert_eq!(seen(), "10.4.0.1");
}
