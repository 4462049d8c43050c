//! The probe's segments. Without I/O.

use std::net::IpAddr;

use etherparse::PacketBuilder;

/// Addresses, ports and number of a probe's SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The address of a client that does not exist.
    pub client: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The address of a server to which no connection is opened.
    pub server: IpAddr,
    /// The server's port.
    pub server_port: u16,
    /// Sequence number of the SYN, by which rules identify it.
    pub sequence: u32,
}

const WINDOW: u16 = 65_535;
const HOPS: u8 = 64;

/// The client's first segment.
pub fn syn(addresses: &Addresses) -> Vec<u8> {
    build(addresses, addresses.sequence, false)
}

/// A client's RST, with which the listener drops the half-open connection.
pub fn reset(addresses: &Addresses) -> Vec<u8> {
    build(addresses, addresses.sequence.wrapping_add(1), true)
}

/// Returns an empty packet if the addresses are of different families.
fn build(addresses: &Addresses, sequence: u32, reset: bool) -> Vec<u8> {
    let builder = match (addresses.client, addresses.server) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            PacketBuilder::ipv4(client.octets(), server.octets(), HOPS)
        }
        (IpAddr::V6(client), IpAddr::V6(server)) => {
            PacketBuilder::ipv6(client.octets(), server.octets(), HOPS)
        }
        _ => return Vec::new(),
    };
    let builder = builder.tcp(
        addresses.client_port,
        addresses.server_port,
        sequence,
        WINDOW,
    );
    let builder = match reset {
        true => builder.rst(),
        false => builder.syn(),
    };
    let mut packet = Vec::new();
    // Writing to a vector does not fail.
    let _ = builder.write(&mut packet, &[]);
    packet
}
