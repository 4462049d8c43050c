//! A relay that is killed resets its sessions: a crash never looks like a clean end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use midspan_policy::SessionSettings;
use midspan_relay::Relay;
use midspan_testbed::kernel_test;
use midspan_testbed::kernel_tests::Command;
use midspan_testbed::program::{Launch, Program};

use crate::support::*;

/// A relay in a process of its own, which the tests start and kill.
pub const COMMANDS: &[Command] = &[("relay", relay)];

/// The argument is the server.
fn relay(arguments: &[&str]) -> ExitCode {
    let settings = settings();
    let server = arguments[0].parse().unwrap();
    let listener = listener(&settings, server, SessionSettings::default());
    let address = local_address(&listener);
    let _relay = Relay::start(&settings, vec![listener]).unwrap();
    println!("{address}");
    // The process is killed long before; if not, it must end by itself.
    thread::sleep(DEADLINE);
    ExitCode::SUCCESS
}

/// The process of a relay, and the address of its listener.
fn start_relay(server: SocketAddr) -> (Program, SocketAddr) {
    let launch = Launch::this_program("relay").arg(server.to_string());
    let mut relay = launch.start().unwrap();
    let mut address = String::new();
    let mut output = BufReader::new(relay.take_output().unwrap());
    output.read_line(&mut address).unwrap();
    (relay, address.trim().parse().unwrap())
}

#[kernel_test]
fn both_ends_of_a_killed_relay_see_a_reset() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let mut accepted = accept_from(&server);
    client.write_all(b"some data").unwrap();
    accepted.write_all(b"an answer").unwrap();
    thread::sleep(Duration::from_millis(100));
    relay.kill();
    let expected = (b"an answer".to_vec(), Ending::Reset);
    assert_eq!(read_all(&mut client), expected);
    assert_eq!(read_all(&mut accepted).1, Ending::Reset);
}

#[kernel_test]
fn a_relay_killed_in_a_transfer_does_not_feign_its_end() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let accepted = accept_from(&server);
    let size = 40_000_000;
    thread::scope(|scope| {
        scope.spawn(move || {
            // The server has sent everything and its end before the relay dies.
            let mut accepted = accepted;
            let _ = accepted.write_all(&vec![7; size]);
            let _ = accepted.shutdown(Shutdown::Write);
            thread::sleep(Duration::from_millis(500));
        });
        thread::sleep(Duration::from_millis(200));
        relay.kill();
        let (received, ending) = read_all(&mut client);
        assert!(received.len() < size);
        assert_eq!(ending, Ending::Reset, "after {} bytes", received.len());
    });
}

/// The end of one direction has been passed on; the session as a whole must still not look
/// complete.
#[kernel_test]
fn a_half_closed_session_of_a_killed_relay_is_reset() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let mut accepted = accept_from(&server);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(
        read_all(&mut accepted),
        (b"question".to_vec(), Ending::Clean)
    );
    accepted.write_all(b"half of the ans").unwrap();
    thread::sleep(Duration::from_millis(100));
    relay.kill();
    let expected = (b"half of the ans".to_vec(), Ending::Reset);
    assert_eq!(read_all(&mut client), expected);
}
