//! Measures the cutting of packets alone, without the kernel.

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use midspan_fragmenter::Fragmenter;
use midspan_units::{Time, TimeSpan};

use crate::Measured;

const PAIRS: usize = 1000;

/// Cuts packets of both versions of IP and two sizes, for `span` each.
pub fn measure(span: Duration) -> Vec<Measured> {
    let mut measured = Vec::new();
    for (name, is_four) in [("IPv4", true), ("IPv6", false)] {
        for data in [4440, 13_320] {
            let packets: Vec<Vec<u8>> = (0..PAIRS).map(|i| packet(data, i, is_four)).collect();
            let mut fragmenter = Fragmenter::new(1500, PAIRS, 1);
            let (mut bits, mut fragments) = (0_u64, 0_u64);
            // A virtual clock advances as fast as the rate limit for identifications of IPv4
            // allows.
            let mut now = Time::ZERO;
            let begun = Instant::now();
            while begun.elapsed() < span {
                for packet in &packets {
                    let mut last = 0;
                    let cut = fragmenter.fragment(now, packet, |fragment| {
                        last = black_box(fragment).len();
                    });
                    bits += packet.len() as u64 * 8;
                    fragments += cut.map_or(0, |count| count as u64);
                    black_box(last);
                }
                now += TimeSpan::from_milliseconds(1);
            }
            assert_eq!(fragmenter.counters().exhausted, 0);
            let seconds = begun.elapsed().as_secs_f64();
            let case = format!("cutting alone, {name}, {data} bytes of data");
            let mut add = |quantity, unit, value| {
                measured.push(Measured::new(&case, quantity, unit, value));
            };
            add("cut", "Gbit/s", bits as f64 / seconds / 1e9);
            add("fragments a second", "1/s", fragments as f64 / seconds);
        }
    }
    measured
}

fn packet(data: usize, number: usize, is_four: bool) -> Vec<u8> {
    let low = number.to_be_bytes();
    let mut packet = if is_four {
        let mut head = vec![
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 0, 0,
        ];
        head[18..20].copy_from_slice(&low[low.len() - 2..]);
        head
    } else {
        let mut head = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        head.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        head.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        head[38..40].copy_from_slice(&low[low.len() - 2..]);
        head
    };
    packet.resize(packet.len() + data, 0x55);
    let length = if is_four {
        packet.len()
    } else {
        packet.len() - 40
    };
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let at = if is_four { 2 } else { 4 };
    packet[at..at + 2].copy_from_slice(&length);
    packet
}
