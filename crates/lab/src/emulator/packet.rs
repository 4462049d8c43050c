//! The interface of frames for the stages of a link.

use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, NetSlice, SlicedPacket,
    TcpSlice, TransportSlice,
};
use midspan_link::{Headers, Packet, Piece, PureAck, flow_identity};
use midspan_units::Time;

use super::frame::{ETHERNET_HEADER, Frame, Kind};

/// The kind of the option with SACK blocks (RFC 2018).
const SELECTIVE_ACKNOWLEDGEMENT: u8 = 5;

impl Packet for Frame {
    fn size(&self) -> u32 {
        u32::try_from(self.bytes.len().saturating_sub(ETHERNET_HEADER)).unwrap_or(u32::MAX)
    }

    fn flow(&self) -> u64 {
        self.find_flow().unwrap_or_default()
    }

    fn acknowledgement(&self) -> Option<PureAck> {
        if self.kind != Kind::PureAck {
            return None;
        }
        let packet = SlicedPacket::from_ethernet(&self.bytes).ok()?;
        let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
            return None;
        };
        Some(PureAck {
            number: tcp.acknowledgment_number(),
            window: tcp.window_size().into(),
            selective: has_blocks(&tcp),
            marked: false,
        })
    }

    fn piece(&self) -> Piece {
        match self.network() {
            Some(Network::Four(header)) => Piece {
                identification: header.identification,
                offset: header.fragment_offset.value(),
                more: header.more_fragments,
            },
            Some(Network::Six(_, Some(fragment))) => Piece {
                identification: low(fragment.identification),
                offset: fragment.fragment_offset.value(),
                more: fragment.more_fragments,
            },
            _ => Piece::default(),
        }
    }

    fn fragment_headers(&self) -> [u32; 2] {
        const SIX: u32 = Ipv6Header::LEN as u32;
        const SIX_FRAGMENT: u32 = SIX + Ipv6FragmentHeader::LEN as u32;
        match self.network() {
            Some(Network::Six(_, None)) => [SIX, SIX_FRAGMENT],
            Some(Network::Six(_, Some(_))) => [SIX_FRAGMENT; 2],
            _ => [midspan_link::FRAGMENT_HEADER; 2],
        }
    }

    /// Cuts IPv4 without options and IPv6 without extension headers, even if a sender or the
    /// protocol forbids routers to fragment.
    fn cut(&self, piece: Piece, skip: u32, bytes: u32) -> Option<Self> {
        let [header, _] = self.fragment_headers();
        let start = ETHERNET_HEADER + usize::try_from(header + skip).ok()?;
        let part = self
            .bytes
            .get(start..start + usize::try_from(bytes).ok()?)?;
        let mut cut = self.bytes.get(..ETHERNET_HEADER)?.to_vec();
        let offset = IpFragOffset::try_new(piece.offset).ok()?;
        match self.network()? {
            Network::Four(mut header) => {
                header.identification = piece.identification;
                header.dont_fragment = false;
                header.more_fragments = piece.more;
                header.fragment_offset = offset;
                header.set_payload_len(part.len()).ok()?;
                header.header_checksum = header.calc_header_checksum();
                cut.extend(header.to_bytes());
            }
            Network::Six(mut header, fragment) => {
                let next_header = fragment
                    .as_ref()
                    .map_or(header.next_header, |fragment| fragment.next_header);
                let identification = fragment.map_or(u32::from(piece.identification), |fragment| {
                    fragment.identification
                });
                header.next_header = IpNumber::IPV6_FRAGMENTATION_HEADER;
                header
                    .set_payload_length(Ipv6FragmentHeader::LEN + part.len())
                    .ok()?;
                cut.extend(header.to_bytes());
                cut.extend(
                    Ipv6FragmentHeader::new(next_header, offset, piece.more, identification)
                        .to_bytes(),
                );
            }
        }
        cut.extend(part);
        Some(Self {
            kind: self.kind.of_part(self.size() - header, skip, bytes),
            bytes: cut,
        })
    }

    fn headers(&self, _now: Time, _identification: u16) -> Option<Headers> {
        let packet = SlicedPacket::from_ethernet(&self.bytes).ok()?;
        let (Some(NetSlice::Ipv4(four)), Some(TransportSlice::Tcp(tcp))) =
            (packet.net, packet.transport)
        else {
            return None;
        };
        Some(Headers {
            bytes: [four.header().slice(), tcp.header_slice()].concat(),
            data: u16::try_from(tcp.payload().len()).ok()?,
        })
    }
}

/// The network header of a frame whose packet can be cut.
enum Network {
    Four(Ipv4Header),
    Six(Ipv6Header, Option<Ipv6FragmentHeader>),
}

impl Frame {
    fn network(&self) -> Option<Network> {
        let packet = self.bytes.get(ETHERNET_HEADER..)?;
        if let Ok((header, _)) = Ipv4Header::from_slice(packet) {
            return header.options.is_empty().then_some(Network::Four(header));
        }
        let (header, payload) = Ipv6Header::from_slice(packet).ok()?;
        match header.next_header {
            IpNumber::TCP | IpNumber::UDP | IpNumber::IPV6_ICMP => Some(Network::Six(header, None)),
            IpNumber::IPV6_FRAGMENTATION_HEADER => {
                let (fragment, _) = Ipv6FragmentHeader::from_slice(payload).ok()?;
                Some(Network::Six(header, Some(fragment)))
            }
            _ => None,
        }
    }

    /// Protocol, addresses and ports as one number.
    fn find_flow(&self) -> Option<u64> {
        let packet = SlicedPacket::from_ethernet(&self.bytes).ok()?;
        let ports = match packet.transport {
            Some(TransportSlice::Tcp(tcp)) => Some([tcp.source_port(), tcp.destination_port()]),
            Some(TransportSlice::Udp(udp)) => Some([udp.source_port(), udp.destination_port()]),
            _ => None,
        };
        Some(match packet.net? {
            NetSlice::Ipv4(four) => {
                let header = four.header();
                let protocol = four.payload().ip_number.0;
                flow_identity(protocol, &header.source(), &header.destination(), ports)
            }
            NetSlice::Ipv6(six) => {
                let header = six.header();
                let protocol = six.payload().ip_number.0;
                flow_identity(protocol, &header.source(), &header.destination(), ports)
            }
            _ => return None,
        })
    }
}

fn has_blocks(tcp: &TcpSlice<'_>) -> bool {
    midspan_wire::options(tcp.options())
        .flatten()
        .any(|option| option.kind == SELECTIVE_ACKNOWLEDGEMENT && option.content.len() >= 8)
}

fn low(identification: u32) -> u16 {
    let [_, _, high, low] = identification.to_be_bytes();
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use midspan_link::fragments;

    use super::super::frame::classify;
    use super::*;

    fn frame(six: bool, payload: usize, acknowledges: Option<u32>) -> Frame {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let builder = if six {
            builder.ipv6([1; 16], [2; 16], 64)
        } else {
            builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut tcp = builder.tcp(1, 2, 3, 1000);
        if let Some(number) = acknowledges {
            tcp = tcp.ack(number);
        }
        let payload: Vec<u8> = (0..payload).map(|byte| byte as u8).collect();
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, &payload).unwrap();
        let kind = classify(&bytes);
        Frame { bytes, kind }
    }

    /// The payload of the network layer, reassembled from fragments.
    fn joined(pieces: &[Frame]) -> Vec<u8> {
        let mut payload = Vec::new();
        for piece in pieces {
            assert_eq!(usize::from(piece.piece().offset) * 8, payload.len());
            let header = usize::try_from(piece.fragment_headers()[0]).unwrap();
            payload.extend(&piece.bytes[ETHERNET_HEADER + header..]);
        }
        payload
    }

    #[test]
    fn a_frame_that_is_cut_twice_has_all_its_bytes() {
        for (six, header) in [(false, 20), (true, 40)] {
            let whole = frame(six, 1300, Some(7));
            let pieces = fragments(&whole, 1000, 77).unwrap();
            let again: Vec<Frame> = pieces
                .iter()
                .flat_map(|piece| fragments(piece, 600, 88).unwrap())
                .collect();
            assert!(again.len() >= 3 && again.iter().all(|piece| piece.size() <= 600));
            assert_eq!(joined(&again), whole.bytes[ETHERNET_HEADER + header..]);
            for (index, piece) in again.iter().enumerate() {
                let found = piece.piece();
                assert_eq!(found.identification, 77);
                assert_eq!(found.more, index + 1 < again.len());
                // The checks of a receiver's kernel.
                let read = SlicedPacket::from_ethernet(&piece.bytes).unwrap();
                if let Some(NetSlice::Ipv4(four)) = read.net {
                    let header = four.header().to_header();
                    assert_eq!(header.header_checksum, header.calc_header_checksum());
                    assert!(!header.dont_fragment);
                }
                assert_eq!(classify(&piece.bytes), piece.kind);
            }
            let data = |frame: &Frame| match frame.kind {
                Kind::Data(length) | Kind::Rest(length) => length,
                _ => 0,
            };
            assert_eq!(again.iter().map(data).sum::<u32>(), 1300);
        }
    }

    #[test]
    fn an_acknowledgement_is_seen_and_a_data_segment_is_none() {
        let ack = frame(false, 0, Some(99)).acknowledgement().unwrap();
        assert_eq!((ack.number, ack.window, ack.selective), (99, 1000, false));
        assert_eq!(frame(false, 1, Some(99)).acknowledgement(), None);
        assert_eq!(frame(true, 0, Some(5)).flow(), frame(true, 9, None).flow());
        assert_ne!(
            frame(true, 0, Some(5)).flow(),
            frame(false, 0, Some(5)).flow()
        );
    }

    #[test]
    fn the_identity_of_a_flow_is_that_of_an_independent_program() {
        // Computed by a Python program from the description of `flow_identity`.
        assert_eq!(frame(false, 9, Some(7)).flow(), 0x2ecb_7490_8c38_0805);
        assert_eq!(frame(true, 9, Some(7)).flow(), 0xb575_de61_3899_6ec8);
        let pieces = fragments(&frame(false, 900, Some(7)), 600, 1).unwrap();
        assert!(
            pieces
                .iter()
                .all(|piece| piece.flow() == 0x386b_0071_9a88_70b4)
        );
    }

    #[test]
    fn the_headers_of_ipv4_are_those_of_the_frame() {
        let whole = frame(false, 100, Some(7));
        let headers = whole.headers(Time::ZERO, 1).unwrap();
        assert_eq!(
            headers.bytes,
            whole.bytes[ETHERNET_HEADER..ETHERNET_HEADER + 40]
        );
        assert_eq!(headers.data, 100);
        assert_eq!(frame(true, 100, Some(7)).headers(Time::ZERO, 1), None);
        let piece = fragments(&whole, 100, 1).unwrap().remove(0);
        assert_eq!(piece.headers(Time::ZERO, 1), None);
    }

    #[test]
    fn what_is_no_packet_is_not_cut() {
        let noise = Frame {
            bytes: vec![0; 200],
            kind: Kind::Other,
        };
        assert_eq!(fragments(&noise, 100, 1), None);
        assert_eq!((noise.flow(), noise.piece()), (0, Piece::default()));
    }
}
