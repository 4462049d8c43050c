//! A packet socket's ring, in a network namespace.

#![allow(clippy::unwrap_used)]

use midspan_linux::namespace;
use midspan_linux::netlink::Netlink;
use midspan_linux::packet_socket::{PacketSocket, Sight};

fn main() {
    match namespace::isolate() {
        Ok(privilege) => println!("in a network namespace of its own, as {privilege:?}"),
        Err(error) => return println!("skipped: {error}"),
    }
    the_ring_is_not_copied_at_a_fork();
    println!("test the ring is not copied at a fork ... ok");
}

/// The emulator's rings are a gigabyte and more, and each program that a run starts is a fork.
fn the_ring_is_not_copied_at_a_fork() {
    Netlink::open().unwrap().set_up("lo").unwrap();
    let _socket = PacketSocket::open("lo", 64, Sight::Incoming).unwrap();
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
    // Of a mapping, the flags come last.
    let flags = mappings
        .lines()
        .skip_while(|line| !line.contains("socket:["))
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .unwrap();
    assert!(
        flags.split_whitespace().any(|flag| flag == "dc"),
        "not set aside at a fork:{flags}"
    );
}
