//! A relay that is killed resets its sessions: a crash never looks like a clean end.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use midspan_policy::SessionSettings;
use midspan_relay::Relay;

use support::*;

const SERVER: &str = "MIDSPAN_TEST_RELAY_SERVER";

/// Not a test of its own: the program that the tests below start and kill.
#[test]
fn a_relay_process() {
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let settings = settings();
    let listener = listener(
        &settings,
        server.parse().unwrap(),
        SessionSettings::default(),
    );
    let address = local_address(&listener);
    let _relay = Relay::start(&settings, vec![listener]).unwrap();
    println!("\nlistening on {address}");
    // The process is killed long before; if not, it must end by itself.
    thread::sleep(DEADLINE);
}

fn start_relay(server: SocketAddr) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_relay_process", "--exact", "--nocapture"])
        .env(SERVER, server.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let address = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening on ")?.parse().ok());
    (child, address.expect("the relay says where it listens"))
}

fn kill(mut relay: Child) {
    relay.kill().unwrap();
    relay.wait().unwrap();
}

#[test]
fn both_ends_of_a_killed_relay_see_a_reset() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let mut accepted = bounded(server.accept().unwrap().0);
    client.write_all(b"some data").unwrap();
    accepted.write_all(b"an answer").unwrap();
    thread::sleep(Duration::from_millis(100));
    kill(relay);
    let expected = (b"an answer".to_vec(), Ending::Reset);
    assert_eq!(read_all(&mut client), expected);
    assert_eq!(read_all(&mut accepted).1, Ending::Reset);
}

#[test]
fn a_relay_killed_in_a_transfer_does_not_feign_its_end() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let accepted = bounded(server.accept().unwrap().0);
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
        kill(relay);
        let (received, ending) = read_all(&mut client);
        assert!(received.len() < size);
        assert_eq!(ending, Ending::Reset, "after {} bytes", received.len());
    });
}

/// The end of one direction has been passed on; the session as a whole must still not look
/// complete.
#[test]
fn a_half_closed_session_of_a_killed_relay_is_reset() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (relay, address) = start_relay(server.local_addr().unwrap());
    let mut client = bounded(TcpStream::connect(address).unwrap());
    let mut accepted = bounded(server.accept().unwrap().0);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(
        read_all(&mut accepted),
        (b"question".to_vec(), Ending::Clean)
    );
    accepted.write_all(b"half of the ans").unwrap();
    thread::sleep(Duration::from_millis(100));
    kill(relay);
    let expected = (b"half of the ans".to_vec(), Ending::Reset);
    assert_eq!(read_all(&mut client), expected);
}
