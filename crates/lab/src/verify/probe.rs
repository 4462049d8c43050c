//! Numbered UDP packets, sent at a steady rate or all at once.

use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherparse::{LaxSlicedPacket, TransportSlice};
use midspan_linux::namespace::NetworkNamespace;
use midspan_units::BitRate;

use crate::LabError;

/// The destination port of probes.
pub const PORT: u16 = 9000;
/// Headers before the probe's payload, as the link counts them, for IPv4.
pub const HEADERS: usize = 28;

/// The packets of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// Number of packets.
    pub packets: u64,
    /// Size of each at the network layer in bytes (IPv4), at least 36.
    pub size: usize,
    /// The rate at the network layer; `None` to send all at once.
    pub rate: Option<BitRate>,
}

/// A socket that receives probes, so that no ICMP "port unreachable" is sent.
pub struct Sink {
    _socket: UdpSocket,
}

impl Sink {
    /// Opens the socket on `node`.
    pub fn open(node: &NetworkNamespace, at: SocketAddr) -> Result<Self, LabError> {
        let socket = node.run(move || UdpSocket::bind(at))?.map_err(failed)?;
        Ok(Self { _socket: socket })
    }
}

/// Starts to send from `node`; join the handle to wait for the end.
pub fn send(
    node: &NetworkNamespace,
    from: SocketAddr,
    to: SocketAddr,
    probe: Probe,
) -> Result<JoinHandle<std::io::Result<()>>, LabError> {
    let socket = node.run(move || UdpSocket::bind(from))?.map_err(failed)?;
    socket.connect(to).map_err(failed)?;
    Ok(std::thread::spawn(move || send_all(&socket, probe)))
}

fn send_all(socket: &UdpSocket, probe: Probe) -> std::io::Result<()> {
    let mut payload = vec![0; probe.size.saturating_sub(HEADERS).max(8)];
    let start = Instant::now();
    let mut sent = 0;
    while sent < probe.packets {
        let due = match probe.rate {
            None => probe.packets,
            Some(rate) => rate.bytes_in(start.elapsed().into()) / probe.size as u64 + 1,
        };
        while sent < due.min(probe.packets) {
            payload[..8].copy_from_slice(&sent.to_be_bytes());
            socket.send(&payload)?;
            sent += 1;
        }
        if sent < probe.packets {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    Ok(())
}

/// The number of a captured probe, given its first bytes; `None` for any other packet.
#[must_use]
pub fn number(bytes: &[u8]) -> Option<u64> {
    // The capture has cut the packet, so a lenient parser reads it.
    let packet = LaxSlicedPacket::from_ethernet(bytes).ok()?;
    let Some(TransportSlice::Udp(udp)) = packet.transport else {
        return None;
    };
    if udp.destination_port() != PORT {
        return None;
    }
    let number = udp.payload().get(..8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// For a captured packet that is an ICMP echo: whether it is a request (otherwise a reply), and its number.
/// Its first bytes are enough.
#[must_use]
pub fn echo(bytes: &[u8]) -> Option<(bool, u16)> {
    let packet = LaxSlicedPacket::from_ethernet(bytes).ok()?;
    let Some(TransportSlice::Icmpv4(icmp)) = packet.transport else {
        return None;
    };
    match icmp.icmp_type() {
        etherparse::Icmpv4Type::EchoRequest(header) => Some((true, header.seq)),
        etherparse::Icmpv4Type::EchoReply(header) => Some((false, header.seq)),
        _ => None,
    }
}

fn failed(source: std::io::Error) -> LabError {
    LabError::Program {
        program: "UDP probe".into(),
        reason: source.to_string(),
    }
}
