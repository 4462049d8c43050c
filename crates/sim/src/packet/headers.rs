//! The bytes that a simulated packet's header would have on the wire, for a compressor.

use midspan_link::Headers;
use midspan_units::Time;

use super::{Data, DataKind, Packet, Segment, SelectiveBlocks, Way};

/// Size of IPv4 and TCP headers, in bytes: without options, and with timestamps.
const PLAIN: u32 = 40;
const TIMESTAMPS: u32 = 52;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

impl Packet {
    /// The headers of a packet. `None` if RFC 1144 does not cover them: not TCP, IPv6, a fragment,
    /// or options other than timestamps and SACK.
    ///
    /// Ports and addresses are derived from the connection. The window is scaled by 2⁸. The
    /// checksum covers the header only, so that a wrongly restored header is detected.
    pub(super) fn build_headers(&self, now: Time, identification: u16) -> Option<Headers> {
        let packet = self;
        if packet.passage.is_fragment() {
            return None;
        }
        let fields = Fields::of(packet)?;
        let blocks = match &packet.segment {
            Segment::Acknowledgement(ack) => ack.blocks,
            _ => SelectiveBlocks::default(),
        };
        let blocks = blocks.as_slice();
        let with_blocks = match u32::try_from(blocks.len()).ok()? {
            0 => 0,
            count => 8 * count + 4,
        };
        let data = match &packet.segment {
            Segment::Data(data) => data.length,
            _ => 0,
        };
        let length = packet.size.checked_sub(data)?;
        let stamped = match length.checked_sub(with_blocks)? {
            PLAIN => false,
            TIMESTAMPS => true,
            _ => return None,
        };
        let size = u16::try_from(packet.size).ok()?;
        let mut header = vec![0x45, 0];
        header.extend(size.to_be_bytes());
        header.extend(identification.to_be_bytes());
        header.extend([0x40, 0, 64, 6, 0, 0]);
        let [one, other] = [[192, 0, 2, 1], [198, 51, 100, 1]];
        let ports = packet.connection.to_be_bytes();
        let forward = packet.way() == Way::Forward;
        let ends = if forward { [one, other] } else { [other, one] };
        header.extend(ends.concat());
        let sum = checksum(&header);
        header.splice(10..12, sum);
        header.extend(ports);
        header.extend(fields.sequence.to_be_bytes());
        header.extend(fields.acknowledgement.to_be_bytes());
        header.push(u8::try_from((length - 20) / 4).ok()? << 4);
        header.push(fields.flags);
        header.extend(fields.window.to_be_bytes());
        header.extend([0; 4]);
        if stamped {
            header.extend([1, 1, 8, 10]);
            let milliseconds = now.since(Time::ZERO).nanoseconds() / 1_000_000;
            #[allow(clippy::cast_possible_truncation)] // The clock of timestamps wraps.
            header.extend((milliseconds as u32).to_be_bytes());
            header.extend(packet.signals.timestamp.to_be_bytes());
        }
        if !blocks.is_empty() {
            header.extend([1, 1, 5, u8::try_from(8 * blocks.len() + 2).ok()?]);
            for block in blocks {
                let edge = |offset: u32| fields.acknowledgement.wrapping_add(offset);
                header.extend(edge(block.start).to_be_bytes());
                header.extend(edge(block.end).to_be_bytes());
            }
        }
        let sum = checksum(header.get(12..)?);
        header.splice(36..38, sum);
        Some(Headers {
            bytes: header,
            data: u16::try_from(data).ok()?,
        })
    }
}

struct Fields {
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    flags: u8,
}

impl Fields {
    /// The fields as on the wire: numbers modulo 2³².
    #[allow(clippy::cast_possible_truncation)]
    fn of(packet: &Packet) -> Option<Self> {
        match &packet.segment {
            Segment::Data(Data { kind, sequence, .. }) => Some(Self {
                sequence: *sequence as u32,
                acknowledgement: 0,
                window: 1024,
                flags: match kind {
                    DataKind::Synchronise => SYN,
                    DataKind::Payload => ACK | PSH,
                    DataKind::Probe => ACK,
                },
            }),
            Segment::Acknowledgement(ack) => Some(Self {
                sequence: 0,
                acknowledgement: ack.number as u32,
                window: u16::try_from((ack.window_edge - ack.number) >> 8).unwrap_or(u16::MAX),
                flags: ACK,
            }),
            _ => None,
        }
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| {
        let byte = |at: usize| u32::from(pair.get(at).copied().unwrap_or_default());
        byte(0) << 8 | byte(1)
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap_or_default()).to_be_bytes()
}
