//! The handshakes: when Midspan answers the client.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::Duration;

use super::support::*;

#[kernel_test]
fn a_closed_port_refuses() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let refused = network.connect(server, 9).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    }
    midspan.stop();
}

#[kernel_test]
fn a_filtered_port_times_out() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    for (server, _) in BOTH {
        let result = connect_from(&network.client, server, PORT, Duration::from_secs(4));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    }
    // If the server answers late and the client still waits, the connection is opened.
    let waiting = {
        let socket = socket(&network.client, SERVER);
        let address: SocketAddr = format!("{SERVER}:{PORT}").parse().unwrap();
        std::thread::spawn(move || {
            socket.connect_timeout(&address.into(), LIMIT).unwrap();
            bounded(socket.into())
        })
    };
    std::thread::sleep(Duration::from_millis(500));
    network.unfilter();
    let mut near = waiting.join().unwrap();
    let (mut far, from) = accept(&listener);
    assert_eq!(from, near.local_addr().unwrap());
    assert_eq!(network.taken(PORT), 1);
    echoes(&mut near, &mut far);
    abort(near);
    midspan.stop();
}

#[kernel_test]
fn an_unreachable_host_is_reported() {
    let network = Network::new();
    let midspan = Midspan::ready(&network.gateway, TRANSPARENT);
    // The router has no route to these addresses and sends an ICMP error.
    for server in ["10.99.0.1", "fd99::1"] {
        let error = network.connect(server, PORT).unwrap_err();
        let unreachable = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
        assert!(unreachable.contains(&error.kind()), "{server}: {error}");
    }
    midspan.stop();
}

#[kernel_test]
fn early_data_is_kept() {
    let network = Network::new();
    let listener = network.listen(PORT);
    network.filter_port(PORT);
    let midspan = Midspan::ready(&network.gateway, &early());
    for (server, client) in BOTH {
        // The server has not received a SYN.
        let mut near = network.connect(server, PORT).unwrap();
        near.write_all(b"first ").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        network.unfilter();
        let (mut far, from) = accept(&listener);
        assert_eq!(from.ip().to_string(), client);
        near.write_all(b"second").unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut far, &mut text).unwrap();
        assert_eq!(text, "first second");
        network.filter_port(PORT);
    }
    // Midspan can report a refusal only by a reset.
    assert!(is_reset_early(network.connect(SERVER, 9)));
    midspan.stop();
}
