//! Reading captures. Packets are read one after another and not stored.
//!
//! Any file may be damaged: packets and numbers of packets and interfaces have limits, and a file may end
//! anywhere.

use std::io::{self, BufReader, Read};

use super::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, LINK_ETHERNET, LINK_IPV4, LINK_IPV6,
    LINK_LINUX_SLL, LINK_LINUX_SLL2, LINK_LOOP, LINK_NULL, LINK_RAW, LINK_RAW_BSD,
    MICROSECOND_MAGIC, NANOSECOND_MAGIC, OPTION_TIME_RESOLUTION, SECTION_HEADER, SLL_HEADER,
};
use crate::TcpPacket;

/// Largest packet or block that is read, in bytes.
const LARGEST_PACKET: u32 = 1 << 20;
/// Largest number of packets that are read.
const MOST_PACKETS: u64 = 200_000_000;
/// Largest number of interfaces in a pcapng file.
const MOST_INTERFACES: usize = 4096;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The input fails.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The input is no capture, or a damaged one.
    #[error("{0}")]
    Format(String),
}

fn wrong(what: impl Into<String>) -> CaptureError {
    CaptureError::Format(what.into())
}

/// A captured packet.
#[derive(Debug, Clone, Copy)]
pub struct CapturedPacket<'a> {
    /// Seconds since any fixed point in time.
    pub time: f64,
    /// The kind of the link layer's header (registered by the tcpdump group).
    pub link_type: u32,
    /// As many bytes of the packet as were captured, from the link layer's header on.
    pub bytes: &'a [u8],
    /// Length on the wire in bytes, with the link layer's header.
    pub length: u32,
}

impl<'a> CapturedPacket<'a> {
    /// The TCP segment in this packet, and the length of its IP packet on the wire in bytes. `None` for
    /// other protocols and link types, and for fragments.
    #[must_use]
    pub fn tcp(&self) -> Option<(TcpPacket<'a>, usize)> {
        let (link, tcp) = match self.link_type {
            LINK_ETHERNET => TcpPacket::read_ethernet(self.bytes)?,
            kind => {
                let link = link_header(kind)?;
                (link, TcpPacket::read(self.bytes.get(link..)?)?)
            }
        };
        let length = usize::try_from(self.length).ok()?.checked_sub(link)?;
        Some((tcp, length))
    }
}

/// Bytes before the IP header, for link types where their number is fixed.
fn link_header(kind: u32) -> Option<usize> {
    match kind {
        LINK_NULL | LINK_LOOP => Some(4),
        LINK_RAW | LINK_IPV4 | LINK_IPV6 => Some(0),
        LINK_LINUX_SLL => Some(SLL_HEADER),
        LINK_LINUX_SLL2 => Some(20),
        _ => LINK_RAW_BSD.contains(&kind).then_some(0),
    }
}

/// Reads a capture, pcap or pcapng, and passes each packet to `add`. A file that is cut off is read up to
/// its last whole packet.
///
/// # Errors
/// The input fails, is no capture, or is damaged.
pub fn read(
    input: impl Read,
    mut add: impl FnMut(&CapturedPacket<'_>),
) -> Result<(), CaptureError> {
    let mut input = BufReader::new(input);
    let mut begin = [0; 4];
    if !fill(&mut input, &mut begin)? {
        return Err(wrong("it is shorter than a header"));
    }
    let mut input = begin.chain(input);
    if begin == SECTION_HEADER.to_be_bytes() {
        read_pcapng(&mut input, &mut add)
    } else {
        read_pcap(&mut input, &mut add)
    }
}

/// The byte order of the machine that wrote the file.
#[derive(Debug, Clone, Copy)]
struct Order {
    little: bool,
}

const LITTLE: Order = Order { little: true };
const BIG: Order = Order { little: false };

impl Order {
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if self.little {
            u32::from_le_bytes(four)
        } else {
            u32::from_be_bytes(four)
        })
    }

    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(if self.little {
            u16::from_le_bytes(two)
        } else {
            u16::from_be_bytes(two)
        })
    }
}

/// Fills `bytes`; false if the input ends before: a capture may be cut off anywhere.
fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn read_pcap(
    input: &mut impl Read,
    add: &mut impl FnMut(&CapturedPacket<'_>),
) -> Result<(), CaptureError> {
    let mut header = [0; 24];
    if !fill(input, &mut header)? {
        return Err(wrong("it is shorter than a header"));
    }
    let unit = |order: Order| match order.u32(&header, 0) {
        Some(MICROSECOND_MAGIC) => Some((order, 1e-6)),
        Some(NANOSECOND_MAGIC) => Some((order, 1e-9)),
        _ => None,
    };
    let Some((order, fraction)) = unit(LITTLE).or_else(|| unit(BIG)) else {
        return Err(wrong("its first four bytes are those of no capture"));
    };
    // The upper bits describe a frame check sequence.
    let link_type = order.u32(&header, 20).unwrap_or(0) & 0x0fff_ffff;
    let mut record = [0; 16];
    let mut bytes = Vec::new();
    for _ in 0..MOST_PACKETS {
        if !fill(input, &mut record)? {
            break;
        }
        let field = |at| order.u32(&record, at).unwrap_or(0);
        let captured = field(8);
        if captured > LARGEST_PACKET {
            return Err(wrong("a packet is longer than 1 MiB: the file is damaged"));
        }
        bytes.resize(captured as usize, 0);
        if !fill(input, &mut bytes)? {
            break;
        }
        add(&CapturedPacket {
            time: f64::from(field(0)) + f64::from(field(4)) * fraction,
            link_type,
            bytes: &bytes,
            length: field(12),
        });
    }
    Ok(())
}

/// An interface of a pcapng section.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: u32,
    /// The unit of its clock, in seconds.
    unit: f64,
}

fn read_pcapng(
    input: &mut impl Read,
    add: &mut impl FnMut(&CapturedPacket<'_>),
) -> Result<(), CaptureError> {
    let mut order = LITTLE;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut head = [0; 8];
    let mut body = Vec::new();
    for _ in 0..MOST_PACKETS {
        if !fill(input, &mut head)? {
            break;
        }
        // The same in both byte orders.
        let section = head[..4] == SECTION_HEADER.to_be_bytes();
        let mut magic = [0; 4];
        if section {
            // A section contains its byte order after its length.
            if !fill(input, &mut magic)? {
                break;
            }
            order = match u32::from_le_bytes(magic) {
                BYTE_ORDER_MAGIC => LITTLE,
                other if other.swap_bytes() == BYTE_ORDER_MAGIC => BIG,
                _ => return Err(wrong("a section has no byte-order magic")),
            };
            interfaces.clear();
        }
        let length = order.u32(&head, 4).unwrap_or(0);
        let read = if section { 12 } else { 8 };
        if length < 12 || !length.is_multiple_of(4) || length > LARGEST_PACKET {
            return Err(wrong(format!(
                "a block of {length} bytes: the file is damaged"
            )));
        }
        body.resize((length - read) as usize, 0);
        if !fill(input, &mut body)? {
            break;
        }
        match order.u32(&head, 0) {
            Some(INTERFACE_DESCRIPTION) if interfaces.len() < MOST_INTERFACES => {
                interfaces.extend(interface(order, &body));
            }
            Some(ENHANCED_PACKET) => {
                if let Some(packet) = enhanced_packet(order, &body, &interfaces) {
                    add(&packet);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn interface(order: Order, body: &[u8]) -> Option<Interface> {
    let link_type = u32::from(order.u16(body, 0)?);
    let mut unit = 1e-6;
    let mut at = 8;
    // Options: code, length, value, padded to four bytes.
    while let (Some(code), Some(length)) = (order.u16(body, at), order.u16(body, at + 2)) {
        if code == 0 {
            break;
        }
        if let (OPTION_TIME_RESOLUTION, Some(&resolution)) = (code, body.get(at + 4)) {
            let power = i32::from(resolution & 0x7f);
            unit = if resolution & 0x80 == 0 {
                10_f64.powi(-power)
            } else {
                2_f64.powi(-power)
            };
        }
        at += 4 + usize::from(length).div_ceil(4) * 4;
    }
    Some(Interface { link_type, unit })
}

fn enhanced_packet<'a>(
    order: Order,
    body: &'a [u8],
    interfaces: &[Interface],
) -> Option<CapturedPacket<'a>> {
    let index = usize::try_from(order.u32(body, 0)?).ok()?;
    let interface = interfaces.get(index)?;
    let time = u64::from(order.u32(body, 4)?) << 32 | u64::from(order.u32(body, 8)?);
    let captured = usize::try_from(order.u32(body, 12)?).ok()?;
    #[allow(clippy::cast_precision_loss)]
    // In this century, a double has a precision of a quarter of a microsecond.
    let time = time as f64 * interface.unit;
    Some(CapturedPacket {
        time,
        link_type: interface.link_type,
        bytes: body.get(20..20_usize.checked_add(captured)?)?,
        length: order.u32(body, 16)?,
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
