//! The Internet checksum (RFC 1071).

use etherparse::checksum::Sum16BitWords;

use crate::packet::TcpPacket;
use crate::{TCP, TCP_CHECKSUM};

/// Where the checksum is in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;

/// The checksum of these parts one behind another, as it is in a header. Only the last part may have an
/// odd number of bytes.
#[must_use]
pub fn checksum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 2] {
    sum(parts).ones_complement().to_ne_bytes()
}

fn sum<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Sum16BitWords {
    let start = Sum16BitWords::new();
    parts
        .into_iter()
        .fold(start, |sum, part| sum.add_slice(part))
}

/// The checksum `old` after words that it covers changed from `before` to `after` (RFC 1624,
/// equation 3).
#[must_use]
pub fn updated_checksum(old: [u8; 2], before: &[u8], after: &[u8]) -> [u8; 2] {
    let without = sum([before]).ones_complement().to_ne_bytes();
    let sum = sum([after])
        .add_2bytes(old.map(|byte| !byte))
        .add_2bytes(without);
    sum.ones_complement().to_ne_bytes()
}

/// Computes the checksums of a whole packet again: that of its IPv4 header, if it has one, and that of
/// its TCP segment. `None`, with nothing changed, if TCP does not follow directly on the IP header.
#[must_use]
pub fn set_checksums(packet: &mut [u8]) -> Option<()> {
    let read = TcpPacket::read(packet)?;
    if read.has_extensions {
        return None;
    }
    let (start, is_v4) = (read.ip_header, read.source.is_ipv4());
    let addresses = if is_v4 {
        packet.get_mut(IPV4_CHECKSUM..IPV4_CHECKSUM + 2)?.fill(0);
        let checksum = checksum([packet.get(..start)?]);
        packet
            .get_mut(IPV4_CHECKSUM..IPV4_CHECKSUM + 2)?
            .copy_from_slice(&checksum);
        12..20
    } else {
        8..40
    };
    let place = start + TCP_CHECKSUM..start + TCP_CHECKSUM + 2;
    packet.get_mut(place.clone())?.fill(0);
    let segment = packet.get(start..)?;
    let length = u32::try_from(segment.len()).ok()?.to_be_bytes();
    let pseudo = [packet.get(addresses)?, &length, &[0, TCP], segment];
    let checksum = checksum(pseudo);
    packet.get_mut(place)?.copy_from_slice(&checksum);
    Some(())
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        // Section 3: the sum is 0xddf2.
        assert_eq!(checksum([&bytes[..]]), [!0xdd, !0xf2]);
        assert_eq!(checksum([&bytes[..2], &bytes[2..]]), [!0xdd, !0xf2]);
        assert_eq!(checksum([]), [0xff, 0xff]);
        // The last word is filled up with zero.
        assert_eq!(checksum([&[0x12][..]]), [!0x12, 0xff]);
    }

    fn packet(is_v4: bool, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = match is_v4 {
            true => PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 2], 64),
            false => PacketBuilder::ipv6([1; 16], [2; 16], 64),
        };
        let builder = builder.tcp(1, 2, 3, 4);
        builder.write(&mut bytes, data).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn both_checksums_are_those_of_the_packet(
            is_v4 in any::<bool>(),
            data in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let right = packet(is_v4, &data);
            let mut wrong = right.clone();
            let start = if is_v4 { 20 } else { 40 };
            wrong[start + 16..start + 18].fill(0xa5);
            if is_v4 {
                wrong[10..12].fill(0xa5);
            }
            prop_assert_eq!(set_checksums(&mut wrong), Some(()));
            prop_assert_eq!(wrong, right);
        }

        #[test]
        fn an_updated_checksum_is_that_of_the_changed_bytes(
            mut bytes in prop::collection::vec(any::<u8>(), 20..40),
            after in any::<[u8; 4]>(),
        ) {
            // A sum of zero has two forms; headers are never all zero.
            bytes[0] |= 1;
            let old = checksum([&bytes[..]]);
            let before = bytes[8..12].to_vec();
            bytes[8..12].copy_from_slice(&after);
            prop_assert_eq!(updated_checksum(old, &before, &after), checksum([&bytes[..]]));
        }
    }

    #[test]
    fn packets_without_a_segment_are_left() {
        let mut other = packet(true, b"x");
        other[9] = 17;
        let before = other.clone();
        assert_eq!(set_checksums(&mut other), None);
        assert_eq!(other, before);
    }
}
