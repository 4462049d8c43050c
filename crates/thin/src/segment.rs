//! TCP segments as they are in the network: IPv4 and IPv6, with any options.
//!
//! This parser is not from a library: it reads only the first bytes of arriving packets, which
//! libraries treat as damaged packets, and it must distinguish AccECN, SACK and timestamps from unknown
//! options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use midspan_policy::ack_thinning::{AckHeader, SackBlocks};

const TCP: u8 = 6;
/// Extension headers of IPv6 that are skipped: hop-by-hop, routing, destination options.
const PASSED_OVER: [u8; 3] = [0, 43, 60];
/// The fragment header of IPv6.
const FRAGMENT: u8 = 44;
/// Most extension headers in a packet.
const EXTENSION_LIMIT: usize = 8;

/// The part of a segment that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// All of it, or its first fragment.
    First,
}

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
        Self::parse_part(packet, Part::Whole)
    }

    /// The same, also of the first fragment of a segment; its data is that of the fragment.
    #[must_use]
    pub fn parse_first(packet: &[u8]) -> Option<Self> {
        Self::parse_part(packet, Part::First)
    }

    fn parse_part(packet: &[u8], part: Part) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::parse_v4(packet, part),
            6 => Self::parse_v6(packet, part),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8], part: Part) -> Option<Self> {
        let header = usize::from(packet.first()? & 0x0f) * 4;
        let size = u32::from(number_16(packet, 2)?);
        let refused = match part {
            // Further fragments follow, or this is not the first.
            Part::Whole => 0x3fff,
            Part::First => 0x1fff,
        };
        let is_fragment = number_16(packet, 6)? & refused != 0;
        if header < 20 || is_fragment || *packet.get(9)? != TCP {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        let addresses = (address(12)?, address(16)?);
        Self::parse_tcp(packet, header, size, addresses)
    }

    fn parse_v6(packet: &[u8], part: Part) -> Option<Self> {
        let length = u32::from(number_16(packet, 4)?);
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        let addresses = (address(8)?, address(24)?);
        let mut next = *packet.get(6)?;
        let mut at = 40;
        for _ in 0..=EXTENSION_LIMIT {
            if next == TCP {
                return Self::parse_tcp(packet, at, length + 40, addresses);
            }
            if next == FRAGMENT && part == Part::First {
                if number_16(packet, at + 2)? & 0xfff8 != 0 {
                    return None;
                }
                next = *packet.get(at)?;
                at += 8;
                continue;
            }
            if !PASSED_OVER.contains(&next) {
                return None;
            }
            next = *packet.get(at)?;
            at += (usize::from(*packet.get(at + 1)?) + 1) * 8;
        }
        None
    }

    fn parse_tcp(
        packet: &[u8],
        at: usize,
        size: u32,
        (source, destination): (IpAddr, IpAddr),
    ) -> Option<Self> {
        let tcp = packet.get(at..)?;
        let offset = number_16(tcp, 12)?;
        let header = usize::from(offset >> 12) * 4;
        let headers = u32::try_from(at + header).ok()?;
        if header < 20 || headers > size {
            return None;
        }
        Some(Self {
            source: SocketAddr::new(source, number_16(tcp, 0)?),
            destination: SocketAddr::new(destination, number_16(tcp, 2)?),
            sequence: number_32(tcp, 4)?,
            number: number_32(tcp, 8)?,
            flags: offset & 0x1ff,
            window: number_16(tcp, 14)?,
            options: Options::parse(tcp.get(20..header)?),
            data: size - headers,
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
    fn parse(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        loop {
            match bytes {
                // End of the list, or of the header.
                [] | [0, ..] => return options,
                [1, rest @ ..] => bytes = rest,
                [kind, length, ..] => {
                    let content = bytes.get(2..usize::from(*length));
                    let Some(content) = content else {
                        options.others = true;
                        return options;
                    };
                    options.read(*kind, content);
                    bytes = bytes.get(usize::from(*length)..).unwrap_or_default();
                }
                [_] => {
                    options.others = true;
                    return options;
                }
            }
        }
    }

    fn read(&mut self, kind: u8, content: &[u8]) {
        match (kind, content.len()) {
            (2, 2) => self.segment_size = number_16(content, 0),
            // Only one option with blocks: those of a second option would replace the first.
            (5, 8 | 16 | 24 | 32) if self.sack.count == 0 => {
                for (place, block) in self.sack.edges.iter_mut().zip(content.chunks(8)) {
                    if let (Some(left), Some(right)) = (number_32(block, 0), number_32(block, 4)) {
                        *place = (left, right);
                        self.sack.count += 1;
                    }
                }
            }
            (8, 8) => self.timestamp = number_32(content, 0).zip(number_32(content, 4)),
            // AccECN (RFC 9768): counters since the start, so a later one includes an earlier one.
            (172 | 174, 0 | 3 | 6 | 9) => {}
            _ => self.others = true,
        }
    }
}

fn number_16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number_32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
