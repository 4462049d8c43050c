//! Tam, Du and Wang: the worked figures of §1.3 and of the testbed of §5.

use midspan_units::BitRate;

use super::Figure;
use crate::asymmetry::Asymmetry;

const fn bit_rate(rate: u64) -> BitRate {
    match BitRate::from_bits_per_second(rate) {
        Some(rate) => rate,
        None => panic!("a rate above zero"),
    }
}

/// §1.3: 10 Mbit/s downstream, 100 kbit/s upstream, data of 1,523 and ACKs of 63 bytes, with
/// framing.
pub const SECTION_1_3: Asymmetry = Asymmetry {
    downstream: bit_rate(10_000_000),
    upstream: bit_rate(100_000),
    data_size: 1523,
    ack_size: 63,
};

/// The testbed of §5: 4 Mbit/s downstream, data of 1,523 and ACKs of 73 bytes, with framing;
/// `upstream` is 100,000 to 10,000 bit/s in the paper.
#[must_use]
pub const fn testbed(upstream: BitRate) -> Asymmetry {
    Asymmetry {
        downstream: bit_rate(4_000_000),
        upstream,
        data_size: 1523,
        ack_size: 73,
    }
}

/// The ratios of §1.3.
#[must_use]
pub fn section_1_3() -> [Figure; 2] {
    let sizes = f64::from(SECTION_1_3.data_size) / f64::from(SECTION_1_3.ack_size);
    let figure = |quantity, paper, value, note| Figure {
        item: "section 1.3",
        case: "10 Mbit/s down, 100 kbit/s up",
        quantity,
        unit: "",
        paper,
        value,
        note,
    };
    [
        figure("packet size ratio", 24.2, sizes, ""),
        figure(
            "k",
            4.13,
            SECTION_1_3.k(),
            "the paper divides 100 by the rounded 24.2; its own \"100/25\" would be 4",
        ),
    ]
}

/// k of the testbed, §5.2 and Fig. 9.
#[must_use]
pub fn testbed_k() -> [Figure; 3] {
    let figure = |case, upstream: BitRate, paper, note| Figure {
        item: "figure 9",
        case,
        quantity: "k",
        unit: "",
        paper,
        value: testbed(upstream).k(),
        note,
    };
    [
        figure("100 kbit/s up", bit_rate(100_000), 1.9, ""),
        figure(
            "50 kbit/s up",
            bit_rate(50_000),
            3.9,
            "twice the k at 100 kbit/s is 3.8",
        ),
        figure(
            "10 kbit/s up",
            bit_rate(10_000),
            15.0,
            "19 by the same sizes",
        ),
    ]
}
