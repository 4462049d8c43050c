//! TCP segments, read as ACK thinning needs them: IPv4 and IPv6, with any options.

use std::net::SocketAddr;

use midspan_policy::ack_thinning::{AckHeader, SackBlocks};
use midspan_wire::{TcpOption, TcpPacket, options};

/// Flags of TCP.
pub(crate) mod flags {
    #[cfg(test)]
    pub const FIN: u16 = 0x001;
    pub const SYN: u16 = 0x002;
    pub const RST: u16 = 0x004;
    pub const ACK: u16 = 0x010;
    pub const ECE: u16 = 0x040;
    pub const CWR: u16 = 0x080;
    pub const AE: u16 = 0x100;
}

/// The options of a segment that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// MSS (RFC 9293), in a SYN.
    pub segment_size: Option<u16>,
    /// SACK blocks (RFC 2018).
    pub sack: SackBlocks,
    /// `TSval` and `TSecr` (RFC 7323).
    pub timestamp: Option<(u32, u32)>,
    /// There is an option that a later ACK may not repeat, or the options are damaged.
    pub others: bool,
}

/// A TCP segment without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The source.
    pub source: SocketAddr,
    /// The destination.
    pub destination: SocketAddr,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub number: u32,
    /// The nine bits of flags, AE (NS) first.
    pub flags: u16,
    /// The window, not scaled.
    pub window: u16,
    /// Its options.
    pub options: Options,
    /// Bytes of data, according to the IP header.
    pub data: u32,
    /// Bytes of the packet, according to the IP header.
    pub size: u32,
}

impl Segment {
    /// Reads a packet from its IP header on. The data may be truncated, the headers may not. `None` if
    /// the packet is not a whole TCP segment with valid headers.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        Self::from_packet(&TcpPacket::read(packet)?)
    }

    /// The same, also of the first fragment of a segment; its data is that of the fragment.
    #[must_use]
    pub fn parse_first(packet: &[u8]) -> Option<Self> {
        Self::from_packet(&TcpPacket::read_first(packet)?)
    }

    fn from_packet(packet: &TcpPacket<'_>) -> Option<Self> {
        if packet.is_authenticated {
            return None;
        }
        let size = u32::try_from(packet.stated_length).ok()?;
        let headers = u32::try_from(packet.headers()).ok()?;
        let tcp = &packet.tcp;
        Some(Self {
            source: packet.source,
            destination: packet.destination,
            sequence: tcp.sequence_number(),
            number: tcp.acknowledgment_number(),
            flags: u16::from_be_bytes([tcp.slice()[12], tcp.slice()[13]]) & 0x1ff,
            window: tcp.window_size(),
            options: Options::parse(tcp.options()),
            data: size.checked_sub(headers)?,
            size,
        })
    }

    /// Whether any of these flags is set.
    pub(crate) const fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// The data that thinning needs.
    #[must_use]
    pub fn ack_header(&self) -> AckHeader {
        let ecn = flags::AE | flags::CWR | flags::ECE;
        AckHeader {
            sequence: self.sequence,
            number: self.number,
            window: self.window,
            ecn: u8::try_from((self.flags & ecn) >> 6).unwrap_or(0),
            sack: self.options.sack,
            timestamp: self.options.timestamp.map(|(value, _)| value),
            plain: self.flags & !ecn == flags::ACK && self.data == 0 && !self.options.others,
        }
    }
}

impl Options {
    fn parse(bytes: &[u8]) -> Self {
        let mut read = Self::default();
        for option in options(bytes) {
            match option {
                Ok(option) => read.add(&option),
                Err(_) => read.others = true,
            }
        }
        read
    }

    fn add(&mut self, option: &TcpOption<'_>) {
        match (option.kind, option.content) {
            (2, &[high, low]) => self.segment_size = Some(u16::from_be_bytes([high, low])),
            // Only one option with blocks: those of a second option would replace the first.
            (5, blocks) if matches!(blocks.len(), 8 | 16 | 24 | 32) && self.sack.count == 0 => {
                for (place, block) in self.sack.edges.iter_mut().zip(blocks.chunks(8)) {
                    if let Some(edges) = numbers(block) {
                        *place = edges;
                        self.sack.count += 1;
                    }
                }
            }
            (8, times) if times.len() == 8 => self.timestamp = numbers(times),
            // AccECN (RFC 9768): counters since the start, so a later one includes an earlier one.
            (172 | 174, counters) if matches!(counters.len(), 0 | 3 | 6 | 9) => {}
            _ => self.others = true,
        }
    }
}

/// Two numbers of 32 bits.
fn numbers(bytes: &[u8]) -> Option<(u32, u32)> {
    let (first, second) = bytes.split_first_chunk()?;
    let second = second.first_chunk()?;
    Some((u32::from_be_bytes(*first), u32::from_be_bytes(*second)))
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
