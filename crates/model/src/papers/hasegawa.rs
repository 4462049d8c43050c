//! Hasegawa and Hasegawa: the worked figures of §2.1, §6.1 and §6.4.

use std::num::NonZeroU32;

use midspan_units::{BitRate, ByteSize, Probability};

use super::Figure;
use crate::asymmetry::{self, Asymmetry};

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

const fn bit_rate(rate: u64) -> BitRate {
    match BitRate::from_bits_per_second(rate) {
        Some(rate) => rate,
        None => panic!("a rate above zero"),
    }
}

/// 8 Mbit/s down, as in §2.1 and §5.1.
const DOWNSTREAM: BitRate = bit_rate(8_000_000);
/// The narrowest upstream of §5.1.
const NARROWEST: BitRate = bit_rate(32_000);
/// MSS of the paper's oversized segment, in bits.
const OVERSIZED_BITS: u64 = 4420 * 8;

/// An asymmetry of §2.1: 40-byte ACKs of packets of `data_size` bytes.
const fn section_2_1(data_size: u32) -> Asymmetry {
    Asymmetry {
        downstream: DOWNSTREAM,
        upstream: bit_rate(110_000),
        data_size,
        ack_size: 40,
    }
}

/// §2.1: the upstream that 8 Mbit/s downstream needs, "more than 110 kbps".
///
/// With datagrams of 1,500 bytes, as in the text, Eq. (1) gives 106.7; with 8 Mbit/s of user data,
/// so 1,460 bytes for each ACK, it gives the printed figure.
#[must_use]
pub fn upstream() -> [Figure; 2] {
    let figure = |case, data_size: u32, note| Figure {
        item: "section 2.1",
        case,
        quantity: "upstream needed",
        unit: "kbit/s",
        paper: 110.0,
        value: section_2_1(data_size)
            .upstream_needed(TWO)
            .bits_per_second()
            / 1e3,
        note,
    };
    [
        figure("8 Mbit/s of user data", 1460, "comes nearest"),
        figure("8 Mbit/s of datagrams", 1500, "as the text says"),
    ]
}

/// k with the printed upstream of 110 kbit/s: just below N = 2.
#[must_use]
pub fn k() -> f64 {
    section_2_1(1500).k()
}

/// §6.1: throughput without oversizing at 32 kbit/s upstream, from the bytes of ACKs for 10 MB.
///
/// According to the text, both are inversely proportional; the product is the upstream's rate.
#[must_use]
pub fn throughput_from_acks() -> [Figure; 3] {
    let figure = |case, ack_bytes, paper| Figure {
        item: "section 6.1",
        case,
        quantity: "throughput",
        unit: "Mbit/s",
        paper,
        value: asymmetry::upstream_bound(
            ByteSize::from_bytes(10_000_000),
            ByteSize::from_bytes(ack_bytes),
            NARROWEST,
        )
        .map_or(0.0, |throughput| throughput.megabits_per_second()),
        note: "the upstream full of ACKs",
    };
    [
        figure("client 1", 266_188, 1.2),
        figure("client 2", 200_928, 1.6),
        figure("client 3", 143_800, 2.2),
    ]
}

/// §6.4: loss, bits, bit error ratio and retransmissions of an oversized segment.
#[must_use]
pub fn section_6_4() -> [Figure; 3] {
    let loss = Probability::from_f64(1e-3).unwrap_or(Probability::ONE);
    let figure = |case, quantity, unit, paper, value| Figure {
        item: "section 6.4",
        case,
        quantity,
        unit,
        paper,
        value,
        note: "",
    };
    [
        figure(
            "segment of 4,420 bytes",
            "segment size",
            "bit",
            3.5e4,
            OVERSIZED_BITS as f64,
        ),
        figure(
            "loss of 0.001 per segment",
            "bit error ratio",
            "",
            2.8e-8,
            asymmetry::bit_error_ratio(loss, OVERSIZED_BITS).unwrap_or(0.0),
        ),
        figure(
            "loss of 0.001 per segment",
            "retransmission ratio",
            "%",
            0.1,
            asymmetry::retransmission_ratio(loss.as_f64()).unwrap_or(0.0) * 100.0,
        ),
    ]
}

/// §6.4: segments of Windows 2000's receive window of 17,520 bytes.
///
/// The text states 6 for the chosen 4,420 bytes; that size gives 3.96, and 6 (5.96) would result
/// from two fragments, 2,940 bytes. Both leave the four segments that a fast retransmit needs.
#[must_use]
pub fn segments_in_window() -> [Figure; 2] {
    let figure = |case, segment: u32, note| Figure {
        item: "section 6.4",
        case,
        quantity: "segments in the receive window",
        unit: "",
        paper: 6.0,
        value: 17_520.0 / f64::from(segment),
        note,
    };
    [
        figure("3 fragments", 4420, "as the text says"),
        figure("2 fragments", 2940, "comes nearest"),
    ]
}
