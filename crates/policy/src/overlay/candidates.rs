//! The routes to an exit: straight, over one transit node, over two.

use std::collections::BTreeMap;

use ipnet::IpNet;
use midspan_units::{BitRate, Time, TimeSpan};

use super::candidate::{Candidate, Obstacle};
use super::known::KnownOverlay;
use super::liveness::Health;
use super::loss::UNKNOWN_LOSS;
use super::prediction::{RouteLeg, completion_time};
use super::{Congestion, Node, NodeKind, NodeName, Overlay, Route};

/// Most routes of each length that are predicted: those with the shortest round trips.
const MOST_OF_LENGTH: usize = 16;
/// With more transit nodes, there are no routes over two of them.
const MOST_PAIRED: usize = 32;
/// The rate of legs if none was measured at all: then only round trips and losses differ.
const ASSUMED_RATE: u64 = 100_000_000;

/// The largest measured rates out of each node, and into each one, in bit/s. A leg without a rate of its
/// own has the smaller one of the two: neither end has shown that it carries more.
struct Rates<'a> {
    out: BTreeMap<&'a NodeName, BitRate>,
    into: BTreeMap<&'a NodeName, BitRate>,
}

/// For each node that can be the first one of a route, the legs to it.
type FirstLegs<'a> = BTreeMap<&'a NodeName, Vec<NodeName>>;

fn first_legs<'a>(legs: &'a FirstLegs<'_>, node: &NodeName) -> std::slice::Iter<'a, NodeName> {
    legs.get(node).map_or(&[][..], Vec::as_slice).iter()
}

impl KnownOverlay {
    /// All routes to this exit, the straight ones first.
    #[must_use]
    pub fn candidates(&self, now: Time, overlay: &Overlay, exit: &NodeName) -> Vec<Candidate> {
        let own = &overlay.own;
        let is_exit = overlay
            .node(exit)
            .is_some_and(|node| node.address.is_some());
        if !is_exit || exit == own {
            return Vec::new();
        }
        let carries =
            |node: &&Node| node.transit && node.kind == NodeKind::Midspan && node.address.is_some();
        let transit: Vec<&NodeName> = (overlay.nodes.iter())
            .filter(carries)
            .map(|node| &node.name)
            .filter(|node| *node != own && *node != exit)
            .collect();
        let legs: FirstLegs<'_> = (transit.iter().copied().chain([exit]))
            .map(|node| (node, overlay.legs_to(node)))
            .collect();
        let one = transit.iter().flat_map(|node| {
            let firsts = first_legs(&legs, node);
            firsts.map(move |first| vec![first, exit])
        });
        let mut routes = self.shortest(now, own, one);
        if transit.len() <= MOST_PAIRED {
            let pairs = transit.iter().flat_map(|node| {
                let others = transit.iter().filter(move |second| *second != node);
                let firsts = first_legs(&legs, node);
                firsts.flat_map(move |first| {
                    others.clone().map(move |second| vec![first, *second, exit])
                })
            });
            // A longer route with an unknown leg is of no use before the shorter ones are known.
            let is_known = |nodes: &Vec<&NodeName>| self.sum(now, own, nodes).is_some();
            routes.extend(self.shortest(now, own, pairs.filter(is_known)));
        }
        let rates = self.rates(now, own);
        first_legs(&legs, exit)
            .map(|first| vec![first])
            .chain(routes)
            .filter_map(|nodes| Route::new(nodes.into_iter().cloned().collect()))
            .map(|route| self.candidate(now, overlay, route, &rates))
            .collect()
    }

    /// The predicted completion time of a session by this route, or without one, to this network of
    /// servers; `None` if a leg is not measured.
    #[must_use]
    pub fn prediction(
        &self,
        now: Time,
        overlay: &Overlay,
        route: Option<&Route>,
        site: IpNet,
    ) -> Option<TimeSpan> {
        let rates = self.rates(now, &overlay.own);
        let exit = route.and_then(|route| route.nodes().last());
        let exit = exit.map(NodeName::node);
        let round_trip = self.last_leg(now, exit.as_ref(), site)?;
        let mut legs = vec![RouteLeg {
            round_trip,
            loss: UNKNOWN_LOSS,
            rate: rates.best()?,
            congestion: Congestion::Cubic,
            is_hop: false,
        }];
        if let Some(route) = route {
            legs.extend(self.legs(now, overlay, route, &rates)?);
        }
        completion_time(&legs, overlay.choice.transfer)
    }

    /// The routes with the shortest round trips; those that are not measured come last.
    fn shortest<'a>(
        &self,
        now: Time,
        own: &NodeName,
        routes: impl Iterator<Item = Vec<&'a NodeName>>,
    ) -> Vec<Vec<&'a NodeName>> {
        let mut routes: Vec<_> = routes
            .map(|nodes| (self.sum(now, own, &nodes), nodes))
            .collect();
        routes.sort_by_key(|(sum, _)| sum.unwrap_or(TimeSpan::from_nanoseconds(u64::MAX)));
        routes.truncate(MOST_OF_LENGTH);
        routes.into_iter().map(|(_, nodes)| nodes).collect()
    }

    /// The sum of the round trips of a route.
    fn sum(&self, now: Time, own: &NodeName, nodes: &[&NodeName]) -> Option<TimeSpan> {
        let from = std::iter::once(&own).chain(nodes);
        let mut hops = from.zip(nodes);
        hops.try_fold(TimeSpan::ZERO, |sum, (from, to)| {
            Some(sum + self.round_trip(now, own, from, to)?)
        })
    }

    fn candidate(
        &self,
        now: Time,
        overlay: &Overlay,
        route: Route,
        rates: &Rates<'_>,
    ) -> Candidate {
        let own = &overlay.own;
        let legs = self.legs(now, overlay, &route, rates);
        let prediction = legs.and_then(|legs| completion_time(&legs, overlay.choice.transfer));
        let load = route
            .transit()
            .iter()
            .map(|node| self.load(now, node))
            .max();
        Candidate {
            obstacle: self.obstacle(now, own, &route),
            prediction,
            load: load.unwrap_or(0),
            route,
        }
    }

    fn obstacle(&self, now: Time, own: &NodeName, route: &Route) -> Option<Obstacle> {
        let overloaded = |node: &NodeName| {
            let overload = self.overload(now, node)?;
            Some(Obstacle::Overloaded(node.clone(), overload))
        };
        if let Some(obstacle) = route.nodes().iter().find_map(overloaded) {
            return Some(obstacle);
        }
        let first = route.nodes().first()?;
        let health = self.health(now, first);
        if health != Health::Up {
            return Some(Obstacle::Unwell(first.clone(), health));
        }
        let leg = |from: &NodeName, to: &NodeName| (from.clone(), to.clone());
        let mut hops = route.hops(own);
        if let Some((from, to)) = hops.find(|(from, to)| self.is_broken(now, from, to)) {
            let (from, to) = leg(from, to);
            return Some(Obstacle::Broken { from, to });
        }
        let is_unknown =
            |(from, to): &(&NodeName, &NodeName)| self.round_trip(now, own, from, to).is_none();
        let (from, to) = route.hops(own).find(is_unknown)?;
        let (from, to) = leg(from, to);
        Some(Obstacle::Unmeasured { from, to })
    }

    /// The legs of a route in the direction of the data of a download: the exit's first.
    fn legs(
        &self,
        now: Time,
        overlay: &Overlay,
        route: &Route,
        rates: &Rates<'_>,
    ) -> Option<Vec<RouteLeg>> {
        let own = &overlay.own;
        let hops = route.hops(own);
        let legs = hops.map(|(near, far)| self.leg(now, overlay, (far, near), rates));
        let mut legs = legs.collect::<Option<Vec<_>>>()?;
        legs.reverse();
        Some(legs)
    }

    fn leg(
        &self,
        now: Time,
        overlay: &Overlay,
        (from, to): (&NodeName, &NodeName),
        rates: &Rates<'_>,
    ) -> Option<RouteLeg> {
        let own = &overlay.own;
        let round_trip = self.round_trip(now, own, from, to)?;
        let row = self.row(now, from);
        let row = row.and_then(|(_, row)| row.legs.iter().find(|leg| leg.to.is_node(to)));
        // The other end does not distinguish the uplinks of this node: they differ as this node measures them.
        let of_own = match from.uplink() {
            Some(_) => self.leg_to(from).filter(|_| to == own),
            None => self.leg_to(to).filter(|_| from == own),
        };
        let (loss, rate, congestion) = match (row, of_own) {
            (_, Some(leg)) => (leg.loss.get(now), leg.rate.get(now), leg.congestion),
            (Some(leg), None) => (leg.loss.as_f64(), leg.rate, leg.congestion),
            (None, None) => (UNKNOWN_LOSS, None, Congestion::default()),
        };
        Some(RouteLeg {
            round_trip,
            loss,
            rate: rate.or_else(|| rates.assumed(from, to))?,
            congestion,
            is_hop: true,
        })
    }

    /// The present round trip between two nodes, by the newest measurement of either; `None` if it is
    /// unknown, or if both report that they do not reach each other.
    pub(super) fn round_trip(
        &self,
        now: Time,
        own: &NodeName,
        from: &NodeName,
        to: &NodeName,
    ) -> Option<TimeSpan> {
        let of_own = match (from == own, to == own) {
            (true, _) => self.leg_to(to),
            (_, true) => self.leg_to(from),
            _ => None,
        };
        if let Some(leg) = of_own {
            return leg.round_trip.get(now);
        }
        let reported = |from: &NodeName, to: &NodeName| {
            let (at, row) = self.row(now, from)?;
            let leg = row.legs.iter().find(|leg| leg.to.is_node(to))?;
            Some((at, leg.round_trip))
        };
        let timed = |from: &NodeName, to: &NodeName| {
            let estimate = self.timed(from, to)?;
            Some((estimate.noted()?, estimate.get(now)?))
        };
        let reports = [reported(from, to), reported(to, from)];
        // A node that reports its other legs, and not this one, cannot use it at present.
        let has_row = |node: &NodeName| {
            self.row(now, node)
                .is_some_and(|(_, row)| !row.legs.is_empty())
        };
        if reports == [None, None] && (has_row(from) || has_row(to)) {
            return None;
        }
        let all = reports
            .into_iter()
            .chain([timed(from, to), timed(to, from)]);
        let newest = all.flatten().max_by_key(|(at, _)| *at);
        newest.map(|(_, round_trip)| round_trip)
    }

    /// The load of a node in 1/1000, as it has reported it.
    fn load(&self, now: Time, node: &NodeName) -> u16 {
        self.row(now, node).map_or(0, |(_, row)| row.load)
    }

    fn rates<'a>(&'a self, now: Time, own: &'a NodeName) -> Rates<'a> {
        let mut rates = Rates {
            out: BTreeMap::new(),
            into: BTreeMap::new(),
        };
        for (name, peer) in self.peers() {
            if let Some(rate) = peer.leg.rate.get(now) {
                rates.note(own, name, rate);
            }
            let legs = self.row(now, name).map(|(_, row)| row.legs.iter());
            for leg in legs.into_iter().flatten() {
                if let Some(rate) = leg.rate {
                    rates.note(name, &leg.to, rate);
                }
            }
        }
        rates
    }
}

impl<'a> Rates<'a> {
    fn note(&mut self, from: &'a NodeName, to: &'a NodeName, rate: BitRate) {
        for (map, node) in [(&mut self.out, from), (&mut self.into, to)] {
            let largest = map.entry(node).or_insert(rate);
            *largest = rate.max(*largest);
        }
    }

    fn assumed(&self, from: &NodeName, to: &NodeName) -> Option<BitRate> {
        let known = [self.out.get(from), self.into.get(to)];
        let least = known.into_iter().flatten().min().copied();
        least.or_else(|| self.best())
    }

    /// The largest measured rate of all: a last leg is not assumed to be the narrowest.
    fn best(&self) -> Option<BitRate> {
        let best = self.out.values().max().copied();
        best.or(BitRate::from_bits_per_second(ASSUMED_RATE))
    }
}
