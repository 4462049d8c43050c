//! Which sessions begin: who sends how much to whom.

use crate::network::{Network, Role};
use crate::random::Random;
use crate::settings::Settings;

/// A leaf at which sessions begin, and an exit of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// The node at which sessions begin.
    pub ingress: usize,
    /// The node at which they leave.
    pub exit: usize,
    /// The number of the exit among those of the ingress.
    pub number: usize,
}

/// The pairs, and how often each is drawn.
#[derive(Debug, Clone)]
pub struct Traffic {
    pairs: Vec<Pair>,
    /// The sum of the weights up to each pair.
    sums: Vec<f64>,
}

impl Traffic {
    /// Each ingress has some exits; the k-th one has 1/k of the sessions of the first one. Ingresses have weights
    /// that are log-normal, as sites have different sizes.
    pub fn new(network: &Network, settings: &Settings) -> Self {
        let mut random = Random::new(settings.seed, "traffic");
        let leaves: Vec<usize> = network.nodes(Role::Leaf).collect();
        let (mut pairs, mut sums, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for ingress in leaves.iter().copied().take(settings.ingresses) {
            let mut others: Vec<usize> = leaves.clone();
            others.retain(|leaf| *leaf != ingress);
            let weight = random.log_normal(1.0, 1.0);
            for number in 0..settings.exits.min(others.len()) {
                let exit = others.swap_remove(random.below(others.len()));
                pairs.push(Pair {
                    ingress,
                    exit,
                    number,
                });
                sum += weight / (number + 1) as f64;
                sums.push(sum);
            }
        }
        Self { pairs, sums }
    }

    /// All pairs.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The pair of the next session.
    pub fn draw(&self, random: &mut Random) -> usize {
        let sum = self.sums.last().copied().unwrap_or(0.0) * random.uniform();
        let place = self.sums.partition_point(|upper| *upper < sum);
        place.min(self.pairs.len().saturating_sub(1))
    }
}
