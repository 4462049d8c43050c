//! The bytes that a simulated packet's header would have on the wire, for a compressor.

use etherparse::{IpNumber, Ipv4Header, TcpHeader};
use midspan_link::Headers;
use midspan_units::Time;

use super::{Data, DataKind, Packet, PacketDirection, Segment, SelectiveBlocks};

/// Size of IPv4 and TCP headers, in bytes: without options, and with timestamps.
const PLAIN: u32 = 40;
const TIMESTAMPS: u32 = 52;

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
        let mut tcp = tcp_header(packet)?;
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
        let [one, other] = [[192, 0, 2, 1], [198, 51, 100, 1]];
        let [from, to] = if packet.direction() == PacketDirection::Forward {
            [one, other]
        } else {
            [other, one]
        };
        let mut ip = Ipv4Header::new(0, 64, IpNumber::TCP, from, to).ok()?;
        ip.total_len = size;
        ip.identification = identification;
        ip.dont_fragment = true;
        ip.header_checksum = ip.calc_header_checksum();
        let mut options = Vec::new();
        if stamped {
            options.extend([1, 1, 8, 10]);
            let milliseconds = now.since(Time::ZERO).nanoseconds() / 1_000_000;
            #[allow(clippy::cast_possible_truncation)] // The clock of timestamps wraps.
            options.extend((milliseconds as u32).to_be_bytes());
            options.extend(packet.signals.timestamp.to_be_bytes());
        }
        if !blocks.is_empty() {
            options.extend([1, 1, 5, u8::try_from(8 * blocks.len() + 2).ok()?]);
            for block in blocks {
                let edge = |offset: u32| tcp.acknowledgment_number.wrapping_add(offset);
                options.extend(edge(block.start).to_be_bytes());
                options.extend(edge(block.end).to_be_bytes());
            }
        }
        tcp.set_options_raw(&options).ok()?;
        let ip = ip.to_bytes();
        let sum = midspan_wire::checksum([ip.get(12..)?, &tcp.to_bytes()]);
        tcp.checksum = u16::from_be_bytes(sum);
        Some(Headers {
            bytes: [&ip[..], &tcp.to_bytes()].concat(),
            data: u16::try_from(data).ok()?,
        })
    }
}

/// The TCP header of a packet without options and checksum. Sequence numbers are modulo 2³².
#[allow(clippy::cast_possible_truncation)]
fn tcp_header(packet: &Packet) -> Option<TcpHeader> {
    let ports = [packet.connection >> 16, packet.connection].map(|port| port as u16);
    let header = |sequence, window| TcpHeader::new(ports[0], ports[1], sequence, window);
    match &packet.segment {
        Segment::Data(Data { kind, sequence, .. }) => Some(TcpHeader {
            syn: *kind == DataKind::Synchronise,
            ack: *kind != DataKind::Synchronise,
            psh: *kind == DataKind::Payload,
            ..header(*sequence as u32, 1024)
        }),
        Segment::Acknowledgement(ack) => {
            let window = (ack.window_edge - ack.number) >> 8;
            Some(TcpHeader {
                ack: true,
                acknowledgment_number: ack.number as u32,
                ..header(0, u16::try_from(window).unwrap_or(u16::MAX))
            })
        }
        _ => None,
    }
}
