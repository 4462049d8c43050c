//! Sessions move to another relay, without a reset and without a lost byte; after any error they stay.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod moving;
mod staying;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use midspan_relay::{
    Listener, OpenListener, Predecessor, Relay, Settings, Statistics, handover_pair,
};

use crate::support::*;

/// Another relay with these settings, which has the sessions of this one, and their number. It accepts from listeners of
/// its own, and for `inherited` listeners from the sockets of this relay.
fn move_to(
    old: &Relay,
    settings: &Settings,
    own: Vec<OpenListener>,
    inherited: Vec<Listener>,
) -> (Relay, u64) {
    let (here, there) = handover_pair().unwrap();
    let successor = old.greet_successor(here).unwrap();
    let predecessor = Predecessor::meet(there, DEADLINE).unwrap();
    let settings = Settings {
        begins_at: predecessor.now(),
        ..settings.clone()
    };
    let mut new = Relay::start(&settings, own).unwrap();
    let count = thread::scope(|scope| {
        let taking = scope.spawn(|| new.take_over(&predecessor, inherited, DEADLINE));
        let count = old.hand_over(&successor, DEADLINE).unwrap();
        let taken = taking.join().unwrap().unwrap();
        assert_eq!(taken.sessions, count);
        assert!(taken.listeners.iter().all(Result::is_ok));
        count
    });
    (new, count)
}

/// The same without listeners.
fn move_all(old: &Relay) -> (Relay, u64) {
    move_to(old, &settings(), Vec::new(), Vec::new())
}

fn wait(relay: &Relay, what: &str, condition: impl Fn(&Statistics) -> bool) {
    let holds = eventually(|| condition(&relay.statistics()));
    assert!(holds, "{what}: {:?}", relay.statistics());
}

/// A message passes in each direction.
fn carry(client: &mut TcpStream, server: &mut TcpStream, seed: u64) {
    let data = Pattern::new(seed).bytes(5_000);
    let mut received = vec![0; data.len()];
    client.write_all(&data).unwrap();
    server.read_exact(&mut received).unwrap();
    assert_same(&received, &data);
    server.write_all(&data).unwrap();
    client.read_exact(&mut received).unwrap();
    assert_same(&received, &data);
}

/// Sends until it is stopped, in pieces of changing size, and ends the stream; returns the number of bytes.
fn send_until(mut stream: TcpStream, seed: u64, stop: &AtomicBool) -> usize {
    let (mut data, mut sizes) = (Pattern::new(seed), Pattern::new(seed + 1000));
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let size = [1, 100, 1448, 40_000, 300_000][(sizes.next() % 5) as usize];
        stream.write_all(&data.bytes(size)).unwrap();
        sent += size;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    sent
}

/// Checks each byte up to the end of the stream; returns the number of bytes.
fn check_all(mut stream: TcpStream, seed: u64) -> usize {
    let mut data = Pattern::new(seed);
    let mut buffer = vec![0; 1 << 16];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return received,
            Ok(count) => {
                assert_same(&buffer[..count], &data.bytes(count));
                received += count;
            }
            Err(error) => panic!("after {received} bytes: {error}"),
        }
    }
}
