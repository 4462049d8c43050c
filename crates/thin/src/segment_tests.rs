use proptest::prelude::*;

use super::*;

fn packet(six: bool, flags: u16, options: &[u8], data: usize) -> Vec<u8> {
    let packet = crate::test_packets::Packet {
        six,
        flags,
        options: options.to_vec(),
        data,
        ..crate::test_packets::ack(0x1000)
    };
    packet.bytes()
}

const TIMESTAMP: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];

#[test]
fn an_ack_with_timestamps_is_plain_in_both_families() {
    for six in [false, true] {
        let segment = Segment::parse(&packet(six, flags::ACK, &TIMESTAMP, 0)).unwrap();
        assert_eq!(
            (segment.source.port(), segment.destination.port()),
            (8080, 49153)
        );
        assert_eq!(
            (segment.sequence, segment.number, segment.window),
            (1, 0x1000, 0x200)
        );
        assert_eq!(segment.options.timestamp, Some((7, 9)));
        assert_eq!((segment.data, segment.size), (0, if six { 72 } else { 52 }));
        assert!(segment.ack_header().plain);
    }
}

#[test]
fn data_flags_and_unknown_options_are_not_plain() {
    let plain = |flags, options: &[u8], data| {
        let parsed = Segment::parse(&packet(false, flags, options, data));
        parsed.unwrap().ack_header().plain
    };
    assert!(plain(flags::ACK, &[], 0));
    assert!(!plain(flags::ACK, &[], 1));
    for flag in [flags::FIN, flags::SYN, flags::RST, 0x08, 0x20] {
        assert!(!plain(flags::ACK | flag, &[], 0), "{flag:#x}");
    }
    assert!(!plain(0, &[], 0));
    // MPTCP, and impossible lengths.
    assert!(!plain(flags::ACK, &[30, 4, 0, 0], 0));
    assert!(!plain(flags::ACK, &[8, 200, 0, 0], 0));
    assert!(!plain(flags::ACK, &[8, 0, 0, 0], 0));
    assert!(!plain(flags::ACK, &[1, 1, 1, 9], 0));
    // Two lists of blocks.
    let blocks = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    assert!(plain(flags::ACK, &blocks, 0));
    assert!(!plain(flags::ACK, &[blocks, blocks].concat(), 0));
    // ECN and AccECN are counted separately.
    assert!(plain(
        flags::ACK | flags::ECE | flags::CWR | flags::AE,
        &[],
        0
    ));
    assert!(plain(flags::ACK, &[172, 8, 0, 0, 1, 0, 0, 2], 0));
}

#[test]
fn sack_blocks_are_read() {
    let options = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9];
    let segment = Segment::parse(&packet(true, flags::ACK, &options, 0)).unwrap();
    let sack = segment.options.sack;
    assert_eq!(
        (sack.count, sack.edges[0], sack.edges[1]),
        (2, (1, 2), (5, 9))
    );
}

#[test]
fn extension_headers_are_passed_over_and_later_fragments_are_not_read() {
    let mut six = packet(true, flags::ACK, &[], 0);
    six.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    six[6] = 60;
    six[5] += 8;
    let segment = Segment::parse(&six).unwrap();
    assert_eq!(
        (segment.number, segment.data, segment.size),
        (0x1000, 0, 68)
    );
    six[6] = 44;
    assert_eq!(Segment::parse(&six), None);
    let mut four = packet(false, flags::ACK, &[], 0);
    four[6] = 0x20;
    assert_eq!(Segment::parse(&four), None);
    // Of an arriving packet, the first fragment has the headers.
    six[40..48].copy_from_slice(&[6, 0, 0, 1, 0, 0, 0, 9]);
    assert_eq!(Segment::parse_first(&six), Some(segment));
    assert_eq!(Segment::parse_first(&four).unwrap().number, 0x1000);
    (six[43], four[7]) = (9, 1);
    assert_eq!(Segment::parse_first(&six), None);
    assert_eq!(Segment::parse_first(&four), None);
    // Extension headers without end.
    let mut endless = packet(true, flags::ACK, &[], 0);
    endless[6] = 0;
    endless.resize(2000, 0);
    assert_eq!(Segment::parse(&endless), None);
}

#[test]
fn data_may_be_cut_off_and_headers_may_not() {
    let whole = packet(false, flags::ACK, &TIMESTAMP, 1000);
    assert_eq!(Segment::parse(&whole[..52]).unwrap().data, 1000);
    for length in 0..52 {
        assert_eq!(Segment::parse(&whole[..length]), None, "{length}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        six in any::<bool>(),
    ) {
        let _ = Segment::parse(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = if six { 0x60 } else { 0x45 };
        }
        if let Some(protocol) = bytes.get_mut(if six { 6 } else { 9 }) {
            *protocol = 6;
        }
        if let Some(segment) = Segment::parse(&bytes) {
            prop_assert!(segment.size >= segment.data + 40);
            prop_assert!(segment.options.sack.count <= 8);
            let _ = segment.ack_header();
        }
    }

    #[test]
    fn damaged_packets_are_read_or_refused(
        six in any::<bool>(),
        at in 0_usize..72,
        value in any::<u8>(),
    ) {
        let mut bytes = packet(six, flags::ACK, &TIMESTAMP, 0);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        let _ = Segment::parse(&bytes);
    }
}
