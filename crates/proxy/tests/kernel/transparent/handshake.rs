//! The handshakes: when Midspan answers the client.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use midspan_linux::tcp;
use rustix::io::Errno;

use super::support::*;
use crate::common::held_thread::HeldThread;

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

/// The gate gets to know of the server's answer, its data and its reset at once, because its thread was stopped.
#[kernel_test]
fn a_server_that_answers_and_resets_is_not_one_that_refuses() {
    let network = Network::new();
    let listener = network.listen(PORT);
    let text = TRANSPARENT.replace("threads = 2", "threads = 1");
    let midspan = Midspan::ready(&network.gateway, &text);
    for ((server, _), ends_first) in BOTH.into_iter().zip([false, true]) {
        network.filter_port(PORT);
        let client = socket(&network.client, server);
        client.set_nonblocking(true).unwrap();
        let address = SocketAddr::new(server.parse().unwrap(), PORT);
        let begun = client.connect(&address.into()).unwrap_err();
        assert_eq!(Errno::from_io_error(&begun), Some(Errno::INPROGRESS));
        wait_until("held", || unanswered(&network.gateway, PORT) == 1);
        let held = HeldThread::hold(midspan.status().relay_pid, "relay 0");
        network.unfilter();
        let (mut far, _) = accept(&listener);
        far.write_all(b"answer").unwrap();
        if ends_first {
            far.shutdown(Shutdown::Write).unwrap();
        }
        wait_until("all data is acknowledged", || {
            tcp::unacknowledged_bytes(&far).unwrap().bytes() == 0
        });
        abort(far);
        drop(held);
        let client = TcpStream::from(client);
        let mut answer = [0; 7];
        // A look for the error of the socket would take the reset away.
        wait_until("answered", || client.peek(&mut answer).is_ok());
        client.set_nonblocking(false).unwrap();
        let mut client = bounded(client);
        client.read_exact(&mut answer[..6]).unwrap();
        assert_eq!(&answer[..6], b"answer");
        // A reset after a FIN is an end for the receiver, as without a proxy.
        match ends_first {
            true => assert_eq!(client.read(&mut answer).unwrap(), 0),
            false => assert!(is_reset(&mut client)),
        }
    }
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
