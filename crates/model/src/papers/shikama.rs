//! Shikama: the bursts of §5.1 and the queues of Table 1.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

use super::Figure;
use crate::burst::{self, Bottleneck, Overflow};
use crate::leg::{Leg, Transport};
use crate::path::{Hop, Section};
use crate::response::Response;

const fn bit_rate(rate: u64) -> BitRate {
    match BitRate::from_bits_per_second(rate) {
        Some(rate) => rate,
        None => panic!("a rate above zero"),
    }
}

/// The window of the wireless section: 64 KB.
pub const WIRELESS_WINDOW: ByteSize = ByteSize::from_bytes(64_000);
/// MSS.
pub const SEGMENT: u32 = 1460;

/// Node n2 of Table 1: 100 Mbit/s in, B_W out, room for B_L packets.
#[must_use]
pub const fn node_n2(leaving: BitRate, queue: u64) -> Bottleneck {
    Bottleneck {
        arriving: bit_rate(100_000_000),
        leaving,
        queue,
    }
}

/// B_W = 10 Mbit/s.
pub const B_W: BitRate = bit_rate(10_000_000);
/// B_W = 20 Mbit/s, §5.5.
pub const B_W_DOUBLED: BitRate = bit_rate(20_000_000);

/// The wireless section as the proxy's inbound leg: 5 Mbit/s, 10 ms one way, loss P_L.
#[must_use]
pub fn wireless(loss: Probability) -> Leg {
    let transport = Transport::new(SEGMENT, 40, Response::Reno);
    Leg {
        section: Section::of(&Hop {
            rate: bit_rate(5_000_000),
            round_trip: TimeSpan::from_milliseconds(20),
            loss,
            return_rate: None,
            queue: None,
        }),
        transport: transport.unwrap_or(Transport::linux()),
        receive_buffer: WIRELESS_WINDOW,
        send_buffer: None,
    }
}

/// The largest bursts of §5.1: unpaced and paced.
#[must_use]
pub fn largest_bursts() -> [Figure; 2] {
    let figure = |case, paper, value: u64| Figure {
        item: "section 5.1",
        case,
        quantity: "largest burst",
        unit: "packets",
        paper,
        value: value as f64,
        note: "",
    };
    let unpaced = burst::largest_burst(WIRELESS_WINDOW, SEGMENT).unwrap_or(0);
    [
        figure("B, unpaced", 43.0, unpaced),
        figure("A, paced", 2.0, burst::PACED_BURST),
    ]
}

/// The effect of the largest unpaced burst on node n2 with room for `queue` packets.
#[must_use]
pub fn largest_burst_meets(leaving: BitRate, queue: u64) -> Overflow {
    let largest = burst::largest_burst(WIRELESS_WINDOW, SEGMENT).unwrap_or(0);
    node_n2(leaving, queue).meet(largest)
}
