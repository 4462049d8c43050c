//! Sessions move to another relay, without a reset and without a lost byte; after any error they stay.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod moving;
mod panicking;
mod staying;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use midspan_relay::{Listener, OpenListener, Relay, Settings, Statistics};

use crate::support::*;

/// As [`move_sessions`], which must not fail.
fn move_to(
    old: &Relay,
    settings: &Settings,
    own: Vec<OpenListener>,
    inherited: Vec<Listener>,
) -> (Relay, u64) {
    move_sessions(old, settings, own, inherited).unwrap()
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
