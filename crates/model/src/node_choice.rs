//! Which nodes of a network to choose, if each pair of hosts takes the best of the routes over chosen nodes. This
//! module has only their costs.

use std::collections::BTreeSet;

use crate::placement::MOST_EXAMINED;

/// A route of a pair: the nodes that it needs, and its cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The nodes, in the order of the route, each once. A route without nodes is the direct connection.
    pub nodes: Vec<usize>,
    /// The lower, the better.
    pub cost: f64,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The nodes that the routes use, ascending.
    pub nodes: Vec<usize>,
    /// For each pair, the index of its route.
    pub routes: Vec<usize>,
    /// The sum of the costs of these routes.
    pub cost: f64,
    /// Number of sets of nodes that were compared.
    pub examined: usize,
    /// Whether no other set of nodes has a lower cost.
    pub is_exact: bool,
}

/// Chooses at most `most` nodes with the lowest sum of the costs of all pairs. `pairs` has the routes of each pair,
/// the direct connection among them.
///
/// Compares all sets of nodes that some route needs if there are at most [`MOST_EXAMINED`]. Otherwise it adds the
/// nodes of one route at a time, those of the largest gain for each node. Then it exchanges as long as this lowers the
/// cost: the nodes of a further route come in, and those nodes go out whose loss costs least. This takes at most
/// `most` · R additions and some twenty · `most`² · R exchanges, for R routes in all; each compares the routes of all
/// pairs. The gain over the direct connections is never smaller than that of the best single route, so it is at least
/// the largest possible gain divided by the number of pairs; it is usually the largest (see the tests).
///
/// A pair without any route has the route 0.
#[must_use]
pub fn choose(pairs: &[Vec<Priced>], most: usize) -> Choice {
    search_with(pairs, most, MOST_EXAMINED)
}

/// The same; all sets are compared if there are at most `most_sets`.
fn search_with(pairs: &[Vec<Priced>], most: usize, most_sets: usize) -> Choice {
    let ranked: Vec<Vec<usize>> = pairs.iter().map(|routes| rank(routes)).collect();
    let mut search = Search {
        pairs,
        ranked,
        examined: 0,
    };
    let useful: Vec<usize> = search.useful_nodes(most).into_iter().collect();
    let is_exact = sets(useful.len(), most) <= most_sets;
    let mut best = (search.cost(&BTreeSet::new()), BTreeSet::new());
    match is_exact {
        true => search.compare_all(&useful, most, &mut BTreeSet::new(), &mut best),
        false => {
            search.add(most, &mut best);
            search.exchange(most, &mut best);
        }
    }
    search.choice(&best.1, is_exact)
}

/// The routes of a pair, the cheapest first; of equal ones, the one with the fewest nodes.
fn rank(routes: &[Priced]) -> Vec<usize> {
    let mut ranked: Vec<usize> = (0..routes.len()).collect();
    ranked.sort_by(|one, other| {
        let (one, other) = (&routes[*one], &routes[*other]);
        let by_nodes = one.nodes.len().cmp(&other.nodes.len());
        one.cost.total_cmp(&other.cost).then(by_nodes)
    });
    ranked
}

/// Number of sets with at most `most` of `nodes` nodes, at most one above [`MOST_EXAMINED`].
fn sets(nodes: usize, most: usize) -> usize {
    let (mut sum, mut with) = (1_usize, 1_usize);
    for size in 1..=most.min(nodes) {
        // C(n, k) = C(n, k − 1)·(n − k + 1)/k.
        with = with.saturating_mul(nodes - size + 1) / size;
        sum = sum.saturating_add(with);
        if sum > MOST_EXAMINED {
            return MOST_EXAMINED + 1;
        }
    }
    sum
}

struct Search<'a> {
    pairs: &'a [Vec<Priced>],
    /// Indices of each pair's routes, the best first.
    ranked: Vec<Vec<usize>>,
    examined: usize,
}

type Best = (f64, BTreeSet<usize>);

impl Search<'_> {
    /// The nodes of routes that are better than the direct connection and need no more than `most` nodes.
    fn useful_nodes(&self, most: usize) -> BTreeSet<usize> {
        let mut nodes = BTreeSet::new();
        for (routes, ranked) in self.pairs.iter().zip(&self.ranked) {
            let better = ranked.iter().map(|index| &routes[*index]);
            let better = better.take_while(|route| !route.nodes.is_empty());
            for route in better.filter(|route| route.nodes.len() <= most) {
                nodes.extend(&route.nodes);
            }
        }
        nodes
    }

    /// The index of the pair's best route over these nodes.
    fn route(&self, pair: usize, chosen: &BTreeSet<usize>) -> usize {
        let is_possible = |index: &&usize| {
            (self.pairs[pair][**index].nodes.iter()).all(|node| chosen.contains(node))
        };
        let found = self.ranked[pair].iter().find(is_possible);
        found.copied().unwrap_or_default()
    }

    fn cost(&mut self, chosen: &BTreeSet<usize>) -> f64 {
        self.examined += 1;
        let pairs = 0..self.pairs.len();
        pairs
            .filter_map(|pair| self.pairs[pair].get(self.route(pair, chosen)))
            .map(|route| route.cost)
            .sum()
    }

    /// Replaces the best set if this one costs less.
    fn consider(&mut self, chosen: &BTreeSet<usize>, best: &mut Best) -> bool {
        let cost = self.cost(chosen);
        let is_better = cost < best.0;
        if is_better {
            *best = (cost, chosen.clone());
        }
        is_better
    }

    /// Compares all sets that contain `chosen` and at most `left` of these nodes.
    fn compare_all(
        &mut self,
        nodes: &[usize],
        left: usize,
        chosen: &mut BTreeSet<usize>,
        best: &mut Best,
    ) {
        if left == 0 {
            return;
        }
        for (index, node) in nodes.iter().enumerate() {
            chosen.insert(*node);
            self.consider(chosen, best);
            self.compare_all(&nodes[index + 1..], left - 1, chosen, best);
            chosen.remove(node);
        }
    }

    /// Adds the nodes of one route after another.
    fn add(&mut self, most: usize, best: &mut Best) {
        loop {
            let (cost, chosen) = best.clone();
            // The largest gain for each node that is added.
            let mut largest: Option<(f64, Best)> = None;
            let mut tried: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
            for pair in 0..self.pairs.len() {
                for route in &self.pairs[pair] {
                    let with: BTreeSet<usize> =
                        chosen.iter().chain(&route.nodes).copied().collect();
                    let added = with.len() - chosen.len();
                    if added == 0 || with.len() > most || !tried.insert(with.clone()) {
                        continue;
                    }
                    let next = self.cost(&with);
                    #[allow(clippy::cast_precision_loss)] // A number of nodes.
                    let gain = (cost - next) / added as f64;
                    if gain > 0.0 && largest.as_ref().is_none_or(|(other, _)| gain > *other) {
                        largest = Some((gain, (next, with)));
                    }
                }
            }
            match largest {
                Some((_, next)) => *best = next,
                None => return,
            }
        }
    }

    /// Exchanges nodes for those of a further route as long as this lowers the cost.
    fn exchange(&mut self, most: usize, best: &mut Best) {
        const MOST_ROUNDS: usize = 20;
        let pairs = self.pairs;
        let routes = pairs.iter().flatten().map(|route| &route.nodes);
        let sets: BTreeSet<BTreeSet<usize>> = routes
            .map(|nodes| nodes.iter().copied().collect())
            .filter(|nodes: &BTreeSet<usize>| !nodes.is_empty() && nodes.len() <= most)
            .collect();
        for _ in 0..MOST_ROUNDS {
            let mut is_better = false;
            for nodes in &sets {
                if nodes.is_subset(&best.1) {
                    continue;
                }
                let mut with: BTreeSet<usize> = best.1.union(nodes).copied().collect();
                while with.len() > most {
                    self.remove_one(&mut with, nodes);
                }
                is_better |= self.consider(&with, best);
            }
            if !is_better {
                return;
            }
        }
    }

    /// Removes the node whose loss costs least, but none of `kept`.
    fn remove_one(&mut self, chosen: &mut BTreeSet<usize>, kept: &BTreeSet<usize>) {
        let candidates: Vec<usize> = chosen.difference(kept).copied().collect();
        let costs = candidates.into_iter().map(|node| {
            chosen.remove(&node);
            let cost = self.cost(chosen);
            chosen.insert(node);
            (cost, node)
        });
        let least = costs.min_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, node)) = least {
            chosen.remove(&node);
        }
    }

    fn choice(&self, chosen: &BTreeSet<usize>, is_exact: bool) -> Choice {
        let examined = self.examined;
        let routes: Vec<usize> = (0..self.pairs.len())
            .map(|pair| self.route(pair, chosen))
            .collect();
        let taken: Vec<&Priced> = (self.pairs.iter().zip(&routes))
            .filter_map(|(priced, route)| priced.get(*route))
            .collect();
        let used: BTreeSet<usize> = taken
            .iter()
            .flat_map(|route| route.nodes.iter().copied())
            .collect();
        Choice {
            nodes: used.into_iter().collect(),
            cost: taken.iter().map(|route| route.cost).sum(),
            routes,
            examined,
            is_exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    fn priced(nodes: &[usize], cost: f64) -> Priced {
        Priced {
            nodes: nodes.to_vec(),
            cost,
        }
    }

    #[test]
    fn nodes_that_help_several_pairs_are_chosen_before_a_better_one_for_one_pair() {
        let pairs = [
            vec![priced(&[], 10.0), priced(&[1], 8.0), priced(&[2], 6.0)],
            vec![priced(&[], 10.0), priced(&[1], 7.0)],
        ];
        let choice = choose(&pairs, 1);
        assert_eq!((choice.nodes, choice.routes), (vec![1], vec![1, 1]));
        let choice = choose(&pairs, 2);
        assert_eq!((choice.nodes, choice.routes), (vec![1, 2], vec![2, 1]));
        assert_eq!(choice.cost, 13.0);
    }

    #[test]
    fn a_route_that_needs_too_many_nodes_or_costs_more_is_not_taken() {
        let pairs = [vec![
            priced(&[], 10.0),
            priced(&[1, 2], 1.0),
            priced(&[3], 11.0),
        ]];
        assert_eq!(choose(&pairs, 1).nodes, Vec::<usize>::new());
        assert_eq!(choose(&pairs, 2).nodes, [1, 2]);
        assert_eq!(choose(&[Vec::new()], 2).nodes, Vec::<usize>::new());
    }

    /// Routes of some pairs over six nodes.
    fn networks() -> impl Strategy<Value = Vec<Vec<Priced>>> {
        let route = (proptest::collection::vec(0_usize..6, 1..4), 1_u8..100);
        let route = route.prop_map(|(mut nodes, cost)| {
            nodes.sort_unstable();
            nodes.dedup();
            priced(&nodes, f64::from(cost))
        });
        let pair = proptest::collection::vec(route, 1..10).prop_map(|mut routes| {
            routes.insert(0, priced(&[], 100.0));
            routes
        });
        proptest::collection::vec(pair, 1..5)
    }

    /// What a choice saves against the direct connections.
    fn gain(pairs: &[Vec<Priced>], choice: &Choice) -> f64 {
        let direct: f64 = pairs.iter().map(|routes| routes[0].cost).sum();
        direct - choice.cost
    }

    #[test]
    fn additions_and_exchanges_usually_find_the_best_set() {
        const NETWORKS: u32 = 2_000;
        let mut runner = TestRunner::deterministic();
        let (mut best, mut share) = (0, 0.0);
        for number in 0..NETWORKS {
            let pairs = networks().new_tree(&mut runner).unwrap().current();
            let most = 1 + number as usize % 4;
            let exact = gain(&pairs, &choose(&pairs, most));
            let found = gain(&pairs, &search_with(&pairs, most, 0));
            best += u32::from(found >= exact - 1e-9);
            share += if exact > 0.0 { found / exact } else { 1.0 };
        }
        let share = share / f64::from(NETWORKS);
        println!("the best set in {best} of {NETWORKS} networks, {share:.4} of the largest gain");
        assert!(best >= NETWORKS / 100 * 95, "{best}");
        assert!(share >= 0.99, "{share}");
    }

    proptest! {
        /// Additions and exchanges are never worse than the best single route, and never better than the best set.
        #[test]
        fn additions_and_exchanges_have_a_share_of_the_largest_gain(
            pairs in networks(),
            most in 1_usize..5,
        ) {
            let exact = choose(&pairs, most);
            let searched = search_with(&pairs, most, 0);
            prop_assert!(exact.is_exact && !searched.is_exact);
            let (best, found) = (gain(&pairs, &exact), gain(&pairs, &searched));
            prop_assert!(found <= best + 1e-9);
            #[allow(clippy::cast_precision_loss)]
            let least = best / pairs.len() as f64;
            prop_assert!(found >= least - 1e-9, "{} of {}", found, best);
            for choice in [&exact, &searched] {
                prop_assert!(choice.nodes.len() <= most);
            }
        }

        /// A further node never makes the result worse.
        #[test]
        fn more_nodes_never_cost_more(pairs in networks(), most in 1_usize..5) {
            prop_assert!(choose(&pairs, most + 1).cost <= choose(&pairs, most).cost + 1e-9);
        }
    }
}
