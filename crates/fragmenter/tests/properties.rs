//! Properties of every packet.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use midspan_fragmenter::{Fragmenter, Identifications, LEAST_MTU, Pair, Refused};
use midspan_units::{Time, TimeSpan};
use proptest::prelude::*;

fn four(data: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];
    let length = u16::try_from(20 + data.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet.extend_from_slice(data);
    packet
}

fn six(data: &[u8], options: bool) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, if options { 0 } else { 6 }, 64];
    packet.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
    packet.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
    if options {
        packet.extend_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
    }
    packet.extend_from_slice(data);
    let length = u16::try_from(packet.len() - 40).unwrap();
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

/// Reassembles the data as a receiver does; panics if that is impossible.
fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut numbers = BTreeSet::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let word = |at: usize| u16::from_be_bytes([fragment[at], fragment[at + 1]]);
        let (offset, more, number, part) = if fragment[0] >> 4 == 4 {
            assert_eq!(usize::from(word(2)), fragment.len());
            let sum: u32 = (0..10).map(|i| u32::from(word(i * 2))).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum");
            let flags = word(6);
            assert_eq!(flags & 0x4000, 0);
            let offset = usize::from(flags & 0x1fff) * 8;
            (
                offset,
                flags & 0x2000 != 0,
                u32::from(word(4)),
                &fragment[20..],
            )
        } else {
            assert_eq!(usize::from(word(4)) + 40, fragment.len());
            let (next, at) = match fragment[6] {
                44 => (40, 48),
                0 => (48, 56),
                other => panic!("header {other}"),
            };
            assert_eq!(fragment[next], 6);
            let flags = word(next + 2);
            let number = u32::from_be_bytes(fragment[next + 4..next + 8].try_into().unwrap());
            (
                usize::from(flags & 0xfff8),
                flags & 1 != 0,
                number,
                &fragment[at..],
            )
        };
        assert_eq!(offset, data.len());
        assert_eq!(more, index + 1 < fragments.len());
        numbers.insert(number);
        data.extend_from_slice(part);
    }
    assert_eq!(numbers.len(), 1);
    data
}

proptest! {
    #[test]
    fn fragments_fit_and_give_the_packet_back(
        length in 1501_usize..65_000,
        mtu in LEAST_MTU..1501,
        kind in 0..3,
    ) {
        let data: Vec<u8> = (0..length).map(|i| ((i * 7) >> 3) as u8).collect();
        let packet = match kind {
            0 => four(&data),
            1 => six(&data, false),
            _ => six(&data, true),
        };
        let mut fragmenter = Fragmenter::new(mtu, 10, 1);
        let mut fragments = Vec::new();
        let count = fragmenter
            .fragment(Time::ZERO, &packet, |fragment| fragments.push(fragment.to_vec()))
            .unwrap();
        prop_assert_eq!(count, fragments.len());
        prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        prop_assert!(reassemble(&fragments) == data);
    }

    #[test]
    fn any_bytes_are_cut_or_counted(
        mut bytes in prop::collection::vec(any::<u8>(), 0..4000),
        version in 0_u8..16,
        mtu in 0_usize..2000,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | *first & 0xf;
        }
        let mut fragmenter = Fragmenter::new(mtu, 10, 1);
        let result = fragmenter.fragment(Time::ZERO, &bytes, |_| {});
        let counted = fragmenter.counters();
        let refused = counted.malformed + counted.uncuttable + counted.exhausted;
        prop_assert_eq!(counted.cut + counted.whole + refused, 1);
        prop_assert_eq!(refused == 1, result.is_err());
    }

    #[test]
    fn a_packet_that_is_cut_short_is_refused(cut in 0_usize..2020) {
        let packet = four(&[1; 2000]);
        let mut fragmenter = Fragmenter::new(1500, 10, 1);
        let result = fragmenter.fragment(Time::ZERO, &packet[..cut], |_| {});
        prop_assert_eq!(result, Err(Refused::Malformed));
    }
}

proptest! {
    // Each case needs hundreds of thousands of identifications.
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_number_is_not_given_twice_within_30_seconds(
        steps in prop::collection::vec((1_u32..20_000, 0_u64..12_000), 1..30),
    ) {
        let pair = Pair {
            source: IpAddr::V4(Ipv4Addr::LOCALHOST),
            destination: IpAddr::V4(Ipv4Addr::BROADCAST),
        };
        let mut numbers = Identifications::new(4, 7);
        let mut last = vec![None; 1 << 16];
        let mut now = Time::ZERO;
        for (count, later) in steps {
            now += TimeSpan::from_milliseconds(later);
            for _ in 0..count {
                let Some(number) = numbers.next(now, pair) else { break };
                let before: &mut Option<Time> = &mut last[number as usize];
                if let Some(before) = before {
                    prop_assert!(now.since(*before) >= TimeSpan::from_seconds(30));
                }
                *before = Some(now);
            }
        }
    }
}

#[test]
fn fragments_are_not_cut_again_nor_are_options() {
    let mut fragmenter = Fragmenter::new(1500, 10, 1);
    let mut packet = four(&[1; 3000]);
    packet[6] = 0x20;
    let refused = fragmenter.fragment(Time::ZERO, &packet, |_| {});
    assert_eq!(refused, Err(Refused::Fragment));
    let mut packet = four(&[1; 3000]);
    packet[0] = 0x46;
    let refused = fragmenter.fragment(Time::ZERO, &packet, |_| {});
    assert_eq!(refused, Err(Refused::Header));
    assert_eq!(fragmenter.counters().uncuttable, 2);
}

#[test]
fn pairs_are_bounded_and_forgotten() {
    let pair = |number: u8| Pair {
        source: IpAddr::V4(Ipv4Addr::LOCALHOST),
        destination: IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)),
    };
    let mut numbers = Identifications::new(2, 7);
    assert!(numbers.next(Time::ZERO, pair(1)).is_some());
    assert!(numbers.next(Time::ZERO, pair(2)).is_some());
    assert_eq!(numbers.next(Time::ZERO, pair(3)), None);
    let later = Time::ZERO + TimeSpan::from_seconds(60);
    assert!(numbers.next(later, pair(3)).is_some());
    assert_eq!(numbers.pairs(), 1);
}

#[test]
fn all_numbers_of_a_pair_are_used_before_it_has_to_wait() {
    let pair = Pair {
        source: IpAddr::V4(Ipv4Addr::LOCALHOST),
        destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let mut numbers = Identifications::new(2, 7);
    for _ in 0..65_536 {
        assert!(numbers.next(Time::ZERO, pair).is_some());
    }
    assert_eq!(numbers.next(Time::ZERO, pair), None);
    let later = Time::ZERO + TimeSpan::from_seconds(36);
    assert!(numbers.next(later, pair).is_some());
}
