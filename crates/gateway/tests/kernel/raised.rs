//! Initial windows that are raised at the handshake.

#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use midspan_gateway::initial_window::{Raise, RaisingPlace};
use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::tcp;
use midspan_testbed::{kernel_test, skip};
use midspan_units::TimeSpan;

use crate::two_namespaces::{connect, listener, two_namespaces};

const MASK: u32 = 0x0f00_0000;

fn raise(least_round_trip: TimeSpan) -> Raise {
    Raise {
        marks: vec![0x0100_0000, 0x0300_0000],
        mask: MASK,
        least_round_trip,
        window: 640,
    }
}

/// Both ends of a connection to a socket that listens with this mark.
fn connection(
    (near, far): (&NetworkNamespace, &NetworkNamespace),
    addresses: (&str, &str),
    mark: Option<u32>,
) -> (TcpStream, TcpStream) {
    let at = |address: &str| -> SocketAddr { format!("{address}:0").parse().unwrap() };
    let (address, from) = (at(addresses.0), at(addresses.1));
    let listener = near.run(move || listener(address, mark)).unwrap();
    let to = listener.local_addr().unwrap();
    let opened = far.run(move || connect(from, to, None)).unwrap();
    (listener.accept().unwrap().0, opened)
}

/// Only accepted connections with one of the marks are raised, only on long legs, and only until the end. They carry data.
#[kernel_test]
fn accepted_connections_on_long_legs_get_a_larger_window() {
    let (near, far) = &two_namespaces();
    let hosts = (near, far);
    let window = |addresses, mark| {
        let (accepted, opened) = connection(hosts, addresses, mark);
        let windows =
            [&accepted, &opened].map(|it| tcp::information(it).unwrap().congestion_window());
        (&accepted).write_all(&[7; 3_000]).unwrap();
        (&opened).read_exact(&mut [0; 3_000]).unwrap();
        windows
    };
    let ipv4 = ("192.0.2.1", "192.0.2.2");
    let ipv6 = ("[2001:db8::1]", "[2001:db8::2]");
    let install = |host: &NetworkNamespace, least| {
        host.run(move || RaisingPlace::own()?.raise(raise(least)))
            .unwrap()
    };
    let raised = match install(near, TimeSpan::ZERO) {
        Ok(raised) => raised,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return skip("BPF needs CAP_BPF in the first user namespace");
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    };
    for addresses in [ipv4, ipv6] {
        // Other bits of the mark belong to other programs.
        for mark in [0x0100_0000, 0x0300_0000, 0x0302_0001] {
            assert_eq!(window(addresses, Some(mark)), [640, 10], "{mark:#x}");
        }
        for mark in [None, Some(0x0200_0000), Some(0x0000_0001)] {
            assert_eq!(window(addresses, mark), [10, 10], "{mark:?}");
        }
    }
    drop(raised);
    assert_eq!(window(ipv4, Some(0x0100_0000)), [10, 10]);
    let long = install(near, TimeSpan::from_seconds(30)).unwrap();
    assert_eq!(window(ipv4, Some(0x0100_0000)), [10, 10]);
    // A second one for the same marks, as during an upgrade.
    let short = install(near, TimeSpan::ZERO).unwrap();
    assert_eq!(window(ipv4, Some(0x0100_0000)), [640, 10]);
    drop((short, long));
    // The same marks in another network namespace belong to another Midspan.
    let elsewhere = install(far, TimeSpan::ZERO).unwrap();
    assert_eq!(window(ipv4, Some(0x0100_0000)), [10, 10]);
    drop(elsewhere);
}
