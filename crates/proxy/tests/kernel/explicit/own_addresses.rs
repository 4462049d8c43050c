//! Addresses of this machine, of every kind, which exist at the start or are added later.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;

use midspan_linux::netlink::interface_index;
use midspan_linux::own_addresses::OwnAddresses;

use super::access::socks;
use midspan_testbed::program::Launch;

use super::support::*;

/// Runs `ip` (ip(8)) in the namespace of the tests.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// Commands that run when the test ends, also after a failure.
struct Undo(Vec<&'static str>);

impl Drop for Undo {
    fn drop(&mut self) {
        for arguments in &self.0 {
            let _ = Command::new("ip").args(arguments.split(' ')).output();
        }
    }
}

/// A SOCKS5 request for an address, port 9090.
pub fn request(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(four) => [&[1][..], &four.octets(), &[0x23, 0x82]].concat(),
        IpAddr::V6(six) => [&[4][..], &six.octets(), &[0x23, 0x82]].concat(),
    }
}

const ACTIVE: &str = "midspan_sessions_active{listener=\"circle\"}";
/// "Not allowed" in SOCKS5.
const NOT_ALLOWED: u8 = 2;

/// The test adds addresses to this machine while the proxy runs, and then no client may connect to them. They
/// are a secondary address, a prefix with a local route, a prefix with a local route in another table, and
/// an address without a local route (as in a VRF whose table no rule selects). For IPv6, they are a secondary
/// address and a prefix with a local route. The test also tries a broadcast address.
#[kernel_test]
fn addresses_that_come_later_are_out_of_reach() {
    let _undo = Undo(vec![
        "address del 192.0.2.9/24 dev near",
        "address del 2001:db8::9/64 dev near",
        "address del 198.51.100.9/32 dev near",
        "route del local 203.0.113.0/24 dev lo",
        "-6 route del local 2001:db8:1::/64 dev lo",
        "route del local 203.0.114.0/24 dev lo table 99",
        "rule del from all lookup 99",
        "rule del fwmark 0x77 lookup 98",
        "route del local default dev lo table 98",
    ]);
    // With this setting a program can bind to every address, so a successful bind proves nothing.
    fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").unwrap();
    // A local default route for marked packets, as transparent proxies use it.
    ip("route add local default dev lo table 98");
    ip("rule add fwmark 0x77 lookup 98");
    let _proxy = Midspan::here(&with_head(
        "[[listener]]\nname = \"socks\"\nmode = \"socks5\"\nconnect_timeout = \"300 ms\"\n",
    ));
    let others = [
        "192.0.2.9",
        "2001:db8::9",
        "198.51.100.9",
        "203.0.113.77",
        "2001:db8:1::77",
        "203.0.114.77",
    ];
    for address in others {
        assert_ne!(socks(&request(address)), NOT_ALLOWED, "{address}");
    }
    ip("address add 192.0.2.9/24 dev near");
    ip("address add 2001:db8::9/64 dev near nodad");
    ip("address add 198.51.100.9/32 dev near");
    ip("route del local 198.51.100.9 table local");
    ip("route add local 203.0.113.0/24 dev lo");
    ip("-6 route add local 2001:db8:1::/64 dev lo");
    ip("route add local 203.0.114.0/24 dev lo table 99");
    ip("rule add from all lookup 99");
    let addresses = fs::read_to_string("/proc/self/net/fib_trie").unwrap();
    assert!(addresses.contains("192.0.2.9"));
    for address in others {
        wait_until(address, || socks(&request(address)) == NOT_ALLOWED);
    }
    assert_eq!(socks(&request("192.0.2.255")), NOT_ALLOWED);
    // When they are removed, they are no longer addresses of this machine.
    ip("address del 192.0.2.9/24 dev near");
    ip("-6 route del local 2001:db8:1::/64 dev lo");
    ip("rule del from all lookup 99");
    for address in ["192.0.2.9", "2001:db8:1::77", "203.0.114.77"] {
        wait_until(address, || socks(&request(address)) != NOT_ALLOWED);
    }
    link_local_addresses_are_own_at_their_link();
}

fn link_local_addresses_are_own_at_their_link() {
    ip("address add fe80::77/64 dev near nodad");
    let own = OwnAddresses::read().unwrap();
    ip("address del fe80::77/64 dev near");
    let at = |interface: &str| -> SocketAddr {
        let scope = interface_index(interface).unwrap();
        format!("[fe80::77%{scope}]:1").parse().unwrap()
    };
    assert!(own.contains(at("near")));
    assert!(!own.contains(at("far")));
}

fn forwarding(listen: &str, to: &str) -> String {
    with_head(&format!(
        "[[listener]]\nname = \"circle\"\nlisten = \"{listen}\"\nto = \"{to}\"\n\
         connect_timeout = \"20 s\"\n"
    ))
}

#[kernel_test]
fn a_listener_that_forwards_to_itself_is_refused() {
    let _undo = Undo(vec![
        "address del 192.0.2.9/24 dev near",
        "address del 2001:db8::9/64 dev near",
        "address del fe80::77/64 dev near",
        "route del local 203.0.113.0/24 dev lo",
    ]);
    ip("address add 192.0.2.9/24 dev near");
    ip("address add 2001:db8::9/64 dev near nodad");
    ip("address add fe80::77/64 dev near nodad");
    ip("route add local 203.0.113.0/24 dev lo");
    let near = interface_index("near").unwrap();
    for (listen, to) in [
        ("0.0.0.0:8080", "192.0.2.9:8080".to_owned()),
        ("0.0.0.0:8080", "203.0.113.5:8080".to_owned()),
        ("[::]:8080", "[2001:db8::9]:8080".to_owned()),
        ("[::]:8080", format!("[fe80::77%{near}]:8080")),
    ] {
        let launch = Launch::this_program("run").configuration(&forwarding(listen, &to));
        let finished = launch.finish().unwrap();
        let error = finished.log;
        assert!(
            !finished.status.success() && error.contains("forwards to itself"),
            "{to}: {error}"
        );
    }
}

/// The address is added while a connection to it is being opened. Neither this connection nor later
/// ones reach this machine.
#[kernel_test]
fn a_listener_that_becomes_its_own_server_ends_the_circle() {
    let _undo = Undo(vec![
        "address del 192.0.2.9/24 dev near",
        "neighbour del 192.0.2.9 dev near",
    ]);
    // The kernel would end connections to an address without a neighbour after 3 s.
    ip("neighbour replace 192.0.2.9 lladdr 02:00:00:00:00:09 dev near");
    let proxy = Midspan::here(&forwarding("0.0.0.0:8080", "192.0.2.9:8080"));
    let mut waiting = connect("127.0.0.1:8080");
    wait_until("calling", || metric(ACTIVE) == 1.0);
    ip("address add 192.0.2.9/24 dev near");
    wait_until("said", || proxy.log().contains("forwards to itself"));
    // The kernel sends the SYN again, now to this machine, which refuses it.
    assert!(waiting.read(&mut [0]).map_or(true, |count| count == 0));
    // The refusal may arrive before `connect` returns.
    let next = TcpStream::connect("127.0.0.1:8080").map(bounded);
    assert!(next.map_or(true, |mut next| {
        next.read(&mut [0]).map_or(true, |count| count == 0)
    }));
    wait_until("all over", || metric(ACTIVE) == 0.0);
    let opened = metric("midspan_sessions_opened_total{listener=\"circle\"}");
    assert!(opened < 1000.0, "{opened}");
    ip("address del 192.0.2.9/24 dev near");
    wait_until("over", || {
        proxy.log().contains("no longer forwards to itself")
    });
    // The relay gets the new list a moment after the line is in the log.
    let mut dark = Vec::new();
    wait_until("calling again", || {
        dark.extend(TcpStream::connect("127.0.0.1:8080"));
        metric(ACTIVE) > 0.0
    });
}
