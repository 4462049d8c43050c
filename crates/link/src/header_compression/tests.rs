#![allow(clippy::unwrap_used)] // A test that cannot be set up fails.

use proptest::prelude::*;

use super::*;

/// The fields of a test's packets.
#[derive(Debug, Clone)]
struct Fields {
    connection: u8,
    identification: u16,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    checksum: u16,
    urgent: u16,
    data: u16,
    options: Vec<u8>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            connection: 0,
            identification: 100,
            flags: 0x10,
            sequence: 1000,
            acknowledgement: 5000,
            window: 8192,
            checksum: 0xabcd,
            urgent: 0,
            data: 0,
            options: Vec::new(),
        }
    }
}

impl Fields {
    /// The packet as laid out in RFC 791 and RFC 9293, with the checksum of the IP header.
    fn packet(&self) -> Vec<u8> {
        let headers = 40 + self.options.len();
        let mut packet = vec![0x45, 0];
        packet.extend((u16::try_from(headers).unwrap() + self.data).to_be_bytes());
        packet.extend(self.identification.to_be_bytes());
        packet.extend([
            0x40,
            0,
            64,
            6,
            0,
            0,
            192,
            0,
            2,
            1,
            198,
            51,
            100,
            self.connection,
        ]);
        let sum: u32 = packet
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
            .sum();
        // Twice: the first carry may carry again.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
        packet.extend([0x04, 0x00, 0x00, 0x50]);
        packet.extend(self.sequence.to_be_bytes());
        packet.extend(self.acknowledgement.to_be_bytes());
        packet.push(u8::try_from((headers - 20) / 4).unwrap() << 4);
        packet.push(self.flags);
        packet.extend(self.window.to_be_bytes());
        packet.extend(self.checksum.to_be_bytes());
        packet.extend(self.urgent.to_be_bytes());
        packet.extend(&self.options);
        packet
    }

    /// The next packet of the connection, before anything else changes.
    fn next(&self) -> Self {
        Self {
            identification: self.identification.wrapping_add(1),
            ..self.clone()
        }
    }
}

fn compressed(bytes: &[u8]) -> Frame {
    Frame::Compressed(bytes.to_vec())
}

#[test]
fn a_connection_starts_uncompressed_with_its_number_for_the_protocol() {
    let mut compressor = Compressor::default();
    let first = Fields::default();
    let mut expected = first.packet();
    expected[9] = 0;
    assert_eq!(
        compressor.compress(&first.packet()),
        Frame::Uncompressed(expected)
    );
    let second = Fields {
        connection: 7,
        ..Fields::default()
    };
    let mut expected = second.packet();
    expected[9] = 1;
    assert_eq!(
        compressor.compress(&second.packet()),
        Frame::Uncompressed(expected)
    );
}

#[test]
fn an_ack_of_two_segments_takes_six_bytes_by_hand() {
    let mut compressor = Compressor::default();
    let first = Fields::default();
    compressor.compress(&first.packet());
    // The ACK grows by 2,920 = 0x0b68: more than a byte holds.
    let second = Fields {
        acknowledgement: 5000 + 2920,
        checksum: 0x1234,
        ..first.next()
    };
    assert_eq!(
        compressor.compress(&second.packet()),
        compressed(&[0x04, 0x12, 0x34, 0x00, 0x0b, 0x68])
    );
    // The window shrinks by 40: the difference is 65,496 = 0xffd8. The ACK grows by 100.
    let third = Fields {
        acknowledgement: 7920 + 100,
        window: 8152,
        checksum: 0x5678,
        ..second.next()
    };
    assert_eq!(
        compressor.compress(&third.packet()),
        compressed(&[0x06, 0x56, 0x78, 0x00, 0xff, 0xd8, 0x64])
    );
}

#[test]
fn data_one_way_takes_three_bytes_and_an_echo_too() {
    let mut compressor = Compressor::default();
    let first = Fields {
        data: 1460,
        ..Fields::default()
    };
    compressor.compress(&first.packet());
    let second = Fields {
        sequence: 1000 + 1460,
        flags: 0x18,
        data: 1,
        ..first.next()
    };
    assert_eq!(
        compressor.compress(&second.packet()),
        compressed(&[0x0f | 0x10, 0xab, 0xcd])
    );
    let echo = Fields {
        sequence: 2461,
        acknowledgement: 5001,
        ..second.next()
    };
    assert_eq!(
        compressor.compress(&echo.packet()),
        compressed(&[0x0b | 0x10, 0xab, 0xcd])
    );
    // An IP identification that grows by three.
    let third = Fields {
        identification: echo.identification + 3,
        sequence: 2462,
        ..echo
    };
    assert_eq!(
        compressor.compress(&third.packet()),
        compressed(&[0x0f | 0x10 | 0x20, 0xab, 0xcd, 3])
    );
}

#[test]
fn another_connection_sends_its_number() {
    let mut compressor = Compressor::default();
    let one = Fields::default();
    let other = Fields {
        connection: 9,
        ..Fields::default()
    };
    compressor.compress(&one.packet());
    compressor.compress(&other.packet());
    let next = Fields {
        acknowledgement: 5001,
        ..one.next()
    };
    assert_eq!(
        compressor.compress(&next.packet()),
        compressed(&[0x44, 0, 0xab, 0xcd, 1])
    );
}

#[test]
fn what_is_sent_again_or_looks_otherwise_is_not_compressed() {
    let base = Fields {
        data: 1460,
        ..Fields::default()
    };
    let uncompressed = [
        // A retransmission: nothing changes.
        base.next(),
        // The sequence number goes back.
        Fields {
            sequence: 1000 - 460,
            ..base.next()
        },
        // The acknowledgement number is too far ahead.
        Fields {
            acknowledgement: 5000 + 65_536,
            ..base.next()
        },
        // Timestamps.
        Fields {
            options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            ..base.next()
        },
        // The changes look like one of the special cases: window, urgent pointer and sequence
        // number at once.
        Fields {
            flags: 0x30,
            urgent: 5,
            window: 9000,
            sequence: 2460,
            ..base.next()
        },
        Fields {
            urgent: 5,
            ..base.next()
        },
    ];
    for fields in uncompressed {
        let mut compressor = Compressor::default();
        compressor.compress(&base.packet());
        let frame = compressor.compress(&fields.packet());
        assert!(matches!(frame, Frame::Uncompressed(_)), "{fields:?}");
    }
    for flags in [0x02, 0x12, 0x11, 0x14, 0x04] {
        let mut compressor = Compressor::default();
        let packet = Fields {
            flags,
            ..base.clone()
        }
        .packet();
        assert_eq!(compressor.compress(&packet), Frame::Plain(packet.clone()));
    }
}

#[test]
fn options_that_stay_the_same_are_no_obstacle() {
    let mut compressor = Compressor::default();
    let options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let first = Fields {
        options,
        ..Fields::default()
    };
    compressor.compress(&first.packet());
    let next = Fields {
        acknowledgement: 5001,
        ..first.next()
    };
    assert_eq!(
        compressor.compress(&next.packet()),
        compressed(&[0x04, 0xab, 0xcd, 1])
    );
}

#[test]
fn of_too_many_connections_the_one_silent_for_longest_goes() {
    let mut compressor = Compressor::new(2);
    let of = |connection, acknowledgement| Fields {
        connection,
        acknowledgement,
        ..Fields::default()
    };
    compressor.compress(&of(1, 1).packet());
    compressor.compress(&of(2, 1).packet());
    compressor.compress(&of(1, 2).packet());
    let frame = compressor.compress(&of(3, 1).packet());
    assert!(matches!(&frame, Frame::Uncompressed(bytes) if bytes[9] == 1));
    let frame = compressor.compress(&of(1, 3).packet());
    assert!(matches!(frame, Frame::Compressed(_)));
}

#[test]
fn after_a_loss_headers_are_wrong_until_one_comes_whole() {
    let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
    let mut fields = Fields::default();
    let mut arrives = |fields: &Fields, lost: bool| {
        let frame = compressor.compress(&fields.packet());
        let packet = (!lost).then(|| decompressor.decompress(&frame, fields.data).unwrap());
        packet == Some(fields.packet())
    };
    assert!(arrives(&fields, false));
    fields.acknowledgement += 2920;
    assert!(!arrives(&fields.next(), true));
    fields.acknowledgement += 2920;
    assert!(!arrives(&fields, false));
    // The same number again: sent uncompressed, and both ends agree from then on.
    assert!(arrives(&fields, false));
    fields.acknowledgement += 2920;
    assert!(arrives(&fields, false));
}

#[test]
fn after_an_error_that_was_noticed_a_frame_must_say_its_connection() {
    let (mut compressor, mut decompressor) = (Compressor::default(), Decompressor::default());
    let first = Fields::default();
    let frame = compressor.compress(&first.packet());
    decompressor.decompress(&frame, 0).unwrap();
    decompressor.handle_error();
    let second = Fields {
        acknowledgement: 5001,
        ..first.next()
    };
    let frame = compressor.compress(&second.packet());
    assert_eq!(
        decompressor.decompress(&frame, 0),
        Err(Undecodable::AfterError)
    );
}

fn fields() -> impl Strategy<Value = Fields> {
    let options = prop_oneof![
        9 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 4..=4),
    ];
    let near = |from: u32| prop_oneof![Just(from), from..from + 400, any::<u32>()];
    (
        0..4_u8,
        any::<u16>(),
        prop_oneof![
            Just(0x10_u8),
            Just(0x18),
            Just(0x30),
            Just(0x02),
            Just(0x11)
        ],
        near(1000),
        near(5000),
        prop_oneof![Just(8192_u16), any::<u16>()],
        any::<u16>(),
        prop_oneof![Just(0_u16), any::<u16>()],
        prop_oneof![Just(0_u16), 1..1460_u16],
        options,
    )
        .prop_map(
            |(
                connection,
                identification,
                flags,
                sequence,
                acknowledgement,
                window,
                checksum,
                urgent,
                data,
                options,
            )| Fields {
                connection,
                identification,
                // RFC 1144 appendix A never clears URG in the special cases.
                flags,
                sequence,
                acknowledgement,
                window,
                checksum,
                urgent,
                data,
                options,
            },
        )
}

proptest! {
    #[test]
    fn what_was_not_lost_is_made_again(packets in proptest::collection::vec(fields(), 1..60)) {
        let (mut compressor, mut decompressor) = (Compressor::new(3), Decompressor::new(3));
        let mut urgent_before = [false; 4];
        for fields in packets {
            let packet = fields.packet();
            let frame = compressor.compress(&packet);
            prop_assert!(frame.bytes().len() <= packet.len());
            let made = decompressor.decompress(&frame, fields.data);
            // RFC 1144's two special cases contain no URG bit, so the flag stays as it was.
            let before = &mut urgent_before[usize::from(fields.connection)];
            let skip = *before && fields.flags & 0x20 == 0;
            *before = fields.flags & 0x20 != 0;
            if !skip {
                prop_assert_eq!(made.unwrap(), packet);
            }
        }
    }

    #[test]
    fn no_frame_breaks_a_decompressor(
        frames in proptest::collection::vec((0..3_u8, proptest::collection::vec(any::<u8>(), 0..130), any::<u16>()), 1..40),
    ) {
        let mut decompressor = Decompressor::default();
        for (kind, bytes, data) in frames {
            let frame = match kind {
                0 => Frame::Plain(bytes),
                1 => Frame::Uncompressed(bytes),
                _ => Frame::Compressed(bytes),
            };
            let _ = decompressor.decompress(&frame, data);
        }
    }

    #[test]
    fn no_packet_breaks_a_compressor(packets in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..130), 1..40)) {
        let mut compressor = Compressor::default();
        for mut packet in packets {
            if packet.len() > 33 {
                packet[0] = 0x45;
                packet[9] = 6;
            }
            compressor.compress(&packet);
        }
    }
}
