//! The routes to an exit: straight, over one transit node, over two.

#[cfg(test)]
mod plain;
mod stop;

use std::cell::{Cell, OnceCell};
use std::collections::BinaryHeap;

use ipnet::IpNet;
use midspan_units::{ByteSize, Time, TimeSpan};

use super::candidate::{Candidate, Obstacle};
use super::kept_share::KeptShare;
use super::known::KnownOverlay;
use super::lazy_rates::LazyRates;
use super::liveness::Health;
use super::loss::UNKNOWN_LOSS;
use super::prediction::RouteLeg;
use super::present_route::PresentRoute;
use super::topology::Topology;
use super::{Congestion, NodeName, Overlay, Route, RowLeg};
use stop::{Between, Stop};

/// Most routes of each length that are predicted: those with the shortest round trips (VIA, SIGCOMM 2016: the best k).
///
/// With 16 routes and 12 ends, a simulation takes 1.2 times as long, and gains more in some networks and less in others.
const MOST_OF_LENGTH: usize = 8;
/// A route over two transit nodes begins with one of this many shortest legs, and ends with one of as many: an overlay of 30
/// transit nodes has 870 such routes to each exit, and nearly all of them are detours.
const MOST_ENDS: usize = 8;
/// With more transit nodes, there are no routes over two of them. The ends above bound their number already.
const MOST_PAIRED: usize = 64;

/// A leg from this node.
struct First<'a> {
    /// Its name, with its uplink.
    name: &'a NodeName,
    /// The place of the node at its end among the transit nodes; that of the exit is after these.
    stop: usize,
    round_trip: Option<TimeSpan>,
    /// Whether the node at its end can be used.
    health: Health,
}

/// A route: its first leg, by its place, and the places of the nodes after that.
struct Places<'a> {
    first: usize,
    others: [Option<usize>; 2],
    /// Between the two transit nodes, if there are two.
    between: Option<Between<'a>>,
}

/// The search for the routes to one exit.
struct Search<'a> {
    known: &'a KnownOverlay,
    now: Time,
    own: &'a NodeName,
    /// Transit nodes, and the exit at the end.
    stops: Vec<Stop<'a>>,
    firsts: Vec<First<'a>>,
    /// Between each transit node and the exit.
    to_exit: Vec<Between<'a>>,
    /// The leg from the exit to each transit node, for its data; computed for the routes that are predicted.
    from_exit: Vec<OnceCell<Option<RouteLeg>>>,
    /// The leg from the end of each first leg to this node; likewise.
    to_own: Vec<OnceCell<Option<RouteLeg>>>,
    /// The place of this node in the row that was read last.
    own_near: Cell<usize>,
}

impl KnownOverlay {
    /// All routes to this exit, the straight ones first.
    #[must_use]
    pub fn candidates(&self, now: Time, overlay: &Overlay, exit: &NodeName) -> Vec<Candidate> {
        let topology = Topology::of(overlay);
        self.candidates_in(now, &topology, overlay.choice.transfer, exit)
    }

    /// The same in an overlay with this topology, for transfers of this size.
    pub(super) fn candidates_in(
        &self,
        now: Time,
        topology: &Topology,
        transfer: ByteSize,
        exit: &NodeName,
    ) -> Vec<Candidate> {
        let own = topology.own();
        if exit == own || topology.legs_to(exit).is_empty() {
            return Vec::new();
        }
        let rates = LazyRates::new(now, self, topology);
        let search = Search::new(now, self, topology, exit);
        let straight = search.firsts_to(search.exit()).map(|first| Places {
            first,
            others: [None, None],
            between: None,
        });
        let routes = straight
            .chain(search.over_one())
            .chain(search.over_two())
            .filter_map(|places| search.candidate(&places, transfer, &rates));
        let mut candidates = Vec::with_capacity(2 * MOST_OF_LENGTH + 2);
        candidates.extend(routes);
        // The present route is compared even if there are enough shorter ones: it can still be used.
        let present = self.present.get(exit).and_then(PresentRoute::route);
        if let Some(present) = present
            && !candidates.iter().any(|it| it.route == *present)
            && let Some(places) = search.places_of(present)
        {
            candidates.extend(search.candidate(&places, transfer, &rates));
        }
        candidates
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
        self.prediction_in(
            now,
            &Topology::of(overlay),
            overlay.choice.transfer,
            (route, site),
        )
    }

    /// The same in an overlay with this topology, for transfers of this size.
    pub(super) fn prediction_in(
        &self,
        now: Time,
        topology: &Topology,
        transfer: ByteSize,
        (route, site): (Option<&Route>, IpNet),
    ) -> Option<TimeSpan> {
        let own = topology.own();
        let rates = LazyRates::new(now, self, topology);
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
            let hops: Vec<_> = route.hops(own).collect();
            let is_straight = hops.len() == 1;
            for (near, far) in hops.into_iter().rev() {
                let row = self.row(now, far).and_then(|(_, row)| row.leg_to(near));
                // A straight route has no margin, as among the candidates.
                let straight = is_straight.then(|| self.leg_to(far)).flatten();
                let round_trip = match straight {
                    Some(leg) => leg.round_trip.get(now)?,
                    None => self.round_trip(now, own, far, near)?,
                };
                legs.push(self.leg(now, (far, near, own), (round_trip, row), &rates)?);
            }
        }
        self.times.completion_time(&legs, transfer)
    }

    /// The leg from one node to the one before it on a route, with its round trip and what its sender reports.
    fn leg(
        &self,
        now: Time,
        (from, to, own): (&NodeName, &NodeName, &NodeName),
        (round_trip, row): (TimeSpan, Option<&RowLeg>),
        rates: &LazyRates<'_>,
    ) -> Option<RouteLeg> {
        // The other end does not distinguish the uplinks of this node: they differ as this node measures them.
        let of_own = match from.uplink() {
            Some(_) if to == own => self.leg_to(from),
            None if from == own => self.leg_to(to),
            _ => None,
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

    /// The present round trip between two nodes with its margin, by the newest measurement of either; `None` if it is
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
        match of_own {
            Some(leg) => leg.round_trip.careful(now),
            None => (self.stop(now, from, 0)).round_trip_to(now, &self.stop(now, to, 0)),
        }
    }
}

impl<'a> Search<'a> {
    fn new(now: Time, known: &'a KnownOverlay, topology: &'a Topology, exit: &'a NodeName) -> Self {
        let own = topology.own();
        let count = topology.transit().count() + 1;
        let (mut stops, mut firsts) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (place, (name, legs)) in topology.towards(exit).enumerate() {
            let stop = known.stop(now, name, place);
            let is_straight = name == exit;
            for leg in legs {
                // A leg over an uplink may be new, although the node is known.
                let only = stop.state.only_leg.filter(|_| leg == name);
                let only = only.map(|peer| peer.first_leg(now, is_straight));
                // Without a measurement of its own, this node uses that of the node at the other end.
                let reported = || (known.round_trip(now, own, own, leg), Health::Unknown);
                let (round_trip, health) = only
                    .or_else(|| known.first_leg(now, leg, is_straight))
                    .unwrap_or_else(reported);
                firsts.push(First {
                    name: leg,
                    stop: place,
                    round_trip,
                    health,
                });
            }
            stops.push(stop);
        }
        let mut search = Self {
            known,
            now,
            own,
            stops,
            firsts,
            to_exit: Vec::new(),
            from_exit: Vec::new(),
            to_own: Vec::new(),
            own_near: Cell::new(0),
        };
        let Some((of_exit, of_transit)) = search.stops.split_last() else {
            return search;
        };
        let to_exit = of_transit.iter().map(|stop| stop.between(now, of_exit));
        search.to_exit = to_exit.collect();
        search.from_exit = vec![OnceCell::new(); search.to_exit.len()];
        search.to_own = vec![OnceCell::new(); search.firsts.len()];
        search
    }

    /// The place of the exit.
    const fn exit(&self) -> usize {
        self.stops.len() - 1
    }

    /// The places of the first legs to a node.
    fn firsts_to(&self, stop: usize) -> impl Iterator<Item = usize> {
        let all = self.firsts.iter().enumerate();
        all.filter(move |(_, first)| first.stop == stop)
            .map(|(place, _)| place)
    }

    /// The leg between two other nodes, for the data of the first one. The nodes have these names on the route.
    fn leg_between(
        &self,
        leg: &Between<'_>,
        (from, to): (&NodeName, &NodeName),
        rates: &LazyRates<'_>,
    ) -> Option<RouteLeg> {
        let [report, _] = leg.reports;
        let measured = (leg.round_trip?, report);
        self.known
            .leg(self.now, (from, to, self.own), measured, rates)
    }

    /// The leg from the exit to a transit node.
    fn leg_from_exit(&self, to: usize, rates: &LazyRates<'_>) -> Option<RouteLeg> {
        *self.from_exit.get(to)?.get_or_init(|| {
            let ends = (self.stops.get(self.exit())?.name, self.stops.get(to)?.name);
            self.leg_between(&self.to_exit.get(to)?.reversed(), ends, rates)
        })
    }

    /// The leg from the end of a first leg to this node.
    fn leg_to_own(&self, first: usize, rates: &LazyRates<'_>) -> Option<RouteLeg> {
        *self.to_own.get(first)?.get_or_init(|| {
            let first = self.firsts.get(first)?;
            let row = self.stops.get(first.stop)?.state.row;
            let row = row.and_then(|(_, row)| row.leg_near(self.own, &self.own_near));
            let ends = (first.name, self.own, self.own);
            self.known
                .leg(self.now, ends, (first.round_trip?, row), rates)
        })
    }

    /// The round trip from a transit node to the exit.
    fn last(&self, stop: usize) -> Option<TimeSpan> {
        self.to_exit.get(stop)?.round_trip
    }

    /// The first legs to transit nodes, with their places.
    fn to_transit(&self) -> impl Iterator<Item = (usize, &First<'a>)> {
        let all = self.firsts.iter().enumerate();
        all.filter(|(_, first)| first.stop != self.exit())
    }

    /// The shortest routes over one transit node; those that are not measured come last.
    fn over_one(&self) -> Vec<Places<'a>> {
        let routes = self.to_transit().map(|(place, first)| {
            let sum = first.round_trip;
            let sum = sum.and_then(|sum| Some(sum + self.last(first.stop)?));
            (sum.unwrap_or(TimeSpan::from_nanoseconds(u64::MAX)), place)
        });
        let mut shortest = Vec::with_capacity(self.firsts.len());
        shortest.extend(routes);
        // Of equals, the first one in the order of the members.
        let places = least(shortest, MOST_OF_LENGTH)
            .into_iter()
            .map(|(_, first)| Places {
                first,
                others: [Some(self.exit()), None],
                between: None,
            });
        places.collect()
    }

    /// The shortest routes over two transit nodes that are measured. A longer route with an unknown leg is of no
    /// use before the shorter ones are known.
    fn over_two(&self) -> Vec<Places<'a>> {
        if self.exit() > MOST_PAIRED {
            return Vec::new();
        }
        let mut firsts: Vec<(TimeSpan, usize, usize)> = Vec::with_capacity(self.firsts.len());
        firsts.extend(
            self.to_transit()
                .filter_map(|(place, first)| Some((first.round_trip?, place, first.stop))),
        );
        let mut seconds: Vec<(TimeSpan, usize)> = Vec::with_capacity(self.exit());
        seconds.extend((0..self.exit()).filter_map(|place| Some((self.last(place)?, place))));
        let (firsts, seconds) = (least(firsts, MOST_ENDS), least(seconds, MOST_ENDS));
        let mut best = BinaryHeap::with_capacity(MOST_OF_LENGTH + 1);
        for (to_first, first, stop) in firsts {
            let Some(near) = self.stops.get(stop) else {
                continue;
            };
            for (to_exit, second) in &seconds {
                let ends = to_first + *to_exit;
                // Without the leg between its transit nodes, the route is already longer than the best ones.
                let is_longer = |(longest, ..): &(TimeSpan, usize, usize)| ends > *longest;
                if best.len() == MOST_OF_LENGTH && best.peek().is_some_and(is_longer) {
                    break;
                }
                if *second != stop
                    && let Some(far) = self.stops.get(*second)
                    && let Some(middle) = near.round_trip_to(self.now, far)
                {
                    best.push((ends + middle, first, *second));
                    if best.len() > MOST_OF_LENGTH {
                        best.pop();
                    }
                }
            }
        }
        let places = best.into_sorted_vec().into_iter();
        places
            .map(|(_, first, second)| self.places_over_two(first, second))
            .collect()
    }

    /// A route over the transit node at the end of a first leg, and over a second one.
    fn places_over_two(&self, first: usize, second: usize) -> Places<'a> {
        Places {
            first,
            others: [Some(second), Some(self.exit())],
            between: (self.firsts.get(first)).and_then(|leg| self.between(leg.stop, second)),
        }
    }

    /// The places of a route to the exit; `None` if a node of it is no transit node any more.
    fn places_of(&self, route: &Route) -> Option<Places<'a>> {
        let (first, others) = route.nodes().split_first()?;
        let first = self.firsts.iter().position(|leg| leg.name == first)?;
        let stop = |name: &NodeName| self.stops.iter().position(|stop| stop.name == name);
        let mut places = [None; 2];
        match others {
            [] => {}
            [_] => places[0] = Some(self.exit()),
            [second, _] => return Some(self.places_over_two(first, stop(second)?)),
            _ => return None,
        }
        Some(Places {
            first,
            others: places,
            between: None,
        })
    }

    /// What is known of the leg between two transit nodes.
    fn between(&self, one: usize, other: usize) -> Option<Between<'a>> {
        let (one, other) = (self.stops.get(one)?, self.stops.get(other)?);
        Some(one.between(self.now, other))
    }

    fn candidate(
        &self,
        places: &Places<'_>,
        transfer: ByteSize,
        rates: &LazyRates<'_>,
    ) -> Option<Candidate> {
        let first = self.firsts.get(places.first)?;
        let others = places.others.iter().flatten();
        let stops = || std::iter::once(&first.stop).chain(places.others.iter().flatten());
        let names = std::iter::once(first.name);
        let names = names.chain(others.filter_map(|place| Some(self.stops.get(*place)?.name)));
        let route = Route::new(names.cloned())?;
        let (mut load, mut kept) = (0, KeptShare::default());
        let mut heard = Some(self.now);
        let transit = stops().filter(|place| **place != self.exit());
        for stop in transit.filter_map(|place| self.stops.get(*place)) {
            load = stop.state.load.max(load);
            if stop.state.kept.cmp_share(&kept).is_lt() {
                kept = stop.state.kept;
            }
            heard = heard.and_then(|oldest| Some(oldest.min(stop.state.heard?)));
        }
        Some(Candidate {
            kept: kept.probability(),
            transit_heard: heard,
            obstacle: self.obstacle(first, places, &route).map(Box::new),
            prediction: self.prediction(places, transfer, rates),
            load,
            route,
        })
    }

    /// The prediction by the legs in the direction of the data of a download: the exit's first.
    fn prediction(
        &self,
        places: &Places<'_>,
        transfer: ByteSize,
        rates: &LazyRates<'_>,
    ) -> Option<TimeSpan> {
        let first = self.firsts.get(places.first)?;
        let of_first = self.leg_to_own(places.first, rates)?;
        let from_exit = |to: usize| self.leg_from_exit(to, rates);
        match (places.others, &places.between) {
            ([Some(second), Some(_)], Some(between)) => {
                let ends = (self.stops.get(second)?.name, first.name);
                let between = self.leg_between(&between.reversed(), ends, rates)?;
                let legs = [from_exit(second)?, between, of_first];
                self.known.times.completion_time(&legs, transfer)
            }
            ([Some(exit), None], _) => {
                let last = match first.name.uplink() {
                    None => from_exit(first.stop)?,
                    Some(_) => {
                        let leg = self.to_exit.get(first.stop)?.reversed();
                        let ends = (self.stops.get(exit)?.name, first.name);
                        self.leg_between(&leg, ends, rates)?
                    }
                };
                self.known
                    .times
                    .completion_time(&[last, of_first], transfer)
            }
            _ => self.known.times.completion_time(&[of_first], transfer),
        }
    }

    fn obstacle(&self, first: &First<'_>, places: &Places<'_>, route: &Route) -> Option<Obstacle> {
        let stops = std::iter::once(&first.stop).chain(places.others.iter().flatten());
        for (place, name) in stops.zip(route.nodes()) {
            if let Some(overload) = self.stops.get(*place).and_then(|stop| stop.state.overload) {
                return Some(Obstacle::Overloaded(name.clone(), overload));
            }
        }
        if first.health != Health::Up {
            return Some(Obstacle::Unwell(first.name.clone(), first.health));
        }
        let leg = |(from, to): (&NodeName, &NodeName)| (from.clone(), to.clone());
        let is_broken =
            |(from, to): &(&NodeName, &NodeName)| self.known.is_broken(self.now, from, to);
        if self.known.has_broken_legs()
            && let Some((from, to)) = route.hops(self.own).find(is_broken).map(leg)
        {
            return Some(Obstacle::Broken { from, to });
        }
        let between = places.between.and_then(|leg| leg.round_trip);
        let round_trips: &[Option<TimeSpan>] = match places.others {
            [None, _] => &[first.round_trip],
            [Some(_), None] => &[first.round_trip, self.last(first.stop)],
            [Some(second), Some(_)] => &[first.round_trip, between, self.last(second)],
        };
        let unknown = round_trips.iter().position(Option::is_none)?;
        let (from, to) = route.hops(self.own).nth(unknown).map(leg)?;
        Some(Obstacle::Unmeasured { from, to })
    }
}

/// This many of the least values, in their order.
fn least<T: Ord>(mut values: Vec<T>, count: usize) -> Vec<T> {
    if values.len() > count {
        values.select_nth_unstable(count);
        values.truncate(count);
    }
    values.sort_unstable();
    values
}
