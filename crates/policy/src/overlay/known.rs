//! The knowledge of one node about its overlay: the measurements of its own legs, what other nodes report, and
//! what its calls have shown. Plain data; the caller owns it and shares it between its threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ipnet::IpNet;
use midspan_units::{ByteSize, Time, TimeSpan};

use super::assumed_rates::AssumedRates;
use super::comparison::{Comparison, Left};
use super::completion_times::{CompletionTimes, ExactTimes};
use super::dice::Dice;
use super::estimate::{LegEstimate, LegReading};
use super::kept_share::KeptShare;
use super::liveness::{Health, Liveness, Rhythm};
use super::load::{BusyRule, NodeLoad, Overload};
use super::present_route::PresentRoute;
use super::round_trip::RoundTripEstimate;
use super::row::{MOST_ROW_LEGS, Row, RowLeg};
use super::sticky_exits::StickyExits;
use super::timed_legs::TimedLegs;
use super::{NodeName, Route};

/// How often rows are exchanged with a node through which sessions go, and with another one. At ten
/// nodes of which five are used, a node begins 5/2 + 4/10 = 2.9 exchanges a second and answers as many. A
/// request and the ACK of its answer have 202 bytes on the wire, an answer with a row of 9 legs about 470, and one
/// without it 113: 2.9/s · (202 + 470) bytes · 8 = 15.6 kbit/s in each direction while each row has changed,
/// and 7.3 kbit/s while none has.
pub const USED_INTERVAL: TimeSpan = TimeSpan::from_seconds(2);
/// See [`USED_INTERVAL`].
pub const IDLE_INTERVAL: TimeSpan = TimeSpan::from_seconds(10);
/// A node counts as used for this time after a session went through it.
const USED: TimeSpan = TimeSpan::from_seconds(60);
/// The newest row of a node counts for this time.
const ROW_KEPT: TimeSpan = TimeSpan::from_seconds(60);
/// Least time limit of a handshake, and the same in round trips.
const LEAST_CONNECT: TimeSpan = TimeSpan::from_milliseconds(1_500);
const CONNECT_ROUND_TRIPS: u64 = 4;
/// Most legs to other nodes, legs between these, and last legs that are remembered.
const MOST_PEERS: usize = 512;
const MOST_LEGS: usize = 4096;
const MOST_LAST_LEGS: usize = 16_384;

/// A leg between two nodes: from, to.
type Leg = (NodeName, NodeName);

/// The knowledge of a node about its overlay.
#[derive(Debug, Clone)]
pub struct KnownOverlay {
    pub(super) seed: u64,
    pub(super) dice: Dice,
    /// By the names of the legs to them.
    peers: BTreeMap<NodeName, Peer>,
    /// Whether there are legs over uplinks.
    has_uplinks: bool,
    /// Legs between other nodes: round trips that nodes report when a session is opened.
    timed: TimedLegs,
    /// Legs between other nodes over which calls have failed.
    broken: BTreeMap<Leg, Liveness>,
    /// Round trips from an exit, or from this node (`None`), to networks of servers.
    last_legs: BTreeMap<LastLeg, RoundTripEstimate>,
    last_order: VecDeque<LastLeg>,
    pub(super) present: BTreeMap<NodeName, PresentRoute>,
    pub(super) exits: StickyExits,
    pub(super) comparison: Comparison,
    busy: BusyRule,
    overload: NodeLoad,
    load: u16,
    /// Most legs of a row.
    most_row_legs: usize,
    /// Predicts the completion times of routes.
    pub(super) times: Arc<dyn CompletionTimes>,
    /// Rates of legs that are not measured.
    pub(super) assumed: AssumedRates,
}

type LastLeg = (Option<NodeName>, IpNet);

/// What is known of another node.
#[derive(Debug, Clone, Default)]
pub(super) struct Peer {
    /// The leg to it, as this node measures it.
    pub leg: LegEstimate,
    pub liveness: Liveness,
    pub load: NodeLoad,
    pub kept: KeptShare,
    row: Option<(Time, Arc<Row>)>,
    /// When a session last went to it, and since when without a long pause.
    used: Option<(Time, Time)>,
}

/// What is known of a node by all legs to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeState<'a> {
    /// Its newest row, and when it arrived, unless it is too old.
    pub row: Option<(Time, &'a Row)>,
    /// Why it gets no new sessions.
    pub overload: Option<Overload>,
    /// Its smoothed load in 1/1000.
    pub load: u16,
    /// The share of new sessions that it keeps as a transit node.
    pub kept: KeptShare,
    /// When it has last answered.
    pub heard: Option<Time>,
    /// The leg to it, if no leg is over an uplink.
    pub only_leg: Option<&'a Peer>,
}

/// Why a call has failed, if the server is not the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The node that reports it; `None` for this node itself.
    pub node: Option<NodeName>,
    /// That node has no room; otherwise, it does not reach the next node, or refuses the session.
    pub is_busy: bool,
}

impl KnownOverlay {
    /// Nothing is known. The seed decides which sessions explore.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            dice: Dice::new(seed),
            peers: BTreeMap::new(),
            has_uplinks: false,
            timed: TimedLegs::default(),
            broken: BTreeMap::new(),
            last_legs: BTreeMap::new(),
            last_order: VecDeque::new(),
            present: BTreeMap::new(),
            exits: StickyExits::default(),
            comparison: Comparison::default(),
            busy: BusyRule::default(),
            overload: NodeLoad::default(),
            load: 0,
            most_row_legs: MOST_ROW_LEGS,
            times: Arc::new(ExactTimes),
            assumed: AssumedRates::default(),
        }
    }

    /// The same for simulations of hundreds of nodes: rows have up to `most_row_legs` legs, `times` predicts the
    /// completion times (several nodes may share it), and the rates that are assumed for unmeasured legs are computed
    /// every 30 s instead of at each comparison of routes. A proxy does not use this.
    #[must_use]
    pub fn for_large_simulations(
        mut self,
        most_row_legs: usize,
        times: Arc<dyn CompletionTimes>,
    ) -> Self {
        self.most_row_legs = most_row_legs;
        self.times = times;
        self.assumed = AssumedRates::for_large_simulations();
        self
    }

    /// A session was opened by this route, to this network of servers if its address is known. The
    /// handshake with the first node took `handshake`; `times` has how long nodes needed to connect, as
    /// they report it.
    pub fn note_opened(
        &mut self,
        now: Time,
        own: &NodeName,
        (route, site): (&Route, Option<IpNet>),
        handshake: TimeSpan,
        times: &[(NodeName, TimeSpan)],
    ) {
        let time_of = |node: &NodeName| {
            let mut all = times.iter();
            all.find(|(name, _)| name.is_node(node))
                .map(|(_, time)| *time)
        };
        for (place, (from, to)) in route.hops(own).enumerate() {
            if place == 0 {
                if let Some(peer) = self.peer_mut(to) {
                    let rhythm = peer.rhythm(now);
                    peer.leg.round_trip.note(now, handshake);
                    peer.liveness.succeeded(now, rhythm);
                    let since = peer.used.filter(|(at, _)| now.since(*at) < USED);
                    peer.used = Some((now, since.map_or(now, |(_, since)| since)));
                }
                continue;
            }
            let leg = between(from, to);
            self.broken.remove(&leg);
            if let Some(time) = time_of(from) {
                self.timed.note(now, leg, time);
            }
        }
        if let (Some(exit), Some(site)) = (route.nodes().last(), site)
            && let Some(time) = time_of(exit)
        {
            self.note_last_leg(now, Some(exit.node()), site, time);
        }
    }

    /// A session was opened from this node itself, in this time.
    pub fn note_opened_here(&mut self, now: Time, site: IpNet, time: TimeSpan) {
        self.note_last_leg(now, None, site, time);
    }

    /// A call by this route has failed, and the server is not the reason. The routes are compared again
    /// before the next session.
    pub fn note_failed(&mut self, now: Time, own: &NodeName, route: &Route, failure: &CallFailure) {
        for present in self.present.values_mut() {
            present.evaluate_at_once();
        }
        let reporter = failure.node.as_ref().filter(|node| *node != own);
        if failure.is_busy {
            // If this node itself has no room, no other node is busy.
            if let Some(node) = reporter {
                self.note_refused(now, node);
            }
            return;
        }
        let mut hops = route.hops(own);
        let after = reporter.and_then(|node| {
            let mut hops = route.hops(own);
            hops.find(|(from, _)| from.is_node(node))
        });
        // An exit that refuses the session: the leg to it leads nowhere.
        let before = || hops.find(|(_, to)| reporter.is_some_and(|node| to.is_node(node)));
        let leg = after.or_else(before).or_else(|| route.hops(own).next());
        match leg {
            Some((from, to)) if from == own => {
                if let Some(peer) = self.peer_mut(to) {
                    peer.liveness.failed(now);
                }
            }
            Some((from, to)) => {
                let leg = between(from, to);
                if self.broken.len() >= MOST_LEGS && !self.broken.contains_key(&leg) {
                    return;
                }
                let liveness = self.broken.entry(leg).or_default();
                if liveness.last_heard().is_none() {
                    liveness.heard(now, NO_RHYTHM);
                }
                liveness.failed(now);
            }
            None => {}
        }
    }

    /// A node has refused a session because it has no room.
    fn note_refused(&mut self, now: Time, node: &NodeName) {
        if !self.has_uplinks {
            if let Some(peer) = self.peer_mut(node) {
                peer.load.refuse(now);
            }
            return;
        }
        for (_, peer) in self.peers.iter_mut().filter(|(leg, _)| leg.is_node(node)) {
            peer.load.refuse(now);
        }
    }

    /// A connection of the leg to this node was read.
    pub fn note_reading(&mut self, now: Time, to: &NodeName, reading: &LegReading) {
        if let Some(peer) = self.peer_mut(to) {
            peer.leg.note(now, reading);
        }
    }

    /// A node has answered an exchange after this time.
    pub fn note_row(
        &mut self,
        now: Time,
        from: &NodeName,
        round_trip: TimeSpan,
        row: impl Into<Arc<Row>>,
    ) {
        let mut row = row.into();
        Row::in_order(&mut row, self.most_row_legs);
        if let Some(peer) = self.peer_mut(from) {
            let rhythm = peer.rhythm(now);
            peer.leg.round_trip.note(now, round_trip);
            peer.liveness.heard(now, rhythm);
            peer.load.report(row.is_busy, row.is_draining);
            peer.load.note(now, row.load);
            let smoothed = peer.load.smoothed();
            peer.kept.note(now, row.load, smoothed);
            peer.row = Some((now, row));
        }
    }

    /// A node has refused the connection for an exchange. That is a failure if it has answered before: a
    /// node that only sends hops accepts no connections.
    pub fn note_refused_exchange(&mut self, now: Time, node: &NodeName) {
        let Some(peer) = self.peers.get_mut(node).filter(|peer| peer.row.is_some()) else {
            return;
        };
        peer.liveness.failed(now);
        for present in self.present.values_mut() {
            present.evaluate_at_once();
        }
    }

    /// A session with this network of servers has ended in an orderly route.
    pub fn note_ended(
        &mut self,
        now: Time,
        site: IpNet,
        left: Left,
        carried: (ByteSize, TimeSpan),
    ) {
        self.comparison.note(now, site, left, carried);
    }

    /// The load of this node: shares of its memory budget and of the time of its threads, in 1/1000.
    pub fn note_own_load(&mut self, now: Time, (memory, time): (u16, u16), is_draining: bool) {
        let is_busy = self.busy.note(now, memory, time);
        self.overload.report(is_busy, is_draining);
        self.load = memory.max(time).min(1000);
    }

    /// What this node reports to others.
    #[must_use]
    pub fn own_row(&self, now: Time) -> Row {
        let overload = self.overload.get(now);
        let legs = self.peers.iter().filter_map(|(to, peer)| {
            let health = peer.liveness.health(now, peer.rhythm(now));
            let is_up = health < Health::Suspect;
            RowLeg::of(now, to.node(), &peer.leg).filter(|_| is_up)
        });
        let mut best: Vec<RowLeg> = Vec::with_capacity(self.peers.len());
        for leg in legs {
            // The legs to one node over several uplinks are neighbours.
            match best.last_mut().filter(|last| last.to == leg.to) {
                Some(last) if leg.round_trip < last.round_trip => *last = leg,
                Some(_) => {}
                None => best.push(leg),
            }
        }
        best.truncate(self.most_row_legs);
        Row {
            legs: best,
            load: self.load,
            is_busy: overload == Some(Overload::Busy),
            is_draining: overload == Some(Overload::Draining),
        }
    }

    /// The interval of the exchanges with this node at present.
    #[must_use]
    pub fn interval(&self, now: Time, node: &NodeName) -> TimeSpan {
        let used = self.peers.get(node).and_then(|peer| peer.used);
        match used.is_some_and(|(at, _)| now.since(at) < USED) {
            true => USED_INTERVAL,
            false => IDLE_INTERVAL,
        }
    }

    /// How long the handshake with a node may take before another route is tried: time for one SYN that
    /// is lost, which is sent again after 1 s.
    #[must_use]
    pub fn connect_limit(&self, now: Time, node: &NodeName) -> TimeSpan {
        let smoothed = self.round_trip_to(now, node);
        let round_trips = smoothed.unwrap_or(TimeSpan::ZERO) * CONNECT_ROUND_TRIPS;
        LEAST_CONNECT.max(round_trips)
    }

    /// Whether a node can be used.
    #[must_use]
    pub fn health(&self, now: Time, node: &NodeName) -> Health {
        let leg = self.first_leg(now, node, true);
        leg.map_or(Health::Unknown, |(_, health)| health)
    }

    /// The leg to a node, as this node has measured it; `None` if it has not.
    #[must_use]
    pub fn leg_to(&self, node: &NodeName) -> Option<&LegEstimate> {
        self.peers.get(node).map(|peer| &peer.leg)
    }

    /// The smoothed round trip of the leg to a node, as this node has measured it.
    #[must_use]
    pub fn round_trip_to(&self, now: Time, node: &NodeName) -> Option<TimeSpan> {
        self.peers.get(node)?.leg.round_trip.smoothed(now)
    }

    /// When a node has last answered.
    #[must_use]
    pub fn last_heard(&self, node: &NodeName) -> Option<Time> {
        self.peers.get(node)?.liveness.last_heard()
    }

    /// Why a node gets no new sessions.
    #[must_use]
    pub fn overload(&self, now: Time, node: &NodeName) -> Option<Overload> {
        self.legs_of(node).find_map(|peer| peer.load.get(now))
    }

    /// What is known of a node by all legs to it.
    pub(super) fn node_state(&self, now: Time, node: &NodeName) -> NodeState<'_> {
        let mut state = NodeState::default();
        for peer in self.legs_of(node) {
            state.only_leg = (!self.has_uplinks).then_some(peer);
            let row = peer.row.as_ref().map(|(at, row)| (*at, row.as_ref()));
            let newer = |(at, _): &(Time, &Row)| state.row.is_none_or(|(other, _)| *at >= other);
            state.row = row.filter(newer).or(state.row);
            state.overload = state.overload.or_else(|| peer.load.get(now));
            state.load = state.load.max(peer.load.smoothed());
            if peer.kept.cmp_share(&state.kept).is_lt() {
                state.kept = peer.kept;
            }
            state.heard = state.heard.max(peer.liveness.last_heard());
        }
        state.row = state.row.filter(|(at, _)| now.since(*at) < ROW_KEPT);
        state
    }

    /// The leg to a node as the first one of a route, and whether the node can be used; `None` if nothing has come
    /// from it.
    pub(super) fn first_leg(
        &self,
        now: Time,
        node: &NodeName,
        is_straight: bool,
    ) -> Option<(Option<TimeSpan>, Health)> {
        Some(self.peers.get(node)?.first_leg(now, is_straight))
    }

    /// The newest row of a node, and when it arrived, unless it is too old.
    #[must_use]
    pub fn row(&self, now: Time, node: &NodeName) -> Option<(Time, &Row)> {
        self.node_state(now, node).row
    }

    /// The present route to an exit, and how often it has changed.
    #[must_use]
    pub fn present(&self, exit: &NodeName) -> Option<&PresentRoute> {
        self.present.get(exit)
    }

    /// The round trip of a leg between two other nodes, from the times that nodes report.
    pub(super) const fn timed(&self) -> &TimedLegs {
        &self.timed
    }

    /// Whether calls over any leg between two other nodes have failed.
    pub(super) fn has_broken_legs(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Whether calls over a leg between two other nodes have failed recently.
    pub(super) fn is_broken(&self, now: Time, from: &NodeName, to: &NodeName) -> bool {
        let liveness = self.broken.get(&between(from, to));
        liveness.is_some_and(|it| it.health(now, NO_RHYTHM) >= Health::Suspect)
    }

    /// The round trip from an exit, or from this node, to a network of servers.
    pub(super) fn last_leg(
        &self,
        now: Time,
        exit: Option<&NodeName>,
        site: IpNet,
    ) -> Option<TimeSpan> {
        self.last_legs.get(&(exit.cloned(), site))?.get(now)
    }

    /// What is known of a node by all legs to it.
    fn legs_of(&self, node: &NodeName) -> impl Iterator<Item = &Peer> {
        let exact = self.peers.get(node).filter(|_| !self.has_uplinks);
        let all = self.has_uplinks.then(|| self.peers.iter());
        let of_node = all.into_iter().flatten();
        let of_node = of_node.filter(move |(leg, _)| leg.is_node(node));
        exact.into_iter().chain(of_node.map(|(_, peer)| peer))
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = (&NodeName, &Peer)> {
        self.peers.iter()
    }

    fn note_last_leg(&mut self, now: Time, exit: Option<NodeName>, site: IpNet, time: TimeSpan) {
        let leg = (exit, site);
        if !self.last_legs.contains_key(&leg) {
            while self.last_order.len() >= MOST_LAST_LEGS {
                if let Some(oldest) = self.last_order.pop_front() {
                    self.last_legs.remove(&oldest);
                }
            }
            self.last_order.push_back(leg.clone());
        }
        self.last_legs.entry(leg).or_default().note(now, time);
    }

    fn peer_mut(&mut self, node: &NodeName) -> Option<&mut Peer> {
        self.has_uplinks |= node.uplink().is_some();
        match self.peers.len() < MOST_PEERS {
            true => Some(self.peers.entry(node.clone()).or_default()),
            false => self.peers.get_mut(node),
        }
    }
}

impl Peer {
    /// The present round trip of the leg to the node, with a margin for its noise unless it is a straight route, and whether the
    /// node can be used.
    pub(super) fn first_leg(&self, now: Time, is_straight: bool) -> (Option<TimeSpan>, Health) {
        let health = self.liveness.health(now, self.rhythm(now));
        let round_trip = match is_straight {
            true => self.leg.round_trip.get(now),
            false => self.leg.round_trip.careful(now),
        };
        (round_trip, health)
    }

    fn rhythm(&self, now: Time) -> Rhythm {
        // A node that was not used until now answers at the long interval once more.
        let is_used = self.used.is_some_and(|(at, since)| {
            now.since(at) < USED && now.since(since) >= IDLE_INTERVAL + USED_INTERVAL
        });
        Rhythm {
            // Without a row, it is no Midspan that exchanges rows.
            interval: self.row.as_ref().map(|_| match is_used {
                true => USED_INTERVAL,
                false => IDLE_INTERVAL,
            }),
            round_trip: self.leg.round_trip.smoothed(now).unwrap_or(TimeSpan::ZERO),
        }
    }
}

/// The leg between two nodes, over whichever uplink.
fn between(from: &NodeName, to: &NodeName) -> Leg {
    (from.node(), to.node())
}

/// A leg between two other nodes: its silence means nothing.
const NO_RHYTHM: Rhythm = Rhythm {
    interval: None,
    round_trip: TimeSpan::ZERO,
};
