//! Removes the timestamp option (RFC 7323) from a client's SYN.
//!
//! The listener then offers no timestamps in its SYN-ACK, so neither end sends any: an ACK has 12
//! bytes fewer.

use std::ops::Range;

use midspan_wire::{
    TCP_CHECKSUM as CHECKSUM, TCP_HEADER as HEADER, TcpPacket, options, updated_checksum,
};

const NO_OPERATION: u8 = 1;
const TIMESTAMPS: u8 = 8;

/// The packet, from its IP header on, with no-operations in place of timestamps. `None` if there is
/// nothing to remove: TCP does not directly follow the IP header, there is no such option, or the
/// options are malformed.
pub fn without(packet: &[u8]) -> Option<Vec<u8>> {
    let read = TcpPacket::read(packet).filter(|read| !read.has_extensions)?;
    let (start, place) = (read.ip_header, place(read.tcp.options())?);
    let mut changed = packet.to_vec();
    let segment = changed.get_mut(start..)?;
    let (from, to) = (HEADER + place.start, HEADER + place.end);
    // Sums count words of 16 bits from the segment's start.
    let words = from / 2 * 2..to.div_ceil(2) * 2;
    let before = segment.get(words.clone())?.to_vec();
    segment.get_mut(from..to)?.fill(NO_OPERATION);
    let old = segment.get(CHECKSUM..CHECKSUM + 2)?.try_into().ok()?;
    let new = updated_checksum(old, &before, segment.get(words)?);
    segment
        .get_mut(CHECKSUM..CHECKSUM + 2)?
        .copy_from_slice(&new);
    Some(changed)
}

/// The first timestamp option. `None` if a damaged option is before it.
fn place(bytes: &[u8]) -> Option<Range<usize>> {
    options(bytes)
        .map_while(Result::ok)
        .find(|option| option.kind == TIMESTAMPS)
        .map(|option| option.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
    use proptest::prelude::*;

    fn syn(is_four: bool, options: &[TcpOptionElement]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = match is_four {
            true => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64),
            false => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let builder = builder.tcp(1234, 80, 7, 65535).syn();
        let builder = builder.options(options).unwrap();
        builder.write(&mut bytes, b"").unwrap();
        bytes
    }

    /// Kinds and values of options, the checksum, and what it should be.
    fn read(packet: &[u8]) -> (Vec<TcpOptionElement>, u16, u16) {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else {
            panic!("no TCP");
        };
        let options = tcp.options_iterator().map(Result::unwrap).collect();
        let header = tcp.to_header();
        let sum = match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), b""),
            NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), b""),
            NetSlice::Arp(_) => panic!("no IP"),
        };
        (options, header.checksum, sum.unwrap())
    }

    #[test]
    fn the_option_goes_the_others_stay_and_the_sum_is_right() {
        use TcpOptionElement::{
            MaximumSegmentSize, Noop, SelectiveAcknowledgementPermitted, Timestamp, WindowScale,
        };
        // As Linux sends them; at an odd place; and with nothing else.
        let timestamp = Timestamp(0xffff_0001, 0);
        let all: [&[TcpOptionElement]; 3] = [
            &[
                MaximumSegmentSize(1460),
                SelectiveAcknowledgementPermitted,
                timestamp.clone(),
                Noop,
                WindowScale(7),
            ],
            &[WindowScale(7), timestamp.clone(), MaximumSegmentSize(1400)],
            std::slice::from_ref(&timestamp),
        ];
        for is_four in [true, false] {
            for options in all {
                let packet = syn(is_four, options);
                let changed = without(&packet).unwrap();
                assert_eq!(changed.len(), packet.len());
                let (found, sum, right) = read(&changed);
                assert_eq!(sum, right);
                let others = |of: &[TcpOptionElement]| -> Vec<TcpOptionElement> {
                    let kept = of.iter().filter(|it| **it != Noop && **it != timestamp);
                    kept.cloned().collect()
                };
                assert_eq!(others(&found), others(options));
                assert!(!found.contains(&timestamp));
                // Once is enough.
                assert_eq!(without(&changed), None);
            }
        }
    }

    #[test]
    fn without_timestamps_there_is_nothing_to_do() {
        let packet = syn(true, &[TcpOptionElement::MaximumSegmentSize(1460)]);
        assert_eq!(without(&packet), None);
        assert_eq!(without(&syn(false, &[])), None);
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_too_much(
            mut packet in prop::collection::vec(any::<u8>(), 0..120),
            is_four in any::<bool>(),
        ) {
            if let Some(first) = packet.first_mut() {
                *first = if is_four { 0x45 } else { 0x60 };
            }
            if let Some(protocol) = packet.get_mut(if is_four { 9 } else { 6 }) {
                *protocol = 6;
            }
            let length = packet.len();
            if let Some(changed) = without(&packet) {
                prop_assert_eq!(changed.len(), length);
            }
        }
    }
}
