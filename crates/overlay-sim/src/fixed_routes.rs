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
