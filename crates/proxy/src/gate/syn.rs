//! Parses a client's first segment.

use midspan_policy::Request;
use midspan_policy::learned_start::LEAST_WINDOW;
use midspan_wire::{DamagedOption, IPV6_HEADER, TcpPacket, set_checksums};

/// Bytes that are copied of a packet: all headers of any SYN that a host sends.
pub const COPIED: u16 = 256;

/// TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925).
const AUTHENTICATION_OPTIONS: [u8; 2] = [19, 29];
/// MPTCP (RFC 8684, section 3), and of its options `MP_JOIN` (section 3.2).
const MULTIPATH_OPTION: u8 = 30;
const JOIN: u8 = 1;

/// A client's SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syn {
    /// Its addresses.
    pub request: Request,
    /// Its sequence number, which distinguishes attempts with the same addresses and ports.
    pub sequence: u32,
    /// Whether both ends sign their segments (TCP-MD5, TCP-AO), so that no proxy can split the
    /// connection.
    pub is_authenticated: bool,
    /// Whether it adds a subflow to a multipath connection (`MP_JOIN`). The connection does not
    /// belong to Midspan, because an intercepted connection has fallen back to TCP. So the first
    /// subflow leads elsewhere, and only that server has the keys.
    pub joins_multipath: bool,
}

/// A segment with which a client opens a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// The first segment.
    Syn(Syn),
    /// Any later one.
    Acknowledgement(Request),
}

/// Parses a packet from its IP header on; `None` if it is neither kind of segment.
pub fn read(packet: &[u8]) -> Option<Segment> {
    let packet = TcpPacket::read(packet)?;
    let tcp = &packet.tcp;
    let request = Request {
        client: packet.source,
        server: packet.destination,
    };
    match (tcp.syn(), tcp.ack()) {
        _ if tcp.rst() || tcp.fin() => None,
        (false, true) => Some(Segment::Acknowledgement(request)),
        (true, false) => Some(Segment::Syn(Syn {
            request,
            sequence: tcp.sequence_number(),
            is_authenticated: options(tcp.options())
                .any(|(kind, _)| AUTHENTICATION_OPTIONS.contains(&kind)),
            joins_multipath: options(tcp.options()).any(|(kind, content)| {
                kind == MULTIPATH_OPTION && content.first().is_some_and(|byte| byte >> 4 == JOIN)
            }),
        })),
        _ => None,
    }
}

/// A SYN without its data, with new lengths and checksums. The client sends the data again, because
/// the SYN-ACK acknowledges only the SYN (RFC 9293, section 3.10.7.2). `None` if TCP does not
/// directly follow the IP header, or a header is incomplete.
pub(super) fn without_data(packet: &[u8]) -> Option<Vec<u8>> {
    let headers = direct_headers(packet)?;
    let mut cut = packet.get(..headers)?.to_vec();
    set_length(&mut cut)?;
    set_checksums(&mut cut)?;
    Some(cut)
}

/// Bytes of data behind the headers of a packet of this whole length.
pub(super) fn data_length(packet: &[u8], whole: u32) -> Option<u32> {
    whole.checked_sub(u32::try_from(direct_headers(packet)?).ok()?)
}

/// Bytes of the headers of a TCP segment that follows directly on the IP header.
fn direct_headers(packet: &[u8]) -> Option<usize> {
    let packet = TcpPacket::read(packet)?;
    (!packet.has_extensions).then(|| packet.headers())
}

/// Writes the length of the packet, as it is, into its IP header.
fn set_length(packet: &mut [u8]) -> Option<()> {
    let whole = u16::try_from(packet.len()).ok()?;
    match packet.first()? >> 4 {
        4 => packet.get_mut(2..4)?.copy_from_slice(&whole.to_be_bytes()),
        _ => {
            let payload = whole.checked_sub(IPV6_HEADER as u16)?;
            packet
                .get_mut(4..6)?
                .copy_from_slice(&payload.to_be_bytes());
        }
    }
    Some(())
}

/// The hop limit (TTL) with which a SYN that is sent again reaches the sockets with this initial
/// window, in segments: `STEPS` more for each doubling, and fewer for a window between two of these.
#[must_use]
pub fn hop_limit(window: u32) -> u8 {
    let doublings = (window / LEAST_WINDOW).checked_ilog2().unwrap_or(0);
    let doubled = LEAST_WINDOW << doublings;
    let between = window.saturating_sub(doubled) * STEPS / doubled;
    64 + u8::try_from(doublings * STEPS + between).unwrap_or(0)
}

/// A window that is no doubling of the least one is at least a quarter larger than the one before, so
/// that it has a hop limit of its own.
const STEPS: u32 = 8;

/// Sets a packet's hop limit. The kernel computes the checksum of IPv4 when it sends the packet.
pub(super) fn set_hop_limit(packet: &mut [u8], hop_limit: u8) {
    let place = match packet.first().map(|first| first >> 4) {
        Some(4) => 8,
        _ => 7,
    };
    if let Some(byte) = packet.get_mut(place) {
        *byte = hop_limit;
    }
}

/// The kinds of TCP options and their contents. A damaged option has a kind, but no content.
fn options(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    midspan_wire::options(bytes).map(|option| match option {
        Ok(option) => (option.kind, option.content),
        Err(DamagedOption { kind }) => (kind, &[][..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_syn(packet: &[u8]) -> Option<Syn> {
        match read(packet)? {
            Segment::Syn(syn) => Some(syn),
            Segment::Acknowledgement(_) => None,
        }
    }
    use etherparse::PacketBuilder;
    use midspan_policy::learned_start::{MOST_WINDOW, windows};
    use std::collections::BTreeSet;

    #[test]
    fn a_syn_says_by_its_hop_limit_which_window_it_is_for() {
        assert_eq!(
            [0, 10, 20, 40, 320, 440, 640].map(hop_limit),
            [64, 64, 72, 80, 104, 107, 112]
        );
        // Every limit of a configuration gives windows that differ.
        for most in LEAST_WINDOW..=MOST_WINDOW {
            let limits: BTreeSet<u8> = windows(most).into_iter().map(hop_limit).collect();
            assert_eq!(limits.len(), windows(most).len(), "{most}");
            assert!(limits.iter().all(|limit| *limit > hop_limit(LEAST_WINDOW)));
        }
        let mut four = packet(|_| {});
        set_hop_limit(&mut four, 66);
        assert_eq!(
            etherparse::Ipv4HeaderSlice::from_slice(&four)
                .unwrap()
                .ttl(),
            66
        );
        let mut six = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 7)
            .tcp(1, 2, 3, 4)
            .write(&mut six, &[])
            .unwrap();
        set_hop_limit(&mut six, 66);
        let header = etherparse::Ipv6HeaderSlice::from_slice(&six).unwrap();
        assert_eq!(header.hop_limit(), 66);
        set_hop_limit(&mut [], 1);
    }

    fn packet(change: impl FnOnce(&mut etherparse::TcpHeader)) -> Vec<u8> {
        let mut tcp = etherparse::TcpHeader::new(1234, 80, 7, 65535);
        tcp.syn = true;
        change(&mut tcp);
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64)
            .tcp_header(tcp)
            .write(&mut bytes, &[])
            .unwrap();
        bytes
    }

    #[test]
    fn addresses_of_both_families() {
        let syn = read_syn(&packet(|_| {})).unwrap();
        assert_eq!(syn.request.client, "192.0.2.1:1234".parse().unwrap());
        assert_eq!(syn.request.server, "198.51.100.2:80".parse().unwrap());
        assert!(!syn.is_authenticated);
        assert_eq!(syn.sequence, 7);
        let mut six = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
            .tcp(1, 2, 3, 4)
            .syn()
            .write(&mut six, b"early data")
            .unwrap();
        let syn = read_syn(&six).unwrap();
        assert_eq!(
            (syn.request.client.port(), syn.request.server.port()),
            (1, 2)
        );
        assert!(syn.request.server.is_ipv6());
    }

    fn with_data(is_four: bool, options: &[u8], data: &[u8]) -> Vec<u8> {
        let mut tcp = etherparse::TcpHeader::new(1234, 80, 7, 65535);
        tcp.syn = true;
        tcp.set_options_raw(options).unwrap();
        let builder = match is_four {
            true => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64),
            false => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let mut bytes = Vec::new();
        let builder = builder.tcp_header(tcp);
        builder.write(&mut bytes, data).unwrap();
        bytes
    }

    #[test]
    fn a_syn_without_its_data_is_the_one_that_had_none() {
        // MSS, SACK permitted, timestamps, window scale; a cookie of TCP Fast Open.
        let options = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7, 34, 6, 1, 2, 3, 4, 1, 1,
        ];
        for is_four in [true, false] {
            for options in [&options[..], &[]] {
                let bare = with_data(is_four, options, &[]);
                assert_eq!(data_length(&bare, bare.len() as u32), Some(0));
                // Odd and even lengths, and more than is copied.
                for length in [1, 2, 1399, 60_000] {
                    let whole = with_data(is_four, options, &vec![0xa5; length]);
                    let copied = &whole[..whole.len().min(COPIED.into())];
                    let told = data_length(copied, whole.len() as u32).unwrap();
                    assert_eq!(told as usize, length);
                    assert_eq!(without_data(copied).unwrap(), bare);
                    let read = (read_syn(copied), read_syn(&bare));
                    assert!(read.0.is_some() && read.0 == read.1);
                }
            }
        }
    }

    #[test]
    fn what_is_cut_within_its_headers_has_no_shorter_form() {
        for is_four in [true, false] {
            let whole = with_data(is_four, &[2, 4, 5, 180], b"data");
            for length in 0..whole.len() - 4 {
                assert_eq!(without_data(&whole[..length]), None);
            }
        }
        // TCP behind another header of IPv6, and other protocols.
        let mut other = with_data(false, &[], b"data");
        other[6] = 60;
        assert_eq!(
            (without_data(&other), data_length(&other, 999)),
            (None, None)
        );
    }

    #[test]
    fn what_is_no_first_segment_is_nothing() {
        assert_eq!(read_syn(&packet(|tcp| tcp.ack = true)), None);
        assert_eq!(read_syn(&packet(|tcp| tcp.syn = false)), None);
        let whole = packet(|_| {});
        for length in 0..whole.len() {
            assert_eq!(read_syn(&whole[..length]), None);
        }
        assert_eq!(read_syn(&[0xff; 60]), None);
    }

    #[test]
    fn signed_connections_are_recognised() {
        let mut md5 = vec![1, 1, 19, 18];
        md5.resize(20, 0);
        let signed = packet(|tcp| tcp.set_options_raw(&md5).unwrap());
        assert!(read_syn(&signed).unwrap().is_authenticated);
        let ao = packet(|tcp| tcp.set_options_raw(&[2, 4, 5, 180, 29, 4, 0, 0]).unwrap());
        assert!(read_syn(&ao).unwrap().is_authenticated);
        // A length of 0 must not cause an endless loop; 19 as a value is not an option.
        let odd = packet(|tcp| tcp.set_options_raw(&[9, 0, 2, 4, 19, 19, 0, 0]).unwrap());
        assert!(!read_syn(&odd).unwrap().is_authenticated);
    }
    #[test]
    fn a_further_path_of_a_multipath_connection_is_recognised() {
        let with = |options: &[u8]| {
            read_syn(&packet(|tcp| tcp.set_options_raw(options).unwrap())).unwrap()
        };
        // RFC 8684, figure 5: MP_JOIN of a SYN has 12 bytes; figure 4: MP_CAPABLE of a SYN has 4.
        let join = with(&[2, 4, 5, 180, 30, 12, 0x10, 1, 9, 9, 9, 9, 8, 8, 8, 8]);
        assert!(join.joins_multipath && !join.is_authenticated);
        assert!(with(&[1, 1, 1, 1, 30, 12, 0x11, 1, 9, 9, 9, 9, 8, 8, 8, 8]).joins_multipath);
        assert!(!with(&[30, 4, 0x01, 1]).joins_multipath);
        // Too short for a subtype, cut off, and the same bytes as the content of another option.
        assert!(!with(&[30, 2, 0x10, 0]).joins_multipath);
        assert!(!with(&[1, 1, 30, 12]).joins_multipath);
        assert!(!with(&[9, 4, 30, 12]).joins_multipath);
    }
}
