//! The key `source`: server legs connect from several addresses of this machine, in turn.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use midspan_linux::tcp;
use midspan_testbed::program::Launch;
use socket2::{Domain, Socket, Type};

use super::access::socks;
use super::own_addresses::request;
use super::support::*;

fn forward_from(source: &str) -> String {
    with_head(&format!(
        "[[listener]]\nname = \"f\"\nlisten = \"{FORWARD}\"\nto = \"{SERVER}\"\nsource = {source}\n"
    ))
}

/// A client with an address of its own, so that it needs no local port of the others.
fn client(number: u8) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let own = SocketAddr::from((Ipv4Addr::new(127, 1, 0, number), 50_000));
    socket.bind(&own.into()).unwrap();
    socket
        .connect(&FORWARD.parse::<SocketAddr>().unwrap().into())
        .unwrap();
    bounded(socket.into())
}

const PORTS: usize = 4;

/// Two addresses with four ports each carry eight sessions. A ninth is reset. When a port is free
/// again, the next session gets it.
#[kernel_test]
fn each_address_has_ports_of_its_own() {
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap();
    let server = TcpListener::bind(SERVER).unwrap();
    let _proxy = Midspan::here(&forward_from("[\"127.0.0.2\", \"127.0.0.3\"]"));
    let mut used = BTreeMap::new();
    let mut sessions = Vec::new();
    for number in 1..=2 * PORTS {
        let mut client = client(number.try_into().unwrap());
        let (mut accepted, peer) = server.accept().unwrap();
        client.write_all(b"q").unwrap();
        assert_eq!(exactly(&mut accepted), *b"q");
        *used.entry(peer.ip().to_string()).or_insert(0) += 1;
        sessions.push((client, accepted));
    }
    let expected = ["127.0.0.2", "127.0.0.3"].map(|ip| (ip.to_owned(), PORTS));
    assert_eq!(used, BTreeMap::from(expected));
    // The reset may arrive before `connect` has returned, and then the client reads its end.
    let mut surplus = client(99);
    assert!(surplus.read(&mut [0]).map_or(true, |count| count == 0));
    let (client_of_one, accepted) = sessions.remove(0);
    // A reset leaves no socket that keeps the port.
    tcp::set_reset_on_close(&accepted, true).unwrap();
    drop(accepted);
    drop(client_of_one);
    let active = "midspan_sessions_active{listener=\"f\"}";
    wait_until("a free port", || metric(active) == (2 * PORTS - 1) as f64);
    let mut next = client(100);
    let (mut accepted, _) = server.accept().unwrap();
    accepted.write_all(b"a").unwrap();
    assert_eq!(exactly(&mut next), *b"a");
}

/// Servers of the other IP version are reached from the address that the kernel chooses.
#[kernel_test]
fn clients_that_name_their_servers() {
    let servers = [SERVER, "[::1]:9090"].map(|address| TcpListener::bind(address).unwrap());
    let _proxy = Midspan::here(&each_mode("source = [\"127.0.0.2\"]"));
    assert_eq!(socks(&request("127.0.0.1")), 0);
    let (_, peer) = servers[0].accept().unwrap();
    assert_eq!(peer.ip().to_string(), "127.0.0.2");
    let mut http = connect(HTTP);
    http.write_all(b"CONNECT 127.0.0.1:9090 HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let (_, peer) = servers[0].accept().unwrap();
    assert_eq!(peer.ip().to_string(), "127.0.0.2");
    let mut six = connect(SOCKS);
    six.write_all(b"\x05\x01\x00\x05\x01\x00").unwrap();
    six.write_all(&request("::1")).unwrap();
    let (_, peer) = servers[1].accept().unwrap();
    assert_eq!(peer.ip().to_string(), "::1");
}

#[kernel_test]
fn an_address_of_another_machine_is_refused() {
    let launch = Launch::this_program("run").configuration(&forward_from("[\"198.51.100.1\"]"));
    let finished = launch.finish().unwrap();
    let expected = "198.51.100.1 is no address of this machine";
    assert!(
        !finished.status.success() && finished.log.contains(expected),
        "{}",
        finished.log
    );
}
