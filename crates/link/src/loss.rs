//! Loss during propagation: a packet was sent, and used the rate, but does not arrive.

use midspan_units::{Probability, Time};
use rand_pcg::rand_core::Rng;

use crate::drop_reason::DropReason;
use crate::packet::Packet;
use crate::seed::Stream;
use crate::stage::{Output, Outputs, Stage};

/// Decides which packets are lost. Called once for each packet that was sent, in order.
pub trait LossModel {
    /// Whether the packet of `size` bytes, whose transmission ends at `now`, is lost.
    fn is_lost(&mut self, now: Time, size: u32) -> bool;

    /// A change by schedule: from now on, packets are lost with `probability`. A model that one
    /// probability does not describe may ignore the call.
    fn set_probability(&mut self, probability: Probability);
}

/// Each packet is lost independently, with the same probability.
///
/// Exactly one random number is drawn for each packet, even if the probability is zero. So a change
/// of the probability does not affect the draws for other packets; and a higher probability loses
/// all packets that a lower one loses, and more.
#[derive(Debug, Clone)]
pub struct Bernoulli {
    probability: Probability,
    stream: Stream,
}

impl Bernoulli {
    /// Loses packets with `probability`, with random numbers from `stream`.
    #[must_use]
    pub const fn new(probability: Probability, stream: Stream) -> Self {
        Self {
            probability,
            stream,
        }
    }
}

impl LossModel for Bernoulli {
    #[inline]
    fn is_lost(&mut self, _now: Time, _size: u32) -> bool {
        self.probability.happens(self.stream.next_u64())
    }

    fn set_probability(&mut self, probability: Probability) {
        self.probability = probability;
    }
}

/// The stage that loses packets; it takes no time.
#[derive(Debug, Clone)]
pub struct Loss<P, L = Bernoulli> {
    model: L,
    outputs: Outputs<P>,
}

impl<P, L: LossModel> Loss<P, L> {
    /// Loses the packets that `model` selects.
    #[must_use]
    pub fn new(model: L) -> Self {
        Self {
            model,
            outputs: Outputs::default(),
        }
    }

    /// See [`LossModel::set_probability`].
    pub fn set_probability(&mut self, probability: Probability) {
        self.model.set_probability(probability);
    }
}

impl<P: Packet, L: LossModel> Stage<P> for Loss<P, L> {
    fn handle(&mut self, now: Time, packet: P) {
        if self.model.is_lost(now, packet.size()) {
            self.outputs.push_dropped(now, packet, DropReason::Lost);
        } else {
            self.outputs.push(Output::Delivered { due: now, packet });
        }
    }

    fn poll(&mut self, _now: Time) -> Option<Output<P>> {
        self.outputs.pop()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.outputs.due()
    }

    fn held(&self) -> usize {
        self.outputs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Direction, stream};

    fn lost(probability: &str, seed: u64, direction: Direction) -> Vec<bool> {
        let stream = stream(seed, "satellite", direction);
        let mut model = Bernoulli::new(probability.parse().unwrap(), stream);
        (0..10_000)
            .map(|_| model.is_lost(Time::ZERO, 1500))
            .collect()
    }

    #[test]
    fn zero_loses_none_and_one_loses_all() {
        assert!(lost("0 %", 1, Direction::Up).iter().all(|lost| !lost));
        assert!(lost("100 %", 1, Direction::Up).iter().all(|lost| *lost));
    }

    #[test]
    fn the_same_seed_loses_the_same_packets_and_each_direction_its_own() {
        let up = lost("10 %", 7, Direction::Up);
        assert_eq!(up, lost("10 %", 7, Direction::Up));
        assert_ne!(up, lost("10 %", 7, Direction::Down));
        assert_ne!(up, lost("10 %", 8, Direction::Up));
    }

    #[test]
    fn the_share_of_lost_packets_is_the_probability() {
        // 10,000 packets at 10 %: mean 1,000, standard deviation 30; the seeds are fixed.
        for seed in 0..20 {
            let count = lost("10 %", seed, Direction::Up)
                .into_iter()
                .filter(|lost| *lost)
                .count();
            assert!((880..=1120).contains(&count), "seed {seed}: {count} lost");
        }
    }

    #[test]
    fn packets_that_cannot_be_lost_draw_too() {
        let always = lost("10 %", 7, Direction::Up);
        let stream = stream(7, "satellite", Direction::Up);
        let mut model = Bernoulli::new(Probability::ZERO, stream);
        assert!((0..5_000).all(|_| !model.is_lost(Time::ZERO, 1500)));
        model.set_probability("10 %".parse().unwrap());
        let later: Vec<bool> = (0..5_000)
            .map(|_| model.is_lost(Time::ZERO, 1500))
            .collect();
        assert_eq!(later, always[5_000..]);
    }

    #[test]
    fn a_higher_probability_loses_the_same_packets_and_more() {
        let few = lost("1 %", 3, Direction::Up);
        let many = lost("5 %", 3, Direction::Up);
        assert!(few.iter().zip(&many).all(|(few, many)| *many || !few));
        assert!(few.iter().any(|lost| *lost));
    }
}
