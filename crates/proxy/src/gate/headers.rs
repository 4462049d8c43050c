//! The headers of a TCP segment, as bytes: where they begin, and their checksums (RFC 1071).

const TCP: u8 = 6;
/// Bytes of a TCP header without options, and the position of its checksum.
pub const TCP_HEADER: usize = 20;
pub const TCP_CHECKSUM: usize = 16;
/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;

/// The start of the TCP header, if it directly follows the IP header.
pub fn segment_start(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    match first >> 4 {
        4 if *packet.get(9)? == TCP => Some(usize::from(first & 0xf) * 4),
        6 if *packet.get(6)? == TCP => Some(IPV6_HEADER),
        _ => None,
    }
}

/// Writes the length of the packet into its IP header.
pub fn set_length(packet: &mut [u8]) -> Option<()> {
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

/// Computes the checksums of the IPv4 header, and of the segment that begins at `start`.
pub fn set_checksums(packet: &mut [u8], start: usize) -> Option<()> {
    let addresses = match packet.first()? >> 4 {
        4 => {
            packet.get_mut(10..12)?.fill(0);
            let checksum = !sum(packet.get(..start)?);
            packet
                .get_mut(10..12)?
                .copy_from_slice(&checksum.to_be_bytes());
            12..20
        }
        _ => 8..IPV6_HEADER,
    };
    let place = start + TCP_CHECKSUM..start + TCP_CHECKSUM + 2;
    packet.get_mut(place.clone())?.fill(0);
    let segment = packet.get(start..)?;
    let pseudo = u64::from(sum(packet.get(addresses)?)) + u64::from(TCP) + segment.len() as u64;
    let checksum = !fold(pseudo + u64::from(sum(segment)));
    packet
        .get_mut(place)?
        .copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// The sum of 16-bit words; the last one is padded with zero.
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    fold(
        words
            .map(|word| match *word {
                [high, low] => u64::from(u16::from_be_bytes([high, low])),
                [high] => u64::from(high) << 8,
                _ => 0,
            })
            .sum(),
    )
}

/// Adds the bits above 16 to the lower ones.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}
