//! Throughput as a function of the proxies' send buffers, and the knee of that curve.
//!
//! Maki §IV, Fig. 11: a send buffer far larger than a leg itself needs removes the interaction
//! between legs, and a larger receive buffer has hardly any effect.

use midspan_units::ByteSize;

use crate::ModelError;
use crate::Throughput;
use crate::leg::Leg;
use crate::overlay::{self, Analysis, ChainedLeg};

/// A point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Send buffer of every proxy.
    pub send_buffer: ByteSize,
    /// End-to-end throughput with this buffer.
    pub throughput: Throughput,
}

/// Largest send buffer that [`knee`] considers: 4 GiB.
pub const LARGEST: ByteSize = ByteSize::from_bytes(1 << 32);

/// `chain` with a send buffer of `size` in every proxy. If the buffer also bounds the data in
/// flight ([`Leg::send_buffer`]), that bound changes on the proxies' legs, not on the first leg.
fn with_buffer(chain: &[ChainedLeg], size: ByteSize) -> Vec<ChainedLeg> {
    let mut chain = chain.to_vec();
    for chained in chain.iter_mut().skip(1) {
        chained.waiting = size;
        chained.leg.send_buffer = chained.leg.send_buffer.map(|_| size);
    }
    chain
}

/// End-to-end throughput for each of `sizes`, in the same order.
///
/// # Errors
/// [`ModelError::Legs`] if the chain is empty or too long.
pub fn curve(
    chain: &[ChainedLeg],
    sizes: &[ByteSize],
    analysis: &Analysis,
) -> Result<Vec<Point>, ModelError> {
    sizes
        .iter()
        .map(|&send_buffer| {
            let outcome = overlay::analyse(&with_buffer(chain, send_buffer), analysis)?;
            Ok(Point {
                send_buffer,
                throughput: outcome.throughput,
            })
        })
        .collect()
}

/// The knee: the smallest send buffer, to a byte, with which the chain reaches `share` (0…1) of its
/// throughput with buffers of [`LARGEST`].
///
/// In [`overlay::Reading::Conserving`], throughput never falls as the buffer grows. In the printed
/// reading it may fall; then the result is one of several such sizes. A chain of one leg needs 0
/// bytes.
///
/// # Errors
/// [`ModelError::Legs`] if the chain is empty or too long, [`ModelError::OutOfRange`] if `share` is
/// not in 0…1.
pub fn knee(chain: &[ChainedLeg], share: f64, analysis: &Analysis) -> Result<ByteSize, ModelError> {
    if !(0.0..=1.0).contains(&share) {
        return Err(ModelError::OutOfRange {
            what: "the share of the throughput to reach",
            low: "0",
            high: "1",
        });
    }
    let at = |bytes: u64| {
        let chain = with_buffer(chain, ByteSize::from_bytes(bytes));
        overlay::analyse(&chain, analysis).map(|outcome| outcome.throughput.bits_per_second())
    };
    let wanted = at(LARGEST.bytes())? * share;
    if at(0)? >= wanted {
        return Ok(ByteSize::from_bytes(0));
    }
    let (mut short, mut enough) = (0, LARGEST.bytes());
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if at(middle)? >= wanted {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Ok(ByteSize::from_bytes(enough))
}

/// Buffer that `leg` itself needs, on either side: the data in flight at `throughput`, rounded up,
/// at least one segment. Maki determines the receive buffer in this way (§IV).
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn in_flight(leg: &Leg, throughput: Throughput) -> ByteSize {
    let bytes = throughput.bits_per_second() / 8.0 * leg.section.round_trip();
    // A cast from float to integer saturates.
    let bytes = bytes.ceil() as u64;
    ByteSize::from_bytes(bytes.max(u64::from(leg.transport.payload())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::Transport;
    use crate::path::{Hop, Section};

    fn equal_legs(count: usize) -> Vec<ChainedLeg> {
        let leg = Leg {
            section: Section::of(&Hop {
                rate: "1 Gbit/s".parse().unwrap(),
                round_trip: "100 ms".parse().unwrap(),
                loss: "1 %".parse().unwrap(),
                return_rate: None,
                queue: None,
            }),
            transport: Transport::maki(),
            receive_buffer: ByteSize::from_bytes(64_000),
            send_buffer: None,
        };
        vec![
            ChainedLeg {
                leg,
                waiting: ByteSize::from_bytes(0)
            };
            count
        ]
    }

    #[test]
    fn the_curve_rises_to_the_slowest_leg() {
        let sizes: Vec<ByteSize> = (10..26).map(|i| ByteSize::from_bytes(1 << i)).collect();
        let points = curve(&equal_legs(3), &sizes, &Analysis::default()).unwrap();
        for pair in points.windows(2) {
            assert!(pair[0].throughput <= pair[1].throughput);
        }
        let expected = equal_legs(1)[0].leg.isolated().throughput;
        assert!(points[15].throughput.ratio(expected).unwrap() > 0.9999);
    }

    #[test]
    fn the_knee_is_the_least_size_that_reaches_the_share() {
        let (chain, analysis) = (equal_legs(2), Analysis::default());
        let knee = knee(&chain, 0.98, &analysis).unwrap();
        let before = ByteSize::from_bytes(knee.bytes() - 1);
        let points = curve(&chain, &[before, knee, LARGEST], &analysis).unwrap();
        let share = |i: usize| points[i].throughput.ratio(points[2].throughput).unwrap();
        assert!(share(0) < 0.98 && share(1) >= 0.98, "{knee}");
    }

    #[test]
    fn degenerate_knees_have_answers() {
        let analysis = Analysis::default();
        assert_eq!(
            knee(&equal_legs(1), 1.0, &analysis),
            Ok(ByteSize::from_bytes(0))
        );
        assert!(knee(&equal_legs(2), f64::NAN, &analysis).is_err());
        assert!(knee(&[], 0.9, &analysis).is_err());
    }
}
