//! Captures: pcap and pcapng, as tcpdump, Wireshark and others write them.
//!
//! Packets are read one after another and not stored. Formats: draft-ietf-opsawg-pcap,
//! draft-ietf-opsawg-pcapng.

use std::io::{self, BufRead, BufReader, Read};

use midspan_wire::TcpPacket;

use super::trace::{Connections, Seen};
use super::{Measured, MeasuredError};

/// Largest packet or block that is read, in bytes.
const LARGEST_PACKET: u32 = 1 << 20;
/// Largest number of packets that are read.
const MOST_PACKETS: u64 = 200_000_000;
/// Largest number of interfaces in a pcapng file.
const MOST_INTERFACES: usize = 4096;

/// Reads a capture: the connections with data, those with the most data first.
///
/// # Errors
/// The input is no capture, is cut off within its first packet, or has no TCP connection with data.
pub fn read(input: impl Read) -> Result<Vec<Measured>, MeasuredError> {
    let mut input = BufReader::new(input);
    let mut connections = Connections::default();
    let mut add = |packet: &Packet<'_>| {
        if let Some(seen) = dissect(packet) {
            connections.add(&seen);
        }
    };
    let begin = input.fill_buf()?;
    match begin.get(..4) {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => read_pcapng(&mut input, &mut add)?,
        Some(_) => read_pcap(&mut input, &mut add)?,
        None => return Err(wrong("it is shorter than a header")),
    }
    let measured = connections.measured();
    if measured.is_empty() {
        return Err(MeasuredError::Empty {
            hint: "capture on an interface that the connection passes, with `tcpdump tcp`",
        });
    }
    Ok(measured)
}

fn wrong(what: impl Into<String>) -> MeasuredError {
    MeasuredError::Format {
        program: "tcpdump (pcap or pcapng)",
        what: what.into(),
    }
}

/// A captured packet.
struct Packet<'a> {
    /// Seconds since any fixed point in time.
    time: f64,
    link_type: u32,
    bytes: &'a [u8],
    /// Length on the wire.
    length: u32,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    little: bool,
}

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
    add: &mut impl FnMut(&Packet<'_>),
) -> Result<(), MeasuredError> {
    let mut header = [0; 24];
    if !fill(input, &mut header)? {
        return Err(wrong("it is shorter than a header"));
    }
    let (little, fraction) = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, 1e-6),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, 1e-6),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, 1e-9),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, 1e-9),
        _ => return Err(wrong("its first four bytes are those of no capture")),
    };
    let order = Order { little };
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
        add(&Packet {
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
    add: &mut impl FnMut(&Packet<'_>),
) -> Result<(), MeasuredError> {
    let mut order = Order { little: true };
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut head = [0; 8];
    let mut body = Vec::new();
    for _ in 0..MOST_PACKETS {
        if !fill(input, &mut head)? {
            break;
        }
        let section = head[..4] == [0x0a, 0x0d, 0x0d, 0x0a];
        let mut magic = [0; 4];
        if section {
            // A section contains its byte order after its length.
            if !fill(input, &mut magic)? {
                break;
            }
            order = match magic {
                [0x4d, 0x3c, 0x2b, 0x1a] => Order { little: true },
                [0x1a, 0x2b, 0x3c, 0x4d] => Order { little: false },
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
            Some(1) if interfaces.len() < MOST_INTERFACES => {
                interfaces.extend(interface(order, &body));
            }
            Some(6) => {
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
    // Options: code, length, value, padded to four bytes; code 9 is the resolution of the clock.
    while let (Some(code), Some(length)) = (order.u16(body, at), order.u16(body, at + 2)) {
        if code == 0 {
            break;
        }
        if let (9, Some(&resolution)) = (code, body.get(at + 4)) {
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
) -> Option<Packet<'a>> {
    let index = usize::try_from(order.u32(body, 0)?).ok()?;
    let interface = interfaces.get(index)?;
    let time = u64::from(order.u32(body, 4)?) << 32 | u64::from(order.u32(body, 8)?);
    let captured = usize::try_from(order.u32(body, 12)?).ok()?;
    #[allow(clippy::cast_precision_loss)]
    // In this century, a double has a precision of a quarter of a microsecond.
    let time = time as f64 * interface.unit;
    Some(Packet {
        time,
        link_type: interface.link_type,
        bytes: body.get(20..20_usize.checked_add(captured)?)?,
        length: order.u32(body, 16)?,
    })
}

/// The TCP packet in a captured packet; `None` if it is no TCP, or a later fragment.
fn dissect(packet: &Packet<'_>) -> Option<Seen> {
    let bytes = packet.bytes;
    // Bytes of the link layer's header; most captures are cut off after the headers.
    let (link, tcp) = match packet.link_type {
        1 => TcpPacket::read_ethernet(bytes)?,
        kind => {
            let link = match kind {
                0 | 108 => 4,
                12 | 14 | 101 | 228 | 229 => 0,
                113 => 16,
                276 => 20,
                _ => return None,
            };
            (link, TcpPacket::read(bytes.get(link..)?)?)
        }
    };
    let length = usize::try_from(packet.length).ok()?.checked_sub(link)?;
    Seen::from_packet(packet.time, &tcp, length)
}
