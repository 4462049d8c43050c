//! What a simulation has measured.

/// Completion times of compared sessions of one size, in seconds, added up: the chosen routes and perfect knowledge.
///
/// Only sessions whose straight route works at their beginning count.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gain {
    /// Compared sessions.
    pub sessions: u64,
    /// By the straight route.
    pub direct: f64,
    /// By the chosen route, with the time that failed routes have cost.
    pub chosen: f64,
    /// By the best route over at most one transit node.
    pub over_one: f64,
    /// By the best route over at most two transit nodes: perfect knowledge.
    pub best: f64,
}

impl Gain {
    /// The share of the gain of perfect knowledge that the chosen routes have; `None` if it gains nothing.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        share_of_gain(self.direct, self.chosen, self.best)
    }

    /// The share of the gain of perfect knowledge that routes over at most one transit node have.
    #[must_use]
    pub fn share_over_one(&self) -> Option<f64> {
        share_of_gain(self.direct, self.over_one, self.best)
    }

    /// How much shorter the chosen routes are than the straight ones, as a share of the time.
    #[must_use]
    pub fn gained(&self) -> f64 {
        less_time(self.direct, self.chosen)
    }
}

/// Completion times in seconds by the chosen routes of some pairs, and by the best fixed route of each pair: the oracle. A pair
/// counts as often as it has sessions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FixedGain {
    /// Pairs.
    pub pairs: u64,
    /// Their sessions.
    pub sessions: u64,
    /// By the straight route.
    pub straight: f64,
    /// By the chosen routes, with the time that failed routes have cost.
    pub chosen: f64,
    /// By the best fixed route.
    pub oracle: f64,
}

impl FixedGain {
    /// The share of the oracle's gain that the chosen routes have; more than 1 if they are better than the best fixed one.
    /// `None` if the oracle gains nothing.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        share_of_gain(self.straight, self.chosen, self.oracle)
    }

    /// How much shorter the oracle's routes are than the straight ones, as a share of the time.
    #[must_use]
    pub fn possible(&self) -> f64 {
        less_time(self.straight, self.oracle)
    }
}

/// The share of the time that the best routes save, which other routes save too; `None` if the best ones save nothing.
fn share_of_gain(straight: f64, others: f64, best: f64) -> Option<f64> {
    let all = straight - best;
    (all > 0.0).then(|| (straight - others) / all)
}

/// How much shorter a time is than that of straight routes, as a share of the latter.
fn less_time(straight: f64, time: f64) -> f64 {
    match straight > 0.0 {
        true => 1.0 - time / straight,
        false => 0.0,
    }
}

/// Changes of the present routes of pairs of ingress and exit that were used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Changes {
    /// Pairs.
    pub pairs: u64,
    /// Voluntary changes (to a better route) per pair and hour, on average.
    pub mean: f64,
    /// Voluntary changes in the whole simulation: of 99 % of the pairs at most.
    pub most_of_99: u64,
    /// Of the pair with the most.
    pub most: u64,
    /// Forced changes (the route before could not be used) per pair and hour, on average.
    pub forced: f64,
    /// Changes on average, if the route with the shortest prediction were taken each time.
    pub memoryless: f64,
}

/// Sessions that began 5 s or more after nodes had failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AfterFailure {
    /// All of them.
    pub sessions: u64,
    /// Those whose first route failed.
    pub retried: u64,
    /// Those whose second route failed too.
    pub retried_again: u64,
    /// Those that got no route that works.
    pub failed: u64,
    /// Nodes that have failed.
    pub nodes: usize,
}

/// The results of a simulation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// Sessions that began.
    pub sessions: u64,
    /// Those that took another route than the straight one.
    pub over_transit: u64,
    /// Those whose first route failed.
    pub retried: u64,
    /// Those that got no route that works.
    pub failed: u64,
    /// Those that ended because a node of their route failed.
    pub reset: u64,
    /// Sessions of 100 KB and of 1 MB.
    pub gain: [Gain; 2],
    /// The same sizes by the best fixed routes.
    pub fixed: Vec<FixedGain>,
    /// Changes of routes.
    pub changes: Changes,
    /// By window of 10 s, the used share of each transit node, 0…1.
    pub used: Vec<Vec<f64>>,
    /// After the failure, if there was one.
    pub after_failure: AfterFailure,
    /// A number that depends on each session's route and time.
    pub fingerprint: u64,
}

/// The windows of [`Results::used`], in seconds.
pub const WINDOW: f64 = 10.0;

impl Results {
    /// How much the load swings: for each transit node, and for the sum of all of them, the largest deviation of a
    /// window from the mean over time, as a share of this mean. The largest of the nodes comes first, and then that of the sum.
    /// The first `skipped` windows do not count.
    #[must_use]
    pub fn swings(&self, skipped: usize) -> (f64, f64) {
        let windows = self.used.get(skipped..).unwrap_or(&[]);
        let nodes = windows.first().map_or(0, Vec::len);
        let of_node = |node: usize| {
            let used = windows.iter().filter_map(|window| window.get(node));
            swing(&used.copied().collect::<Vec<_>>())
        };
        let sums: Vec<f64> = windows.iter().map(|window| window.iter().sum()).collect();
        ((0..nodes).map(of_node).fold(0.0, f64::max), swing(&sums))
    }

    /// The mean used share of all transit nodes, without the first `skipped` windows.
    #[must_use]
    pub fn mean_used(&self, skipped: usize) -> f64 {
        let all = self.used.iter().skip(skipped).flatten();
        let count = all.clone().count().max(1);
        all.sum::<f64>() / count as f64
    }
}

/// The largest deviation from the mean, as a share of the mean.
fn swing(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let deviations = values
        .iter()
        .map(|value| (value / mean.max(1e-9) - 1.0).abs());
    deviations.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_swings_of_all_nodes_count() {
        let results = Results {
            used: vec![
                vec![9.0, 0.0],
                vec![0.4, 0.4],
                vec![0.6, 0.6],
                vec![0.5, 0.5],
            ],
            ..Results::default()
        };
        let (node, sum) = results.swings(1);
        assert!((node - 0.2).abs() < 1e-9 && (sum - 0.2).abs() < 1e-9);
        // Nodes that take turns have a constant sum.
        let results = Results {
            used: vec![vec![0.3, 0.7], vec![0.7, 0.3]],
            ..Results::default()
        };
        let (node, sum) = results.swings(0);
        assert!((node - 0.4).abs() < 1e-9 && sum.abs() < 1e-9);
        assert_eq!(results.swings(5), (0.0, 0.0));
    }
}
