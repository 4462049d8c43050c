//! Packets to be fragmented.

use midspan_fragmenter::{Fragmenter, LEAST_MTU};
use midspan_units::Time;

/// Packets with any content, for any MTU (the first two bytes): they are refused and counted, or their
/// fragments fit and carry all of their data in order.
pub fn fragmenter(input: &[u8]) {
    let Some((mtu, packet)) = input.split_first_chunk() else {
        return;
    };
    let mtu = usize::from(u16::from_be_bytes(*mtu)).max(LEAST_MTU);
    let mut fragmenter = Fragmenter::new(mtu, 2, 1);
    let mut fragments = Vec::new();
    let result = fragmenter.fragment(Time::ZERO, packet, |fragment| {
        fragments.push(fragment.to_vec());
    });
    let counted = fragmenter.counters();
    let refused = counted.malformed + counted.uncuttable + counted.exhausted;
    assert_eq!(counted.cut + counted.whole + refused, 1);
    assert_eq!(result.unwrap_or(0), fragments.len());
    assert_eq!(refused == 1, fragments.is_empty());
    assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
    if let [whole] = &fragments[..] {
        assert!(packet.starts_with(whole));
        return;
    }
    let mut rest = packet;
    for (index, fragment) in fragments.iter().enumerate() {
        let (before, begins) = data_begins(fragment);
        if index == 0 {
            rest = &packet[before..];
        }
        let data = &fragment[begins..];
        assert!(rest.starts_with(data) && !data.is_empty());
        rest = &rest[data.len()..];
    }
}

/// Start of a fragment's data, in the packet and in the fragment.
fn data_begins(fragment: &[u8]) -> (usize, usize) {
    if fragment[0] >> 4 == 4 {
        return (20, 20);
    }
    let (mut kind, mut at) = (fragment[6], 40);
    while kind != 44 {
        (kind, at) = (fragment[at], at + (usize::from(fragment[at + 1]) + 1) * 8);
    }
    (at, at + 8)
}
