//! The assumed rates of one comparison of routes, from all that a node has measured or read.

use std::cell::OnceCell;
use std::sync::Arc;

use midspan_units::{BitRate, Time};

use super::NodeName;
use super::assumed_rates::Rates;
use super::known::KnownOverlay;
use super::topology::Topology;

/// The rates, computed when the first leg without a rate needs them.
pub struct LazyRates<'a> {
    known: &'a KnownOverlay,
    topology: &'a Topology,
    now: Time,
    rates: OnceCell<Arc<Rates>>,
}

impl<'a> LazyRates<'a> {
    /// The rates that this node has measured or read.
    pub fn new(now: Time, known: &'a KnownOverlay, topology: &'a Topology) -> Self {
        let kept = known.assumed.newest().map(Arc::clone);
        Self {
            known,
            topology,
            now,
            rates: kept.map_or_else(OnceCell::new, OnceCell::from),
        }
    }

    fn get(&self) -> &Rates {
        let all = || Arc::new(rates(self.now, self.known, self.topology));
        self.rates.get_or_init(all)
    }

    /// The rate of a leg without a measured one.
    pub fn assumed(&self, from: &NodeName, to: &NodeName) -> Option<BitRate> {
        self.get().assumed(from, to)
    }

    /// The largest measured rate of all.
    pub fn best(&self) -> Option<BitRate> {
        self.get().best()
    }
}

/// The rates that routes from this node need: out of all nodes, into this node and into transit nodes. Data of a
/// download goes into no other one.
fn rates(now: Time, known: &KnownOverlay, topology: &Topology) -> Rates {
    let mut rates = Rates::default();
    let own = topology.own();
    let mut wanted: Vec<&NodeName> = topology.transit().chain([own]).collect();
    wanted.sort_unstable();
    for (name, peer) in known.peers() {
        if let Some(rate) = peer.leg.rate.get(now) {
            rates.note_out(own, rate);
            rates.note_into(name, rate);
        }
        let Some((_, row)) = known.row(now, name) else {
            continue;
        };
        if let Some(most) = row.legs.iter().filter_map(|leg| leg.rate).max() {
            rates.note_out(name, most);
        }
        // The legs of a row are in the order of their names, too.
        let mut left = wanted.iter().peekable();
        for leg in &row.legs {
            while left.next_if(|to| **to < &leg.to).is_some() {}
            match (left.peek(), leg.rate) {
                (Some(to), Some(rate)) if **to == &leg.to => rates.note_into(to, rate),
                (Some(_), _) => {}
                (None, _) => break,
            }
        }
    }
    rates
}

impl KnownOverlay {
    /// Computes the assumed rates again if they are kept and old.
    pub(super) fn refresh_assumed(&mut self, now: Time, topology: &Topology) {
        if self.assumed.is_due(now) {
            let rates = rates(now, self, topology);
            self.assumed.keep(now, rates);
        }
    }
}
