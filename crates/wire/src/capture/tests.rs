use std::time::Duration;

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::super::{InterfacePacket, PcapWriter, PcapngWriter};
use super::*;

fn segment(six: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = if six {
        PacketBuilder::ipv6([1; 16], [2; 16], 64)
    } else {
        PacketBuilder::ipv4([192, 0, 2, 1], [198, 51, 100, 1], 64)
    };
    builder
        .tcp(1, 2, 3, 4)
        .write(&mut bytes, &[7; 1000])
        .unwrap();
    bytes
}

/// Link type, time in microseconds and lengths of each packet, and the length of its IP packet.
fn packets(file: &[u8]) -> Vec<(u32, u64, usize, u32, Option<usize>)> {
    let mut found = Vec::new();
    read(file, |packet| {
        found.push((
            packet.link_type,
            (packet.time * 1e6).round() as u64,
            packet.bytes.len(),
            packet.length,
            packet.tcp().map(|(_, length)| length),
        ));
    })
    .unwrap();
    found
}

#[test]
fn both_written_formats_are_read() {
    let at = Duration::new(1_700_000_000, 5_000);
    let mut pcap = Vec::new();
    let mut writer = PcapWriter::begin(&mut pcap).unwrap();
    let mut pcapng = Vec::new();
    let mut other = PcapngWriter::begin(&mut pcapng).unwrap();
    other.describe("lo", "client leg", 200).unwrap();
    other.describe("eth0", "server leg", 200).unwrap();
    for six in [false, true] {
        let bytes = segment(six);
        writer.write(at, 1060, &bytes[..100]).unwrap();
        other
            .write(&InterfacePacket {
                interface: u32::from(six),
                at,
                is_outgoing: six,
                length: 1060,
                bytes: &bytes[..100],
            })
            .unwrap();
    }
    writer.finish().unwrap();
    other.finish().unwrap();
    let time = 1_700_000_000_000_005;
    assert_eq!(packets(&pcap), [(LINK_RAW, time, 100, 1060, Some(1060)); 2]);
    let sll = (LINK_LINUX_SLL, time, 116, 1076, Some(1060));
    assert_eq!(packets(&pcapng), [sll; 2]);
}

/// A pcap file as a machine of the other byte order writes it, with times in microseconds.
#[test]
fn both_byte_orders_and_units_are_read() {
    let bytes = segment(false);
    for (magic, time) in [
        (MICROSECOND_MAGIC, 7_500_000),
        (NANOSECOND_MAGIC, 7_000_500),
    ] {
        for little in [false, true] {
            let number = |value: u32| match little {
                true => value.to_le_bytes(),
                false => value.to_be_bytes(),
            };
            let mut file = Vec::new();
            for value in [magic, 0, 0, 0, 65_535, LINK_RAW] {
                file.extend(number(value));
            }
            for value in [7, 500_000, 40, 1040] {
                file.extend(number(value));
            }
            file.extend(&bytes[..40]);
            assert_eq!(packets(&file), [(LINK_RAW, time, 40, 1040, Some(1040))]);
        }
    }
}

/// Without an option for it, the unit of a pcapng file's times is a microsecond. A name of an interface
/// may have any bytes.
#[test]
fn times_in_microseconds_and_names_of_any_bytes_are_read() {
    let block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let section = [
        &BYTE_ORDER_MAGIC.to_le_bytes()[..],
        &[1, 0, 0, 0],
        &[0xff; 8],
    ];
    let interface = [
        101, 0, 0, 0, 0, 0, 0, 0, 2, 0, 4, 0, 0xff, 0xfe, 0xfd, 0xfc, 0, 0, 0, 0,
    ];
    let time = 1_700_000_000_000_000_u64;
    let [high, low] = [time >> 32, time & 0xffff_ffff].map(|half| (half as u32).to_le_bytes());
    let packet = [
        &[0; 4],
        &high,
        &low,
        &40_u32.to_le_bytes(),
        &1040_u32.to_le_bytes(),
        &segment(false)[..40],
    ];
    let file = [
        block(SECTION_HEADER, &section.concat()),
        block(INTERFACE_DESCRIPTION, &interface),
        block(ENHANCED_PACKET, &packet.concat()),
    ];
    let expected = (LINK_RAW, time, 40, 1040, Some(1040));
    assert_eq!(packets(&file.concat()), [expected]);
}

#[test]
fn what_is_no_capture_is_refused() {
    for file in [
        &b""[..],
        b"abc",
        &[0; 24],
        b"\x0a\x0d\x0d\x0a\0\0\0\0\0\0\0\0",
    ] {
        assert!(read(file, |_| {}).is_err(), "{file:?}");
    }
}

proptest! {
    #[test]
    fn damaged_files_are_read_or_refused(
        damage in prop::collection::vec((0_usize..400, any::<u8>()), 0..8),
        length in 0_usize..400,
    ) {
        let mut file = Vec::new();
        let mut writer = PcapngWriter::begin(&mut file).unwrap();
        writer.describe("lo", "client leg", 200).unwrap();
        let bytes = segment(true);
        let packet = InterfacePacket {
            interface: 0,
            at: Duration::from_secs(1),
            is_outgoing: true,
            length: 1060,
            bytes: &bytes[..100],
        };
        writer.write(&packet).unwrap();
        writer.write(&packet).unwrap();
        for (place, value) in damage {
            if let Some(byte) = file.get_mut(place) {
                *byte = value;
            }
        }
        file.truncate(length);
        let mut count = 0;
        let _ = read(file.as_slice(), |packet| {
            let _ = packet.tcp();
            count += 1;
        });
        prop_assert!(count <= 2);
    }
}
