//! The probe's segments: pure.

use std::net::IpAddr;

use etherparse::PacketBuilder;

/// Addresses, ports and number of a probe's SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The client that does not exist.
    pub client: IpAddr,
    /// The client's port.
    pub client_port: u16,
    /// The server that is never asked.
    pub server: IpAddr,
    /// The server's port.
    pub server_port: u16,
    /// Sequence number of the SYN, by which rules know it.
    pub sequence: u32,
}

const WINDOW: u16 = 65_535;
const HOPS: u8 = 64;

/// The client's first segment.
pub fn syn(addresses: &Addresses) -> Vec<u8> {
    build(addresses, addresses.sequence, false)
}

/// The client gives up, so that the listener forgets the SYN.
pub fn reset(addresses: &Addresses) -> Vec<u8> {
    build(addresses, addresses.sequence.wrapping_add(1), true)
}

/// Empty where the addresses are of different families.
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
