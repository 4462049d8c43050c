//! Reading IP packets that carry TCP.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpAuthHeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionSlice, Ipv6ExtensionsSlice,
    Ipv6HeaderSlice, LaxNetSlice, LaxSlicedPacket, TcpHeaderSlice, TransportSlice,
};

use crate::IPV6_HEADER;

/// Bytes of an Ethernet header without tags.
const ETHERNET_HEADER: usize = 14;

/// The headers of a TCP segment in an IP packet. The packet may be truncated anywhere behind them.
#[derive(Debug, Clone)]
pub struct TcpPacket<'a> {
    /// The source.
    pub source: SocketAddr,
    /// The destination.
    pub destination: SocketAddr,
    /// Bytes of the IP header and of its extension headers.
    pub ip_header: usize,
    /// Bytes of the whole packet according to its IP header. Segmentation offload leaves 0 where the
    /// packet is too long for the field, so this may be less than the headers.
    pub stated_length: usize,
    /// The TCP header does not follow directly on the IP header.
    pub has_extensions: bool,
    /// One of the extension headers is an authentication header (RFC 4302).
    pub is_authenticated: bool,
    /// The TCP header with its options.
    pub tcp: TcpHeaderSlice<'a>,
}

/// Which fragments are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fragments {
    None,
    First,
}

impl Fragments {
    const fn include(self, is_first: bool) -> bool {
        is_first && matches!(self, Self::First)
    }
}

/// Whether an IP packet carries UDP. The packet may be truncated behind its UDP header.
#[must_use]
pub fn is_udp(packet: &[u8]) -> bool {
    let packet = LaxSlicedPacket::from_ip(packet);
    packet.is_ok_and(|packet| matches!(packet.transport, Some(TransportSlice::Udp(_))))
}

impl<'a> TcpPacket<'a> {
    /// Reads a packet from its IP header on. `None` for other protocols, fragments, and damaged or
    /// truncated headers.
    #[must_use]
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        Self::read_ip(packet, Fragments::None)
    }

    /// The same, and also reads the first fragment of a packet, whose stated length is that of the
    /// fragment.
    #[must_use]
    pub fn read_first(packet: &'a [u8]) -> Option<Self> {
        Self::read_ip(packet, Fragments::First)
    }

    /// The same as [`read`](Self::read), from the Ethernet header on. Also returns the length of the
    /// Ethernet header with its tags, in bytes.
    #[must_use]
    pub fn read_ethernet(frame: &'a [u8]) -> Option<(usize, Self)> {
        let sliced = LaxSlicedPacket::from_ethernet(frame).ok()?;
        let tags: usize = sliced.link_exts.iter().map(|tag| tag.header_len()).sum();
        let link = ETHERNET_HEADER + tags;
        match sliced.net? {
            LaxNetSlice::Ipv4(_) | LaxNetSlice::Ipv6(_) => {
                Some((link, Self::read(frame.get(link..)?)?))
            }
            LaxNetSlice::Arp(_) => None,
        }
    }

    fn read_ip(packet: &'a [u8], fragments: Fragments) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_v4(packet, fragments),
            6 => Self::read_v6(packet, fragments),
            _ => None,
        }
    }

    fn read_v4(packet: &'a [u8], fragments: Fragments) -> Option<Self> {
        let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
        let stated_length = usize::from(header.total_len());
        let ip_header = header.slice().len();
        let payload = payload(packet, ip_header, stated_length);
        let is_first = header.fragments_offset().value() == 0;
        let is_read = !header.is_fragmenting_payload() || fragments.include(is_first);
        let (protocol, authentication, payload) = match header.protocol() {
            IpNumber::AUTHENTICATION_HEADER => {
                let authentication = IpAuthHeaderSlice::from_slice(payload).ok()?;
                let length = authentication.slice().len();
                (authentication.next_header(), length, payload.get(length..)?)
            }
            protocol => (protocol, 0, payload),
        };
        if protocol != IpNumber::TCP || !is_read {
            return None;
        }
        let tcp = TcpHeaderSlice::from_slice(payload).ok()?;
        Some(Self {
            source: SocketAddr::new(header.source_addr().into(), tcp.source_port()),
            destination: SocketAddr::new(header.destination_addr().into(), tcp.destination_port()),
            ip_header: ip_header + authentication,
            stated_length,
            has_extensions: authentication > 0,
            is_authenticated: authentication > 0,
            tcp,
        })
    }

    fn read_v6(packet: &'a [u8], fragments: Fragments) -> Option<Self> {
        let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
        let stated_length = IPV6_HEADER + usize::from(header.payload_length());
        let payload = payload(packet, IPV6_HEADER, stated_length);
        // The lax reader of etherparse 0.21 is no alternative: after an incomplete extension header, the
        // iterator over these headers reads behind the end of the packet.
        let (extensions, protocol, payload) =
            Ipv6ExtensionsSlice::from_slice(header.next_header(), payload).ok()?;
        let ip_header = IPV6_HEADER + extensions.slice().len();
        let is_fragment = extensions.is_fragmenting_payload();
        let (mut is_first, mut is_authenticated) = (true, false);
        for extension in extensions {
            match extension {
                Ipv6ExtensionSlice::Fragment(fragment) => {
                    is_first &= fragment.fragment_offset().value() == 0;
                }
                Ipv6ExtensionSlice::Authentication(_) => is_authenticated = true,
                _ => {}
            }
        }
        if protocol != IpNumber::TCP || (is_fragment && !fragments.include(is_first)) {
            return None;
        }
        let tcp = TcpHeaderSlice::from_slice(payload).ok()?;
        Some(Self {
            source: SocketAddr::new(header.source_addr().into(), tcp.source_port()),
            destination: SocketAddr::new(header.destination_addr().into(), tcp.destination_port()),
            ip_header,
            stated_length,
            has_extensions: ip_header > IPV6_HEADER,
            is_authenticated,
            tcp,
        })
    }

    /// Bytes of all headers, up to the data.
    #[must_use]
    pub fn headers(&self) -> usize {
        self.ip_header + self.tcp.slice().len()
    }
}

/// What is behind an IP header, up to the stated end of the packet, if this end is possible.
fn payload(packet: &[u8], header: usize, stated_length: usize) -> &[u8] {
    let end = match stated_length {
        stated if stated > header => stated.min(packet.len()),
        _ => packet.len(),
    };
    packet.get(header..end).unwrap_or_default()
}

/// The destination of an IP packet, and the number of the protocol behind its IP header. The packet
/// may be truncated behind that header.
#[must_use]
pub fn destination(packet: &[u8]) -> Option<(IpAddr, u8)> {
    if let Ok(header) = Ipv4HeaderSlice::from_slice(packet) {
        return Some((header.destination_addr().into(), header.protocol().0));
    }
    let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
    Some((header.destination_addr().into(), header.next_header().0))
}

/// The source of an IP packet, which may be truncated behind its IP header.
#[must_use]
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    if let Ok(header) = Ipv4HeaderSlice::from_slice(packet) {
        return Some(header.source_addr().into());
    }
    let header = Ipv6HeaderSlice::from_slice(packet).ok()?;
    Some(header.source_addr().into())
}

#[cfg(test)]
mod tests {
    use etherparse::{IpAuthHeader, IpHeaders, Ipv4Extensions, Ipv4Header, PacketBuilder};
    use proptest::prelude::*;

    use super::*;

    fn packet(six: bool, options: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = if six {
            PacketBuilder::ipv6([1; 16], [2; 16], 64)
        } else {
            PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64)
        };
        let builder = builder.tcp(1, 2, 3, 4).options_raw(options).unwrap();
        builder.write(&mut bytes, data).unwrap();
        bytes
    }

    #[test]
    fn headers_of_both_families_are_read_where_the_data_is_missing() {
        for (six, ip_header) in [(false, 20), (true, 40)] {
            let whole = packet(six, &[1, 1, 1, 0], b"data");
            let read = TcpPacket::read(&whole[..ip_header + 24]).unwrap();
            assert_eq!((read.source.port(), read.destination.port()), (1, 2));
            assert_eq!(read.source.is_ipv6(), six);
            assert_eq!(
                (read.ip_header, read.headers()),
                (ip_header, ip_header + 24)
            );
            assert_eq!(read.stated_length, whole.len());
            assert!(!read.has_extensions && !read.is_authenticated);
            for length in 0..ip_header + 24 {
                assert!(TcpPacket::read(&whole[..length]).is_none(), "{length}");
            }
            assert_eq!(destination(&whole).unwrap().0, read.destination.ip());
            assert_eq!(destination(&whole[..ip_header]), destination(&whole));
            assert_eq!(destination(&whole[..ip_header - 1]), None);
            assert_eq!(source(&whole[..ip_header]), Some(read.source.ip()));
            assert_eq!(source(&whole[..ip_header - 1]), None);
        }
    }

    #[test]
    fn ethernet_tags_are_part_of_the_link_header() {
        for tags in 0..3 {
            let mut frame = vec![2; 12];
            frame.extend([0x88, 0xa8, 0, 9].repeat(tags));
            frame.extend([8, 0]);
            frame.extend(packet(false, &[], b"x"));
            let (link, read) = TcpPacket::read_ethernet(&frame).unwrap();
            assert_eq!((link, read.headers()), (14 + 4 * tags, 40));
        }
        let mut frame = vec![2; 12];
        frame.extend([8, 6]);
        frame.extend([0; 46]);
        assert!(TcpPacket::read_ethernet(&frame).is_none());
    }

    #[test]
    fn an_authentication_header_is_reported() {
        let tcp = packet(false, &[], b"")[20..].to_vec();
        let auth = IpAuthHeader::new(IpNumber::TCP, 1, 2, &[0; 12]).unwrap();
        let mut four = Ipv4Header::new(0, 64, IpNumber::TCP, [1; 4], [2; 4]).unwrap();
        let mut headers = {
            four.set_payload_len(auth.header_len() + tcp.len()).unwrap();
            IpHeaders::Ipv4(four, Ipv4Extensions { auth: Some(auth) })
        };
        headers.set_next_headers(IpNumber::TCP);
        let mut bytes = Vec::new();
        headers.write(&mut bytes).unwrap();
        bytes.extend(tcp);
        let read = TcpPacket::read(&bytes).unwrap();
        assert!(read.is_authenticated && read.has_extensions);
        assert_eq!(read.headers(), bytes.len());
    }

    #[test]
    fn of_fragments_the_first_is_read_on_request() {
        let mut four = packet(false, &[], b"data");
        four[6] = 0x20;
        let mut six = packet(true, &[], b"data");
        six.splice(40..40, [6, 0, 0, 1, 0, 0, 0, 9]);
        (six[5], six[6]) = (six[5] + 8, 44);
        for packet in [&four, &six] {
            assert!(TcpPacket::read(packet).is_none());
            assert_eq!(TcpPacket::read_first(packet).unwrap().source.port(), 1);
        }
        (four[7], six[43]) = (1, 9);
        for packet in [&four, &six] {
            assert!(TcpPacket::read_first(packet).is_none());
        }
    }

    #[test]
    fn an_incomplete_chain_of_extension_headers_is_refused() {
        let mut six = packet(true, &[], b"data");
        six.splice(40..40, [60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]);
        (six[5], six[6]) = (six[5] + 16, 0);
        assert_eq!(TcpPacket::read(&six).unwrap().ip_header, 56);
        let link = [&[2; 12][..], &[0x86, 0xdd]].concat();
        for length in 0..six.len() - 4 {
            assert!(TcpPacket::read(&six[..length]).is_none());
            assert!(TcpPacket::read_first(&six[..length]).is_none());
            let frame = [&link, &six[..length]].concat();
            assert!(TcpPacket::read_ethernet(&frame).is_none());
        }
        // An option header that is longer than the packet, and two at the wrong place.
        six[49] = 200;
        assert!(TcpPacket::read_first(&six).is_none());
        (six[49], six[40]) = (0, 0);
        assert!(TcpPacket::read_first(&six).is_none());
    }

    proptest! {
        #[test]
        fn damaged_packets_are_read_or_refused(
            six in any::<bool>(),
            damage in prop::collection::vec((0_usize..100, any::<u8>()), 0..6),
            length in 0_usize..100,
        ) {
            let mut bytes = packet(six, &[1; 12], &[7; 30]);
            for (place, value) in damage {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
            bytes.truncate(length);
            if let Some(read) = TcpPacket::read(&bytes) {
                prop_assert!(read.headers() <= bytes.len() && read.headers() >= 40);
                prop_assert_eq!(TcpPacket::read_first(&bytes).map(|read| read.headers()),
                    Some(read.headers()));
            }
            let _ = destination(&bytes);
            let _ = TcpPacket::read_ethernet(&bytes);
        }
    }
}
