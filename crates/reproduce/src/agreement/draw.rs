//! A path drawn at random from a seed.

use std::ops::Range;

use midspan_link::{Configuration, Direction, QueueLimit, State, Stream, stream};
use midspan_sim::tcp::Variant;
use midspan_units::{BitRate, ByteSize, Probability, TimeSpan};
use rand_pcg::rand_core::Rng;

/// Round-trip propagation delay of a leg in seconds.
pub const DELAY: Range<f64> = 0.001..0.3;
/// Loss per packet on a leg, in the direction of the data.
pub const LOSS: Range<f64> = 1e-5..0.05;
/// Rate of a leg in bit/s.
pub const RATE: Range<f64> = 1e6..1e9;
/// Every buffer in bytes: send buffers, receive buffers and the queues of the links.
pub const BUFFER: Range<f64> = 8e3..4e6;
/// The lower end of [`RATE`].
const SLOWEST: BitRate = match BitRate::from_bits_per_second(1_000_000) {
    Some(rate) => rate,
    None => panic!("a rate above zero"),
};
/// Most legs of a path.
pub const MOST_LEGS: u64 = 4;

/// A path of 1 to 4 legs, every quantity log-uniform over its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draw {
    /// The seed of the draw.
    pub seed: u64,
    /// Reno or NewReno, on all legs.
    pub variant: Variant,
    /// From the sender of the data to its receiver; a proxy between any two.
    pub legs: Vec<DrawnLeg>,
}

/// A leg: one link, and the buffers at its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnLeg {
    /// Rate of the link, in both directions.
    pub rate: BitRate,
    /// Propagation delay of a round trip.
    pub round_trip: TimeSpan,
    /// Loss in the direction of the data.
    pub loss: Probability,
    /// Queue in front of the link.
    pub queue: ByteSize,
    /// Send buffer at its beginning.
    pub send_buffer: ByteSize,
    /// Receive buffer at its end.
    pub receive_buffer: ByteSize,
}

impl Draw {
    /// The path of `seed`: the same on every machine.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut stream = stream(seed, "agreement/path", Direction::Up);
        let legs = 1 + stream.next_u64() % MOST_LEGS;
        let variant = if stream.next_u64().is_multiple_of(2) {
            Variant::Reno
        } else {
            Variant::NewReno
        };
        let legs = (0..legs).map(|_| DrawnLeg::new(&mut stream)).collect();
        Self {
            seed,
            variant,
            legs,
        }
    }
}

impl DrawnLeg {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Within the ranges.
    fn new(stream: &mut Stream) -> Self {
        let mut size = || ByteSize::from_bytes(log_uniform(stream, &BUFFER) as u64);
        let (queue, send_buffer, receive_buffer) = (size(), size(), size());
        Self {
            rate: BitRate::from_bits_per_second(log_uniform(stream, &RATE) as u64)
                .unwrap_or(SLOWEST),
            round_trip: TimeSpan::from_nanoseconds((log_uniform(stream, &DELAY) * 1e9) as u64),
            loss: Probability::from_f64(log_uniform(stream, &LOSS)).unwrap_or(Probability::ZERO),
            queue,
            send_buffer,
            receive_buffer,
        }
    }

    /// The configuration of the link in the direction of the data, and in the opposite direction.
    pub(super) fn link(&self) -> [Configuration; 2] {
        let way = |loss| Configuration {
            state: State {
                rate: Some(self.rate),
                delay: self.round_trip / 2,
                loss,
            },
            queue: QueueLimit::Bytes(self.queue),
            ..Configuration::default()
        };
        [way(self.loss), way(Probability::ZERO)]
    }
}

/// A number of `range` whose logarithm is uniformly distributed.
fn log_uniform(stream: &mut Stream, range: &Range<f64>) -> f64 {
    let uniform = (stream.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
    range.start * libm::exp(uniform * libm::log(range.end / range.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_in_their_ranges_and_differ() {
        let draws: Vec<Draw> = (1..=300).map(Draw::new).collect();
        for draw in &draws {
            assert!((1..=4).contains(&draw.legs.len()));
            for leg in &draw.legs {
                assert!(DELAY.contains(&(leg.round_trip.as_seconds() + 1e-9)));
                assert!(LOSS.contains(&leg.loss.as_f64()));
                for size in [leg.queue, leg.send_buffer, leg.receive_buffer] {
                    assert!((8_000..4_000_000).contains(&size.bytes()));
                }
            }
            assert_eq!(*draw, Draw::new(draw.seed));
        }
        for legs in 1..=4 {
            assert!(draws.iter().filter(|draw| draw.legs.len() == legs).count() > 40);
        }
        let reno = draws.iter().filter(|draw| draw.variant == Variant::Reno);
        assert!((100..200).contains(&reno.count()));
    }
}
