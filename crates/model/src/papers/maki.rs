//! Maki et al.: Table I, Table II, the 800 kbit/s of §IV, and the settings of Figs 8–11.

use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};

use crate::leg::{Leg, Transport};
use crate::overlay::{Analysis, Outcome, Reading};
use crate::path::{Hop, Path, Section};
use crate::pftk;
use crate::placement::Setup;
use crate::{ModelError, Throughput};

/// A row of Table I: throughput with `legs` legs on 32 hops, relative to one leg.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Table1Row {
    /// Split connections of equal hop count.
    pub legs: u16,
    /// As printed.
    pub paper: f64,
    /// Eq. (1) in double precision.
    pub double: f64,
    /// Eq. (1) in the single precision that gives every printed digit: [`single_precision`].
    pub single: f32,
}

const TABLE_1: [(u16, f64); 5] = [
    (2, 2.823_370),
    (4, 7.977_354),
    (8, 22.550_680),
    (16, 63.764_141),
    (32, 180.320_358),
];

/// Table I: 32 hops of 0.0005 loss and 10 ms.
///
/// Found by trial: T_o = 1 s fixed, not the 4·RTT of Eq. (3), and a round trip of 10 ms × hops,
/// the sum one way.
#[must_use]
pub fn table_1() -> [Table1Row; 5] {
    // Eq. (1) alone: the links' 100 Mbit/s are no limit here.
    let hop = hop(TimeSpan::from_milliseconds(10), probability(0.0005));
    let leg = |hops: u16| {
        let section = Section::joining(&vec![hop; usize::from(hops)]);
        pftk::approximate(&leg(section).conditions()).map_or(0.0, |rate| rate.packets_per_second())
    };
    let (whole, whole_single) = (leg(32), single_precision(32));
    TABLE_1.map(|(legs, paper)| Table1Row {
        legs,
        paper,
        double: leg(32 / legs) / whole,
        single: single_precision(32 / legs) / whole_single,
    })
}

/// Throughput of a leg of `hops` hops of Table I in bit/s, with variables of single precision and
/// expressions of double precision, as in a C program that declares `float`.
///
/// Rounding at several different places reproduces every printed digit of Table I. The simplest choice is
/// used here: the round trip and ∏(1 − p) accumulate in single precision hop by hop, and the square roots and
/// the result are stored in single precision.
#[must_use]
#[allow(clippy::cast_possible_truncation)]
pub fn single_precision(hops: u16) -> f32 {
    let (mut round_trip, mut arriving) = (0.0f32, 1.0f32);
    for _ in 0..hops {
        round_trip += 0.01f32;
        arriving = (f64::from(arriving) * (1.0 - 0.0005)) as f32;
    }
    let loss = f64::from(1.0 - arriving);
    let avoidance = f64::from((2.0 * loss / 3.0).sqrt() as f32);
    let share = f64::from((3.0 * (3.0 * loss / 8.0).sqrt()) as f32).min(1.0);
    let time = f64::from(round_trip) * avoidance + share * loss * (1.0 + 32.0 * loss * loss);
    (8000.0 / time) as f32
}

/// A network of Table II.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// All four parts with p = 10⁻⁵.
    Homogeneous,
    /// LAN2 with p = 0.01, the others with 10⁻⁵.
    Heterogeneous,
}

/// A row and column of Table II: one proxy on a path of four networks.
#[derive(Debug, Clone, PartialEq)]
pub struct Table2Cell {
    /// The network.
    pub network: Network,
    /// The proxy is on R*i*.
    pub router: usize,
    /// As printed, in Mbit/s.
    pub paper: f64,
    /// The smaller result of Eq. (1) over both legs, Eq. (4).
    pub expected: Throughput,
    /// §III as printed, with [`TABLE_2_SEND_BUFFER`].
    pub printed: Outcome,
    /// §III with packets conserved, with the same buffer.
    pub conserving: Outcome,
}

/// The proxy's send buffer that gives the printed 108.53 for R2: 64 packets.
pub const TABLE_2_SEND_BUFFER: ByteSize = ByteSize::from_bytes(64_000);

/// The receive buffers of Table II here: 2,000 packets. The leg needs 273 in flight, and above 482
/// packets the buffer changes nothing.
pub const TABLE_2_RECEIVE_BUFFER: ByteSize = ByteSize::from_bytes(2_000_000);

/// Table II as printed: throughput in Mbit/s, split at R1, R2 and R3.
pub const TABLE_2: [(Network, [f64; 3]); 2] = [
    (Network::Homogeneous, [59.494, 108.53, 59.494]),
    (Network::Heterogeneous, [1.860, 2.299, 3.008]),
];

/// The path of Table II: LAN1, WAN1, WAN2 and LAN2, 5 ms one way each.
///
/// # Errors
/// None: the path is a constant.
pub fn table_2_path(network: Network) -> Result<Path, ModelError> {
    let hops = table_2_networks(network).map(|(loss, delay)| hop(delay * 2, loss));
    Path::new(hops.to_vec())
}

/// Loss and delay one way of LAN1, WAN1, WAN2 and LAN2 in Table II.
#[must_use]
pub fn table_2_networks(network: Network) -> [(Probability, TimeSpan); 4] {
    let last = match network {
        Network::Homogeneous => 0.000_01,
        Network::Heterogeneous => 0.01,
    };
    [0.000_01, 0.000_01, 0.000_01, last]
        .map(|loss| (probability(loss), TimeSpan::from_milliseconds(5)))
}

/// Table II.
///
/// Found by trial: Eq. (1) with b = 1, T_o = 1 s, packets of 1,000 bytes and RTT = 2·ΣD gives all
/// figures except 108.53. That figure follows from §III as printed with a send buffer of 64 packets; with
/// this buffer, §III also gives less than the printed figures for R1 and R3.
///
/// # Errors
/// None: the paths are constants.
pub fn table_2() -> Result<Vec<Table2Cell>, ModelError> {
    let mut cells = Vec::new();
    for (network, row) in TABLE_2 {
        let path = table_2_path(network)?;
        for (router, paper) in (1..).zip(row) {
            let with = |reading| {
                setup(reading, TABLE_2_RECEIVE_BUFFER, TABLE_2_SEND_BUFFER)
                    .evaluate(&path, &[router])
            };
            let printed = with(Reading::Printed)?;
            cells.push(Table2Cell {
                network,
                router,
                paper,
                expected: printed.expected,
                printed,
                conserving: with(Reading::Conserving)?,
            });
        }
    }
    Ok(cells)
}

/// LAN1, WAN and LAN2 of Fig. 7, each with its loss and its delay one way.
///
/// # Errors
/// None: three hops are a valid path.
pub fn figure_7_path(networks: [(Probability, TimeSpan); 3]) -> Result<Path, ModelError> {
    Path::new(networks.map(|(loss, delay)| hop(delay * 2, loss)).to_vec())
}

/// A network of Figs 9–11: p = 0.01, D = 0.05 s.
#[must_use]
pub fn figure_10_network() -> (Probability, TimeSpan) {
    (probability(0.01), TimeSpan::from_milliseconds(50))
}

/// The throughput of one network of Figs 9–11 alone: the "about 800 kbit/s" of §IV.
#[must_use]
pub fn expected_throughput() -> Throughput {
    let (loss, delay) = figure_10_network();
    leg(Section::of(&hop(delay * 2, loss)))
        .isolated()
        .throughput
}

/// The throughput of one unsplit connection on `path` according to Eq. (1): case 1 of §IV.
#[must_use]
pub fn unsplit(path: &Path) -> Throughput {
    leg(path.whole()).isolated().throughput
}

/// The throughput of a connection that is split at R1 and R2 of Fig. 7: case 2 of §IV. The paper
/// does not state the buffers of Figs 8–10.
///
/// # Errors
/// [`ModelError::Positions`] if `path` has fewer than three hops.
pub fn split(
    path: &Path,
    reading: Reading,
    receive_buffer: ByteSize,
    send_buffer: ByteSize,
) -> Result<Outcome, ModelError> {
    setup(reading, receive_buffer, send_buffer).evaluate(path, &[1, 2])
}

/// The paper's TCP with these buffers in every proxy; its send buffer does not bound the window.
#[must_use]
pub fn setup(reading: Reading, receive_buffer: ByteSize, send_buffer: ByteSize) -> Setup {
    Setup {
        transport: Transport::maki(),
        receive_buffer,
        send_buffer,
        send_buffer_bounds_window: false,
        analysis: Analysis {
            reading,
            ..Analysis::default()
        },
    }
}

fn leg(section: Section) -> Leg {
    Leg {
        section,
        transport: Transport::maki(),
        receive_buffer: TABLE_2_RECEIVE_BUFFER,
        send_buffer: None,
    }
}

/// 10 Gbit/s: "enough to not limit the performance" (§III C).
const AMPLE: BitRate = match BitRate::from_bits_per_second(10_000_000_000) {
    Some(rate) => rate,
    None => panic!("a rate above zero"),
};

fn hop(round_trip: TimeSpan, loss: Probability) -> Hop {
    Hop {
        rate: AMPLE,
        round_trip,
        loss,
        return_rate: None,
        queue: None,
    }
}

/// A loss probability of the paper; its constants are all probabilities.
fn probability(loss: f64) -> Probability {
    Probability::from_f64(loss).unwrap_or(Probability::ONE)
}
