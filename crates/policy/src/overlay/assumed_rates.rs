//! The rate of a leg that has not been measured: the rates that its ends have shown on their other legs.

use std::collections::BTreeMap;
use std::sync::Arc;

use midspan_units::{BitRate, Time, TimeSpan};

use super::NodeName;

/// The rate of legs if none was measured at all: then only round trips and losses differ.
pub(super) const ASSUMED_RATE: u64 = 100_000_000;
/// In large simulations, the rates are computed again after this time.
const KEPT: TimeSpan = TimeSpan::from_seconds(30);

/// The rates of a node, if it keeps them for several comparisons of routes.
#[derive(Debug, Clone, Default)]
pub struct AssumedRates {
    /// How long they are kept; zero: each comparison computes them, if it needs them.
    kept: TimeSpan,
    /// When they were computed, and the rates.
    newest: Option<(Time, Arc<Rates>)>,
}

/// The largest measured rates out of each node, and into each one. A leg without a rate of its
/// own has the smaller one of the two: neither end has shown that it carries more.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    out: BTreeMap<NodeName, BitRate>,
    into: BTreeMap<NodeName, BitRate>,
}

impl AssumedRates {
    /// Kept for 30 s.
    pub const fn for_large_simulations() -> Self {
        Self {
            kept: KEPT,
            newest: None,
        }
    }

    /// The rates that are kept.
    pub fn newest(&self) -> Option<&Arc<Rates>> {
        self.newest.as_ref().map(|(_, rates)| rates)
    }

    /// Whether the rates are kept and old.
    pub fn is_due(&self, now: Time) -> bool {
        let is_old = |(at, _): &(Time, Arc<Rates>)| now.since(*at) >= self.kept;
        self.kept > TimeSpan::ZERO && self.newest.as_ref().is_none_or(is_old)
    }

    /// Keeps these rates.
    pub fn keep(&mut self, now: Time, rates: Rates) {
        self.newest = Some((now, Arc::new(rates)));
    }
}

impl Rates {
    /// A leg out of this node has this rate.
    pub fn note_out(&mut self, node: &NodeName, rate: BitRate) {
        raise(&mut self.out, node, rate);
    }

    /// A leg into this node has this rate.
    pub fn note_into(&mut self, node: &NodeName, rate: BitRate) {
        raise(&mut self.into, node, rate);
    }

    /// The rate of a leg without a measured one.
    pub fn assumed(&self, from: &NodeName, to: &NodeName) -> Option<BitRate> {
        let known = [self.out.get(from), self.into.get(to)];
        let least = known.into_iter().flatten().min().copied();
        least.or_else(|| self.best())
    }

    /// The largest measured rate of all: a last leg is not assumed to be the narrowest.
    pub fn best(&self) -> Option<BitRate> {
        let best = self.out.values().max().copied();
        best.or(BitRate::from_bits_per_second(ASSUMED_RATE))
    }
}

fn raise(map: &mut BTreeMap<NodeName, BitRate>, node: &NodeName, rate: BitRate) {
    match map.get_mut(node) {
        Some(largest) => *largest = rate.max(*largest),
        None => {
            map.insert(node.clone(), rate);
        }
    }
}
