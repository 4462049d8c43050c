//! The search for routes, written as plainly as possible, and tests that the quick search finds the same.

use std::collections::BTreeMap;

use midspan_units::{BitRate, Time, TimeSpan};

use super::{MOST_ENDS, MOST_OF_LENGTH, MOST_PAIRED};
use crate::overlay::assumed_rates::ASSUMED_RATE;
use crate::overlay::candidate::{Candidate, Obstacle};
use crate::overlay::kept_share::KeptShare;
use crate::overlay::known::KnownOverlay;
use crate::overlay::liveness::Health;
use crate::overlay::loss::UNKNOWN_LOSS;
use crate::overlay::prediction::{RouteLeg, completion_time};
use crate::overlay::present_route::PresentRoute;
use crate::overlay::{Congestion, Node, NodeKind, NodeName, Overlay, Route};

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

/// The names of the shortest known legs.
fn shortest(legs: Vec<(Option<TimeSpan>, &NodeName)>) -> Vec<&NodeName> {
    let known = legs.into_iter().filter(|(time, _)| time.is_some());
    let mut known: Vec<_> = known.collect();
    known.sort_by_key(|(time, _)| *time);
    known.truncate(MOST_ENDS);
    known.into_iter().map(|(_, name)| name).collect()
}

impl KnownOverlay {
    /// All routes to this exit, the straight ones first.
    pub fn plain_candidates(
        &self,
        now: Time,
        overlay: &Overlay,
        exit: &NodeName,
    ) -> Vec<Candidate> {
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
        let mut routes = self.plain_shortest(now, own, one);
        if transit.len() <= MOST_PAIRED {
            let pairs = transit.iter().flat_map(|node| {
                let others = transit.iter().filter(move |second| *second != node);
                let firsts = first_legs(&legs, node);
                firsts.flat_map(move |first| {
                    others.clone().map(move |second| vec![first, *second, exit])
                })
            });
            // A longer route with an unknown leg is of no use before the shorter ones are known.
            let firsts = transit.iter().flat_map(|node| first_legs(&legs, node));
            let to_first = |name| (self.plain_round_trip(now, own, own, name), name);
            let firsts = shortest(firsts.map(to_first).collect());
            let lasts = transit.iter().copied();
            let lasts = lasts.map(|node| (self.plain_round_trip(now, own, node, exit), node));
            let lasts = shortest(lasts.collect());
            let is_known = |nodes: &Vec<&NodeName>| {
                let are_short = firsts.contains(&nodes[0]) && lasts.contains(&nodes[1]);
                are_short && self.plain_sum(now, own, nodes).is_some()
            };
            routes.extend(self.plain_shortest(now, own, pairs.filter(is_known)));
        }
        let rates = self.plain_rates(now, own);
        let routes = first_legs(&legs, exit)
            .map(|first| vec![first])
            .chain(routes)
            .filter_map(|nodes| Route::new(nodes.into_iter().cloned()));
        let mut routes: Vec<Route> = routes.collect();
        // The present route, as long as its nodes may be used.
        let is_possible = |route: &&Route| match route.nodes() {
            [first] => first_legs(&legs, exit).any(|leg| leg == first),
            [first, others @ ..] => {
                let mut firsts = transit.iter().flat_map(|node| first_legs(&legs, node));
                firsts.any(|leg| leg == first)
                    && others.len() <= 2
                    && (others[..others.len() - 1].iter()).all(|node| transit.contains(&node))
            }
            [] => false,
        };
        let present = self.present.get(exit).and_then(PresentRoute::route);
        if let Some(present) = present.filter(is_possible)
            && !routes.contains(present)
        {
            routes.push(present.clone());
        }
        routes
            .into_iter()
            .map(|route| self.plain_candidate(now, overlay, route, &rates))
            .collect()
    }

    /// The routes with the shortest round trips; those that are not measured come last.
    fn plain_shortest<'a>(
        &self,
        now: Time,
        own: &NodeName,
        routes: impl Iterator<Item = Vec<&'a NodeName>>,
    ) -> Vec<Vec<&'a NodeName>> {
        let mut routes: Vec<_> = routes
            .map(|nodes| (self.plain_sum(now, own, &nodes), nodes))
            .collect();
        routes.sort_by_key(|(sum, _)| sum.unwrap_or(TimeSpan::from_nanoseconds(u64::MAX)));
        routes.truncate(MOST_OF_LENGTH);
        routes.into_iter().map(|(_, nodes)| nodes).collect()
    }

    /// The sum of the round trips of a route.
    fn plain_sum(&self, now: Time, own: &NodeName, nodes: &[&NodeName]) -> Option<TimeSpan> {
        let from = std::iter::once(&own).chain(nodes);
        let mut hops = from.zip(nodes);
        hops.try_fold(TimeSpan::ZERO, |sum, (from, to)| {
            Some(sum + self.plain_round_trip(now, own, from, to)?)
        })
    }

    fn plain_candidate(
        &self,
        now: Time,
        overlay: &Overlay,
        route: Route,
        rates: &Rates<'_>,
    ) -> Candidate {
        let own = &overlay.own;
        let legs = self.plain_legs(now, overlay, &route, rates);
        let prediction = legs.and_then(|legs| completion_time(&legs, overlay.choice.transfer));
        let transit = || route.transit().iter().map(NodeName::node);
        let state = |node: NodeName| self.node_state(now, &node);
        let load = transit().map(|node| state(node).load).max();
        let kept = transit().map(|node| state(node).kept);
        let kept = kept.min_by(KeptShare::cmp_share).unwrap_or_default();
        let heard: Option<Vec<Time>> = transit().map(|node| state(node).heard).collect();
        Candidate {
            kept: kept.probability(),
            transit_heard: heard.map(|all| all.into_iter().min().unwrap_or(now)),
            obstacle: self.plain_obstacle(now, own, &route).map(Box::new),
            prediction,
            load: load.unwrap_or(0),
            route,
        }
    }

    fn plain_obstacle(&self, now: Time, own: &NodeName, route: &Route) -> Option<Obstacle> {
        let overloaded = |node: &NodeName| {
            // A node is busy whichever uplink leads to it.
            let overload = self.overload(now, &node.node())?;
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
        let is_unknown = |(from, to): &(&NodeName, &NodeName)| {
            self.plain_round_trip(now, own, from, to).is_none()
        };
        let (from, to) = route.hops(own).find(is_unknown)?;
        let (from, to) = leg(from, to);
        Some(Obstacle::Unmeasured { from, to })
    }

    /// The legs of a route in the direction of the data of a download: the exit's first.
    fn plain_legs(
        &self,
        now: Time,
        overlay: &Overlay,
        route: &Route,
        rates: &Rates<'_>,
    ) -> Option<Vec<RouteLeg>> {
        let own = &overlay.own;
        let hops = route.hops(own);
        let legs = hops.map(|(near, far)| self.plain_leg(now, overlay, (far, near), rates));
        let mut legs = legs.collect::<Option<Vec<_>>>()?;
        legs.reverse();
        // A straight route has no margin.
        if let ([exit], [leg]) = (route.nodes(), legs.as_mut_slice())
            && let Some(measured) = self.leg_to(exit).and_then(|it| it.round_trip.get(now))
        {
            leg.round_trip = measured;
        }
        Some(legs)
    }

    fn plain_leg(
        &self,
        now: Time,
        overlay: &Overlay,
        (from, to): (&NodeName, &NodeName),
        rates: &Rates<'_>,
    ) -> Option<RouteLeg> {
        let own = &overlay.own;
        let round_trip = self.plain_round_trip(now, own, from, to)?;
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
    fn plain_round_trip(
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
            return leg.round_trip.careful(now);
        }
        let reported = |from: &NodeName, to: &NodeName| {
            let (at, row) = self.row(now, from)?;
            let leg = row.legs.iter().find(|leg| leg.to.is_node(to))?;
            Some((at, leg.round_trip))
        };
        let timed = |from: &NodeName, to: &NodeName| {
            let estimate = self.timed().from(from)?.get(&to.node())?;
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
        // Of measurements at the same time, the longest one counts.
        let newest = all.flatten().max();
        newest.map(|(_, round_trip)| round_trip)
    }

    /// The load of a node in 1/1000, as it has reported it.
    fn plain_rates<'a>(&'a self, now: Time, own: &'a NodeName) -> Rates<'a> {
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

mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overlay::topology::Topology;
    use crate::overlay::{LegReading, Row, RowLeg, Uplink};
    use midspan_units::Probability;

    fn name(number: usize) -> NodeName {
        format!("n{number}").parse().unwrap()
    }

    fn overlay(nodes: usize, uplinks: bool) -> Overlay {
        let node = |number: usize| Node {
            kind: match number {
                4 => NodeKind::Connect,
                _ => NodeKind::Midspan,
            },
            transit: number != 5,
            ..Node::new(
                name(number),
                (number != 3).then(|| ([10, 0, 0, u8::try_from(number).unwrap()], 7704).into()),
            )
        };
        let uplink = |text: &str, last: u8| Uplink {
            name: text.parse().unwrap(),
            from: [10, 9, 0, last].into(),
        };
        Overlay {
            uplinks: match uplinks {
                true => vec![uplink("lte", 1), uplink("vsat", 2)],
                false => Vec::new(),
            },
            ..Overlay::new(name(0), (0..nodes).map(node).collect())
        }
    }

    /// What a node may measure: kind, two nodes, a number, and the seconds before it.
    type Event = (u8, usize, usize, u64, u64);

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = (0_u8..12, 0_usize..40, 0_usize..40, 1_u64..400_000, 0_u64..3);
        proptest::collection::vec(event, 0..120)
    }

    fn note(known: &mut KnownOverlay, overlay: &Overlay, now: Time, event: &Event) {
        let nodes = overlay.nodes.len();
        let (kind, one, other, number, _) = *event;
        let (one, other) = (name(1 + one % (nodes - 1)), name(1 + other % (nodes - 1)));
        let legs = overlay.legs_to(&one);
        let leg = &legs[usize::try_from(number).unwrap() % legs.len()];
        let span = TimeSpan::from_nanoseconds(number * 1_000);
        match kind {
            // Rows are the most frequent. Their legs are in no order, and some are there twice.
            0..7 => {
                let legs = (0..nodes * 2 / 3).map(|place| {
                    let mixed = number.wrapping_mul(place as u64 * 7_919 + 3);
                    RowLeg {
                        to: name(usize::try_from(mixed % nodes as u64).unwrap()),
                        round_trip: TimeSpan::from_nanoseconds(mixed % 300_000_000),
                        loss: Probability::from_f64((mixed % 97) as f64 / 10_000.0).unwrap(),
                        rate: BitRate::from_bits_per_second((mixed % 5) * 7_000_000),
                        congestion: Congestion::ALL[usize::try_from(mixed % 3).unwrap()],
                    }
                });
                let row = Row {
                    legs: legs.collect(),
                    load: u16::try_from(number % 1_000).unwrap(),
                    is_busy: number % 31 == 0,
                    is_draining: number % 37 == 0,
                };
                known.note_row(now, leg, span, row);
            }
            7 | 8 => {
                let nodes = match one == other {
                    true => vec![leg.clone()],
                    false => vec![leg.clone(), other],
                };
                let route = Route::new(nodes).unwrap();
                let times = [(one, span), (name(6), span)];
                known.note_opened(now, &overlay.own, (&route, None), span, &times);
            }
            9 => {
                let reading = LegReading {
                    least_round_trip: Some(span),
                    sent: number,
                    lost: number % 50,
                    rate: BitRate::from_bits_per_second(number * 1_000),
                    ..LegReading::default()
                };
                known.note_reading(now, leg, &reading);
            }
            10 => {
                let route = Route::new(vec![leg.clone(), name(50)]).unwrap();
                let failure = crate::overlay::CallFailure {
                    node: (number % 2 == 0).then_some(one),
                    is_busy: number % 3 == 0,
                };
                known.note_failed(now, &overlay.own, &route, &failure);
            }
            _ => known.note_refused_exchange(now, leg),
        }
    }

    /// The node has been measured before this node had uplinks.
    #[test]
    fn a_new_leg_over_an_uplink_is_not_measured() {
        let (before, after) = (overlay(8, false), overlay(8, true));
        let now = Time::ZERO + TimeSpan::from_seconds(100);
        let mut known = KnownOverlay::new(1);
        for node in 0..7 {
            note(
                &mut known,
                &before,
                now,
                &(0, node, 0, 1_000 + node as u64, 0),
            );
        }
        let exit = name(7);
        let found = known.candidates(now, &after, &exit);
        assert_eq!(found, known.plain_candidates(now, &after, &exit));
        assert!(found.iter().all(|route| route.prediction.is_none()));
    }

    /// This route is the present one.
    fn present_route(now: Time, route: Route) -> PresentRoute {
        let mut present = PresentRoute::default();
        let only = Candidate {
            route,
            prediction: Some(TimeSpan::from_seconds(1)),
            obstacle: None,
            load: 0,
            kept: midspan_units::Probability::ONE,
            transit_heard: None,
        };
        present.evaluate(now, vec![only]);
        assert!(present.route().is_some());
        present
    }

    /// A route that is not among the shortest ones any more can still be used. To leave it counts as a voluntary change.
    #[test]
    fn the_present_route_stays_a_candidate() {
        let overlay = overlay(36, false);
        let now = Time::ZERO + TimeSpan::from_seconds(100);
        let mut known = KnownOverlay::new(1);
        for node in 0..35 {
            note(
                &mut known,
                &overlay,
                now,
                &(0, node, 0, 1_000 + 10 * node as u64, 0),
            );
        }
        let exit = name(35);
        let found = |known: &KnownOverlay| known.candidates(now, &overlay, &exit);
        let over_one = found(&known).into_iter().map(|it| it.route);
        let over_one: Vec<Route> = over_one.filter(|it| it.transit().len() == 1).collect();
        let topology = Topology::of(&overlay);
        let transit = topology.transit().filter(|node| **node != exit);
        let far = transit.map(|node| Route::new([node.clone(), exit.clone()]).unwrap());
        let far: Vec<Route> = far.filter(|route| !over_one.contains(route)).collect();
        assert!(over_one.len() == MOST_OF_LENGTH && !far.is_empty());
        for route in far {
            known
                .present
                .insert(exit.clone(), present_route(now, route.clone()));
            let found = found(&known);
            assert!(found.iter().any(|it| it.route == route), "{route:?}");
            assert_eq!(found, known.plain_candidates(now, &overlay, &exit));
        }
    }

    proptest! {
        #[test]
        fn the_search_equals_the_plain_one(
            nodes in 7_usize..72,
            uplinks in any::<bool>(),
            events in events(),
            exit in 0_usize..72,
            present in proptest::collection::vec(0_usize..72, 0..4),
        ) {
            let overlay = overlay(nodes, uplinks);
            let mut known = KnownOverlay::new(1);
            // The plain search sees the rows as they arrived, except for their order.
            let mut now = Time::ZERO + TimeSpan::from_seconds(100);
            for event in &events {
                now += TimeSpan::from_seconds(event.4);
                note(&mut known, &overlay, now, event);
            }
            let exit = name(exit % nodes);
            let nodes = present.into_iter().map(name).chain([exit.clone()]);
            known.present.extend(Route::new(nodes).map(|route| (exit.clone(), present_route(now, route))));
            let plain = known.plain_candidates(now, &overlay, &exit);
            prop_assert_eq!(known.candidates(now, &overlay, &exit), plain);
        }
    }
}
