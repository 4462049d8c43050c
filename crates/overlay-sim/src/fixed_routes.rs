//! The oracle: of each pair of ingress and exit, the best route that stays the same during the whole simulation.
//!
//! All routes over at most two transit nodes are compared by their true times at the same moments, at which the sessions
//! of the pair begin. The best one is known only at the end. A chosen route may be better than the best fixed one, because
//! it may change.

use std::collections::BTreeMap;

use midspan_policy::overlay::RouteLeg;
use midspan_units::{ByteSize, TimeSpan};

use crate::leg_times::LegTimes;
use crate::measures::FixedGain;
use crate::perfect_knowledge::{Timed, time};
use crate::random::Random;
use crate::truth::Truth;

/// Most pairs whose routes are compared.
const MOST_PAIRS: usize = 64;
/// Moments of a simulation at which they are compared, and the fewest of a pair for a result: with very few moments, the best
/// fixed route would only be the best one of these moments.
const MOMENTS: f64 = 120.0;
const FEWEST: u64 = 20;

/// The routes of some pairs.
#[derive(Debug)]
pub struct FixedRoutes {
    transit: Vec<usize>,
    sizes: Vec<(ByteSize, LegTimes)>,
    /// Least seconds between two moments of a pair.
    gap: f64,
    pairs: BTreeMap<usize, OfPair>,
}

/// What was compared for one pair.
#[derive(Debug, Clone, Default)]
struct OfPair {
    /// Sessions of the pair, and the moments of comparisons.
    sessions: u64,
    moments: u64,
    newest: Option<f64>,
    /// For each size.
    times: Vec<Times>,
}

/// Sums of completion times in seconds.
#[derive(Debug, Clone, Default)]
struct Times {
    /// By the chosen routes.
    chosen: f64,
    /// By each fixed route, the straight one first.
    fixed: Vec<f64>,
}

impl FixedRoutes {
    /// Routes over these transit nodes, for transfers of these sizes, in a simulation of this duration. Of this number of
    /// pairs, some are drawn.
    pub fn new(
        transit: &[usize],
        sizes: &[ByteSize],
        duration: TimeSpan,
        (pairs, seed): (usize, u64),
    ) -> Self {
        let mut random = Random::new(seed, "fixed routes");
        let mut left: Vec<usize> = (0..pairs).collect();
        let mut drawn = BTreeMap::new();
        while drawn.len() < MOST_PAIRS && !left.is_empty() {
            let pair = left.swap_remove(random.below(left.len()));
            drawn.insert(pair, OfPair::default());
        }
        let sizes = sizes.iter().map(|size| (*size, LegTimes::new(*size)));
        Self {
            transit: transit.to_vec(),
            sizes: sizes.collect(),
            gap: duration.as_seconds() / MOMENTS,
            pairs: drawn,
        }
    }

    /// A session of a pair begins at this time in seconds. `chosen` is the completion time of a transfer of a size by its route,
    /// in seconds.
    pub fn note(
        &mut self,
        truth: &Truth,
        now: f64,
        (pair, ends): (usize, (usize, usize)),
        chosen: impl Fn(ByteSize) -> Option<f64>,
    ) {
        let Some(of_pair) = self.pairs.get_mut(&pair) else {
            return;
        };
        of_pair.sessions += 1;
        if of_pair.newest.is_some_and(|newest| now - newest < self.gap) {
            return;
        }
        let mut all = Vec::with_capacity(self.sizes.len());
        let legs = Legs::new(truth, now, ends, &self.transit);
        for (size, times) in &self.sizes {
            let fixed = legs.times(times);
            let is_finite = fixed.first().is_some_and(|straight| straight.is_finite());
            match chosen(*size).filter(|_| is_finite) {
                Some(chosen) => all.push(Times { chosen, fixed }),
                // Only sessions whose straight route works count.
                None => return,
            }
        }
        of_pair.newest = Some(now);
        of_pair.moments += 1;
        if of_pair.times.is_empty() {
            of_pair.times = all;
            return;
        }
        for (sums, times) in of_pair.times.iter_mut().zip(all) {
            sums.chosen += times.chosen;
            let fixed = sums.fixed.iter_mut().zip(times.fixed);
            fixed.for_each(|(sum, time)| *sum += time);
        }
    }

    /// The gain for each size. A pair counts as often as it has sessions.
    pub fn gain(&self) -> Vec<FixedGain> {
        let mut gains = vec![FixedGain::default(); self.sizes.len()];
        for pair in self.pairs.values().filter(|pair| pair.moments >= FEWEST) {
            let weight = pair.sessions as f64 / pair.moments as f64;
            for (gain, times) in gains.iter_mut().zip(&pair.times) {
                let best = times.fixed.iter().copied().fold(f64::INFINITY, f64::min);
                gain.pairs += 1;
                gain.sessions += pair.sessions;
                gain.straight += weight * times.fixed.first().copied().unwrap_or(0.0);
                gain.chosen += weight * times.chosen;
                gain.oracle += weight * best;
            }
        }
        gains
    }
}

/// The legs of all routes of one pair at one time, for one more session.
struct Legs {
    straight: Option<RouteLeg>,
    /// From the exit to each transit node.
    firsts: Vec<Option<RouteLeg>>,
    /// From each transit node to the others, in the order of the transit nodes.
    between: Vec<Option<RouteLeg>>,
    /// From each transit node to the ingress.
    lasts: Vec<Option<RouteLeg>>,
}

impl Legs {
    fn new(truth: &Truth, now: f64, (ingress, exit): (usize, usize), transit: &[usize]) -> Self {
        let leg = |from: usize, to: usize| truth.shared(now, from, to);
        let others = |from: usize| transit.iter().filter(move |to| **to != from);
        let from_each = transit.iter().map(|from| (*from, others(*from)));
        Self {
            straight: leg(exit, ingress),
            firsts: transit.iter().map(|node| leg(exit, *node)).collect(),
            between: from_each
                .flat_map(|(from, others)| others.map(move |to| leg(from, *to)))
                .collect(),
            lasts: transit.iter().map(|node| leg(*node, ingress)).collect(),
        }
    }

    /// The completion times of all routes in seconds: straight, over one transit node, over two.
    fn times(&self, times: &LegTimes) -> Vec<f64> {
        let timed = |leg: &Option<RouteLeg>| {
            let leg = (*leg)?;
            let seconds = times.seconds(&leg);
            Some(Timed { leg, seconds })
        };
        let firsts: Vec<Option<Timed>> = self.firsts.iter().map(timed).collect();
        let lasts: Vec<Option<Timed>> = self.lasts.iter().map(timed).collect();
        let mut all = Vec::with_capacity(1 + firsts.len() * firsts.len());
        all.push(timed(&self.straight).map_or(f64::INFINITY, |leg| time([leg])));
        let mut between = self.between.iter();
        for (far, first) in firsts.iter().enumerate() {
            for (near, last) in lasts.iter().enumerate() {
                let legs = first.zip(*last);
                all.push(if near == far {
                    legs.map_or(f64::INFINITY, |(first, last)| time([first, last]))
                } else {
                    let middle = between.next().and_then(timed);
                    let legs = legs.zip(middle);
                    legs.map_or(f64::INFINITY, |((first, last), middle)| {
                        time([first, middle, last])
                    })
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Network, Role};

    const SIZE: ByteSize = ByteSize::from_bytes(100_000);
    /// Two slices of the network.
    const DURATION: f64 = 1_200.0;

    /// Two leaves and a transit node: in each half of the simulation, round trips in milliseconds over the straight leg
    /// and over each leg to the transit node.
    fn truth(halves: [[f32; 2]; 2]) -> Truth {
        let slice = |[straight, over]: [f32; 2]| {
            let row = [0.0, straight, over, straight, 0.0, over, over, over, 0.0];
            row.map(|milliseconds| milliseconds / 1_000.0).to_vec()
        };
        let roles = vec![Role::Leaf, Role::Leaf, Role::Transit];
        let half = TimeSpan::from_seconds(600);
        let network = Network::new(roles, halves.map(slice).to_vec(), half);
        Truth::new(network.unwrap())
    }

    /// The gain if this many sessions over the straight route begin at equal distances.
    fn gain(truth: &Truth, sessions: u32) -> FixedGain {
        let duration = TimeSpan::from_seconds(DURATION as u64);
        let mut routes = FixedRoutes::new(&[2], &[SIZE], duration, (1, 1));
        let times = LegTimes::new(SIZE);
        for number in 0..sessions {
            let now = DURATION * f64::from(number) / f64::from(sessions);
            let leg = truth.shared(now, 1, 0).unwrap();
            let seconds = times.seconds(&leg);
            let straight = time([Timed { leg, seconds }]);
            routes.note(truth, now, (0, (0, 1)), |_| Some(straight));
        }
        routes.gain()[0]
    }

    #[test]
    fn the_best_fixed_route_is_the_one_with_the_least_sum() {
        // The transit node is better in one half, but not on the whole.
        let straight = gain(&truth([[100.0, 20.0], [100.0, 400.0]]), 60);
        assert_eq!((straight.pairs, straight.sessions), (1, 60));
        assert_eq!(straight.oracle, straight.straight);
        // It is better on the whole, but not in one half.
        let over = gain(&truth([[400.0, 20.0], [100.0, 60.0]]), 60);
        assert!(over.oracle < 0.9 * over.straight, "{over:?}");
        for gain in [straight, over] {
            assert!((gain.chosen - gain.straight).abs() < 1e-9, "{gain:?}");
        }
    }

    #[test]
    fn a_pair_with_few_moments_has_no_result_and_one_with_many_sessions_counts_as_often() {
        let truth = truth([[100.0, 20.0]; 2]);
        assert_eq!(gain(&truth, FEWEST as u32 - 1).pairs, 0);
        let (some, many) = (gain(&truth, 60), gain(&truth, 600));
        assert_eq!((some.sessions, many.sessions), (60, 600));
        // At most 120 moments are compared, and each counts for its share of the sessions.
        assert!(
            (many.straight / some.straight - 10.0).abs() < 1e-6,
            "{many:?}"
        );
    }
}
