//! A transparent listener that answers the client before the route is called, and sends its first data with the call.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use midspan_linux::tcp;
use midspan_proxy::overlay::OverlayReport;

use super::support::*;
use super::transparent::{call, ingress, routed, sites};
use super::warm::silence_warm_connections;

const EARLY: &str = "handshake = \"early\"\n";

/// Both ends of a session that the client begins with this data.
fn opened(sites: &Sites, data: &[u8]) -> (TcpStream, TcpStream) {
    let mut client = call(sites, PORT, LIMIT).unwrap();
    client.write_all(data).unwrap();
    let (mut server, seen) = accept(&sites.listener);
    assert_eq!(seen.ip().to_string(), "10.4.0.1");
    let mut got = vec![0; data.len()];
    server.read_exact(&mut got).unwrap();
    assert_eq!(got, data);
    (client, server)
}

/// Warm connections from ams to fra that can be used.
fn ready(ams: &Midspan) -> u64 {
    let report: OverlayReport = page(ams, "/overlay");
    let mut nodes = report.nodes.into_iter();
    nodes.find(|node| node.name == "fra").unwrap().warm.ready
}

#[kernel_test]
fn the_client_is_answered_while_the_route_is_silent() {
    let sites = sites();
    let _nodes = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    rules(&sites.fra, NO_NEW_ONES);
    let mut client = call(&sites, PORT, LIMIT).unwrap();
    client.write_all(b"question").unwrap();
    rules(&sites.fra, "delete table inet closed\n");
    let (mut server, _) = accept(&sites.listener);
    assert_eq!(&exactly::<8>(&mut server), b"question");
    echoes(&mut client, &mut server);
    assert_half_closes_pass(|| opened(&sites, b"x"));
    assert_resets_pass(|| opened(&sites, b"x"));
}

#[kernel_test]
fn first_data_arrives_once() {
    carries_first_data(sites());
}

#[kernel_test]
fn first_data_arrives_once_over_encrypted_hops() {
    carries_first_data(routed(Sites::encrypted("")));
}

fn carries_first_data(sites: Sites) {
    let [_sin, _fra, ams] = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    let data: Vec<u8> = (0..50_000_u32).map(|number| (number % 251) as u8).collect();
    for _ in 0..10 {
        let (client, mut server) = opened(&sites, &data);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut server), b"");
    }
    wait_until("there are warm connections", || ready(&ams) >= 2);
    for _ in 0..10 {
        drop(opened(&sites, &data));
    }
}

/// The node has acknowledged nothing of the data, so it is sent again.
#[kernel_test]
fn first_data_survives_a_dead_warm_connection() {
    let sites = sites();
    let [_sin, _fra, ams] = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    drop(opened(&sites, b"x"));
    wait_until("there are warm connections", || ready(&ams) >= 2);
    silence_warm_connections(&sites);
    let (mut client, mut server) = opened(&sites, b"question");
    echoes(&mut client, &mut server);
    assert!(!ams.log().contains("route broken"), "{}", ams.log());
}

#[kernel_test]
fn a_server_that_refuses_is_a_reset() {
    let sites = sites();
    let [sin, _fra, _ams] = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    let mut client = call(&sites, 81, LIMIT).unwrap();
    assert!(is_reset(&mut client));
    drop(sin);
    let mut client = call(&sites, PORT, LIMIT).unwrap();
    assert!(is_reset(&mut client));
}

/// This session does not go by a route.
#[kernel_test]
fn a_session_that_leaves_here_has_the_address_of_the_client() {
    let sites = sites();
    route(&sites.fra, "10.1.0.0/24", "10.2.0.1", "ams");
    let near = listen(&sites.fra, 90);
    let _nodes = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    let mut client = connect_from(&sites.client, "10.2.0.2", 90, LIMIT).unwrap();
    let (mut server, seen) = accept(&near);
    assert_eq!(seen, client.local_addr().unwrap());
    echoes(&mut client, &mut server);
}

/// Data before a reset arrives, in each direction.
#[kernel_test]
fn a_reset_does_not_overtake_data() {
    let sites = sites();
    let nodes = [sites.sin(), sites.fra(), ingress(&sites, EARLY)];
    let data = vec![7; 40_000];
    // The kernel drops what it has not sent at a reset.
    let send = |stream: &mut TcpStream| {
        stream.write_all(&data).unwrap();
        wait_until("all data is acknowledged", || {
            tcp::unacknowledged_bytes(&*stream).unwrap().bytes() == 0
        });
    };
    let is_whole = |got: &mut TcpStream| {
        let mut all = vec![0; data.len()];
        got.read_exact(&mut all).is_ok() && is_reset(got)
    };
    let (mut from_server, mut from_client) = (0, 0);
    for _ in 0..50 {
        let mut client = call(&sites, PORT, LIMIT).unwrap();
        let (mut server, _) = accept(&sites.listener);
        send(&mut server);
        abort(server);
        from_server += u32::from(is_whole(&mut client));
        let mut client = call(&sites, PORT, LIMIT).unwrap();
        send(&mut client);
        abort(client);
        let (mut server, _) = accept(&sites.listener);
        from_client += u32::from(is_whole(&mut server));
    }
    let logs = nodes.map(Midspan::end);
    assert_eq!((from_server, from_client), (50, 50), "{}", logs.join("\n"));
}
