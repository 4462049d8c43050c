//! Events in virtual time: sessions, exchanges between nodes, and the load of transit nodes.

mod measuring;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use midspan_policy::overlay::{
    CallFailure, CompletionTimes, NodeName, Route, RouteDecision, Wanted, WantedHost,
};
use midspan_policy::prefix::site_prefix;
use midspan_units::{ByteSize, Time, TimeSpan};

use crate::fixed_routes::FixedRoutes;
use crate::leg_times::LegTimes;
use crate::load::NodeShare;
use crate::measures::{Changes, Results, WINDOW};
use crate::member::{Member, address, names};
use crate::network::{Network, Role};
use crate::perfect_knowledge::{apart, best};
use crate::random::Random;
use crate::session::{Running, Session, Sessions};
use crate::settings::Settings;
use crate::traffic::Traffic;
use crate::truth::{Truth, span};

/// Exchanges begin this long before the first session, in seconds: no node is on probation any more.
const BEFORE: f64 = 60.0;
/// How long a transit node waits for the next node, in seconds.
const TRANSIT_LIMIT: f64 = 4.5;
/// The round trip between an exit and its servers in seconds.
const LAST_LEG: f64 = 0.002;
/// The sizes that are compared.
const COMPARED: [ByteSize; 2] = [
    ByteSize::from_bytes(100_000),
    ByteSize::from_bytes(1_000_000),
];
/// The choice without memory is observed at one pair of this number.
const OBSERVED: usize = 8;
const SERVER_PORT: u16 = 443;

/// An event; the numbers are places in the simulation's lists. They are short, because many events wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next session begins.
    Arrival,
    /// A session tries a route.
    Try(u32),
    /// A session may have ended.
    End(u32),
    /// An exchange is due.
    Exchange(u32),
    /// Loads are measured.
    Tick,
    /// Nodes fail.
    Failure,
}

/// An overlay in virtual time.
#[derive(Debug)]
pub struct Simulation {
    settings: Settings,
    truth: Truth,
    traffic: Traffic,
    members: Vec<Member>,
    transit: Vec<usize>,
    shares: Vec<NodeShare>,
    /// Who exchanges rows with whom.
    exchanges: Vec<(usize, usize)>,
    sessions: Sessions,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Events so far: of those at the same time, the first one comes first.
    count: u64,
    random: Random,
    losses: Random,
    results: Results,
    fixed: FixedRoutes,
    /// Of observed pairs: the best route at the newest decision, and how often another one was best.
    memoryless: Vec<(Option<Route>, u64)>,
    window: VecDeque<(f64, Vec<f64>)>,
    failed_at: Option<f64>,
}

impl Simulation {
    /// These sessions in this network.
    #[must_use]
    pub fn new(network: Network, settings: Settings) -> Self {
        let traffic = Traffic::new(&network, &settings);
        let transit: Vec<usize> = network.nodes(Role::Transit).collect();
        let names = names(&network);
        let times: Arc<dyn CompletionTimes> = Arc::new(LegTimes::new(settings.transfer));
        let count = network.len();
        let seeds = (0_u64..).map(|node| settings.seed.wrapping_mul(1_000).wrapping_add(node));
        let mut members: Vec<Member> = names
            .iter()
            .zip(seeds)
            .map(|(name, seed)| Member::new(name.clone(), seed, count, &times))
            .collect();
        let mut exchanges = Vec::new();
        for node in 0..count {
            exchanges.extend(
                transit
                    .iter()
                    .filter(|to| **to != node)
                    .map(|to| (node, *to)),
            );
        }
        for of_ingress in traffic
            .pairs()
            .chunk_by(|one, next| one.ingress == next.ingress)
        {
            let exits: Vec<usize> = of_ingress.iter().map(|pair| pair.exit).collect();
            let Some(ingress) = of_ingress.first().map(|pair| pair.ingress) else {
                continue;
            };
            if let Some(member) = members.get_mut(ingress) {
                let named = (names.as_slice(), settings.transfer);
                member.choose(ingress, &transit, &exits, named);
            }
            exchanges.extend(exits.iter().map(|exit| (ingress, *exit)));
        }
        let shares = (0..count).map(|node| NodeShare::new(network.capacity(node)));
        let fixed = FixedRoutes::new(
            &transit,
            &COMPARED,
            settings.duration,
            (traffic.pairs().len(), settings.seed),
        );
        let mut simulation = Self {
            fixed,
            shares: shares.collect(),
            memoryless: vec![(None, 0); traffic.pairs().len()],
            truth: Truth::new(network),
            random: Random::new(settings.seed, "sessions"),
            losses: Random::new(settings.seed, "losses"),
            traffic,
            members,
            transit,
            exchanges,
            sessions: Sessions::default(),
            events: BinaryHeap::new(),
            count: 0,
            results: Results::default(),
            window: VecDeque::new(),
            failed_at: None,
            settings,
        };
        simulation.begin();
        simulation
    }

    /// Runs to the end. `progress` is called once for each second of virtual time, with this second.
    pub fn run(mut self, mut progress: impl FnMut(u64)) -> Results {
        let mut seconds = 0;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            let second = now.nanoseconds() / 1_000_000_000;
            if second > seconds {
                seconds = second;
                progress(seconds);
            }
            self.handle(now, event);
        }
        self.finish()
    }

    fn begin(&mut self) {
        let mut random = Random::new(self.settings.seed, "exchanges");
        for exchange in (0..).take(self.exchanges.len()) {
            self.add(10.0 * random.uniform(), Event::Exchange(exchange));
        }
        self.add(BEFORE, Event::Arrival);
        self.add(1.0, Event::Tick);
        if let Some(failure) = self.settings.failure {
            self.add(BEFORE + failure.after.as_seconds(), Event::Failure);
        }
    }

    fn add(&mut self, at: f64, event: Event) {
        self.count += 1;
        let time = Time::ZERO + span(at);
        self.events.push(Reverse((time, self.count, event)));
    }

    /// When the last session begins, in seconds.
    fn end(&self) -> f64 {
        BEFORE + self.settings.duration.as_seconds()
    }

    fn handle(&mut self, now: Time, event: Event) {
        let at = now.since(Time::ZERO).as_seconds();
        match event {
            Event::Arrival => self.arrive(at),
            Event::Try(session) => self.attempt(now, at, session),
            Event::End(session) => self.end_if_complete(now, at, session),
            Event::Exchange(exchange) => self.exchange(now, at, exchange),
            Event::Tick => self.tick(now, at),
            Event::Failure => self.fail(at),
        }
    }

    fn arrive(&mut self, at: f64) {
        if at >= self.end() {
            return;
        }
        let pair = self.traffic.draw(&mut self.random);
        let mean = self.settings.size.bytes() as f64;
        // At most 40 times the mean.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let size = self.random.exponential(mean).max(1_000.0) as u64;
        let is_compared = self
            .results
            .sessions
            .is_multiple_of(self.settings.sampled.max(1));
        self.results.sessions += 1;
        let ends = self
            .traffic
            .pairs()
            .get(pair)
            .map(|pair| (pair.ingress, pair.exit));
        let compared = ends
            .filter(|_| is_compared)
            .map(|ends| COMPARED.map(|size| best(&self.truth, at, ends, &self.transit, size)));
        let session = self.sessions.add(Session {
            pair,
            size: ByteSize::from_bytes(size),
            began: at,
            tried: Vec::new(),
            best: compared,
            running: None,
        });
        self.add(at, Event::Try(session));
        let rises = self.settings.rises.as_seconds();
        let share = ((at - BEFORE) / rises.max(1e-9)).clamp(0.02, 1.0);
        let gap = 1.0 / (self.settings.rate * share).max(1e-6);
        let gap = self.random.exponential(gap);
        self.add(at + gap, Event::Arrival);
    }

    /// The ingress chooses a route, and calls it.
    fn attempt(&mut self, now: Time, at: f64, place: u32) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        let Some(pair) = self.traffic.pairs().get(session.pair).copied() else {
            return;
        };
        let Some(member) = self.members.get_mut(pair.ingress) else {
            return;
        };
        let Some(choice) = &member.choice else {
            return;
        };
        let server = address(pair.exit, 10);
        let wanted = Wanted {
            client: address(pair.ingress, 10),
            host: WantedHost::Address(server),
            port: SERVER_PORT,
            tried: &session.tried,
        };
        let decision = choice.decide(now, &wanted, &mut member.known).decision;
        if session.pair.is_multiple_of(OBSERVED)
            && let Some(observed) = self.memoryless.get_mut(session.pair)
            && let Some(name) = decision_exit(&decision)
        {
            observe(observed, member, name);
        }
        let RouteDecision::Through(route) = decision else {
            self.give_up(place);
            return;
        };
        let stops: Vec<usize> = std::iter::once(pair.ingress)
            .chain(route.nodes().iter().filter_map(number))
            .collect();
        let broken = stops.windows(2).position(|hop| match hop {
            [from, to] => self.truth.leg(at, *from, *to).is_none(),
            _ => true,
        });
        match broken {
            Some(hop) => self.note_failure(now, at, place, (route, &stops, hop)),
            None => self.open(now, at, place, (&route, stops)),
        }
    }

    /// A hop of the route does not work: the ingress notices it after a while, and tries another route.
    fn note_failure(
        &mut self,
        now: Time,
        at: f64,
        place: u32,
        (route, stops, hop): (Route, &[usize], usize),
    ) {
        let reporter = (hop > 0).then(|| stops.get(hop)).flatten();
        let reporter = reporter.and_then(|node| self.members.get(*node));
        let node = reporter.map(|member| member.name.clone());
        let Some(member) = stops.first().and_then(|own| self.members.get_mut(*own)) else {
            return;
        };
        let wait = match (hop, route.nodes().first()) {
            (0, Some(first)) => member.known.connect_limit(now, first).as_seconds(),
            _ => TRANSIT_LIMIT,
        };
        let own = member.name.clone();
        let failure = CallFailure {
            node,
            is_busy: false,
        };
        let later = now + span(wait);
        member.known.note_failed(later, &own, &route, &failure);
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        session.tried.push(route);
        let (began, tries) = (session.began, session.tried.len());
        let is_after = self.is_after_failure(began);
        match tries {
            1 => {
                self.results.retried += 1;
                self.results.after_failure.retried += u64::from(is_after);
            }
            2 => self.results.after_failure.retried_again += u64::from(is_after),
            _ => {}
        }
        self.add(at + wait, Event::Try(place));
    }

    fn is_after_failure(&self, began: f64) -> bool {
        self.failed_at.is_some_and(|at| began >= at + 5.0)
    }

    /// No route is left.
    fn give_up(&mut self, place: u32) {
        self.results.failed += 1;
        if let Some(session) = self.sessions.remove(place)
            && self.is_after_failure(session.began)
        {
            self.results.after_failure.failed += 1;
            self.results.after_failure.sessions += 1;
        }
    }

    /// The route works: the session begins on it.
    fn open(&mut self, now: Time, at: f64, place: u32, (route, stops): (&Route, Vec<usize>)) {
        let Some(legs) = self.truth.legs(at, &stops) else {
            return;
        };
        let hop = |place: usize| Some(legs.iter().rev().nth(place)?.round_trip);
        let times: Vec<(NodeName, TimeSpan)> = route
            .nodes()
            .iter()
            .enumerate()
            .map(|(place, name)| (name.clone(), hop(place + 1).unwrap_or(span(LAST_LEG))))
            .collect();
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        let Some(pair) = self.traffic.pairs().get(session.pair) else {
            return;
        };
        if let Some(member) = self.members.get_mut(pair.ingress) {
            let own = member.name.clone();
            let site = site_prefix(address(pair.exit, 10));
            let handshake = hop(0).unwrap_or_default();
            let opened = (route, Some(site));
            member
                .known
                .note_opened(now, &own, opened, handshake, &times);
        }
        let needs = apart(&legs, session.size);
        let needs = needs.map_or(60.0, TimeSpan::as_seconds);
        let running = Running {
            legs,
            since: at,
            needs,
            clocks: Vec::new(),
            stops,
        };
        self.compare(at, place, &running);
        self.begin_on(at, place, running);
    }

    /// Compares the chosen route with the straight one, with fixed ones, and with perfect knowledge.
    fn compare(&mut self, at: f64, place: u32, running: &Running) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        if let (Some(ingress), Some(exit)) = (running.stops.first(), running.stops.last()) {
            let compared = (session.pair, (*ingress, *exit));
            self.fixed.note(&self.truth, at, compared, |size| {
                let time = apart(&running.legs, size)?;
                Some(time.as_seconds() + at - session.began)
            });
        }
        let Some(all) = session.best else {
            return;
        };
        for ((gain, best), size) in self.results.gain.iter_mut().zip(all).zip(COMPARED) {
            let time = apart(&running.legs, size);
            if let (Some(time), true) = (time, best.direct.is_finite()) {
                gain.sessions += 1;
                gain.direct += best.direct;
                gain.chosen += time.as_seconds() + at - session.began;
                gain.over_one += best.over_one;
                gain.best += best.over_two;
            }
        }
    }

    fn begin_on(&mut self, at: f64, place: u32, mut running: Running) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        let demand = session.size.bytes() as f64 * 8.0 / running.needs.max(1e-3);
        let mut clocks = Vec::new();
        for node in running.transit() {
            if let Some(share) = self.shares.get_mut(*node) {
                share.advance(at);
                share.add(demand);
                clocks.push(share.clock());
            }
        }
        self.results.over_transit += u64::from(!clocks.is_empty());
        running.clocks = clocks;
        for hop in running.stops.windows(2) {
            if let [near, far] = hop {
                self.truth.count(*far, *near, 1);
            }
        }
        let ends = at + running.needs;
        let began = session.began;
        let mixed = self.results.fingerprint.rotate_left(5) ^ ends.to_bits();
        let length = running.stops.len() as u64;
        self.results.fingerprint = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ length;
        session.running = Some(running);
        let is_after = self.is_after_failure(began);
        self.results.after_failure.sessions += u64::from(is_after);
        self.add(ends, Event::End(place));
    }

    fn fail(&mut self, at: f64) {
        let Some(failure) = self.settings.failure else {
            return;
        };
        let mut random = Random::new(self.settings.seed, "failure");
        let mut left = self.transit.clone();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most all nodes.
        let count = libm::ceil(left.len() as f64 * failure.share.clamp(0.0, 1.0)) as usize;
        for _ in 0..count.min(left.len()) {
            let node = left.swap_remove(random.below(left.len()));
            self.truth.fail(node);
        }
        self.results.after_failure.nodes = count;
        self.failed_at = Some(at);
    }

    fn finish(mut self) -> Results {
        let hours = self.settings.duration.as_seconds() / 3600.0;
        let names: Vec<NodeName> = self
            .members
            .iter()
            .map(|member| member.name.clone())
            .collect();
        let changes = self.traffic.pairs().iter().filter_map(|pair| {
            let known = &self.members.get(pair.ingress)?.known;
            Some(known.present(names.get(pair.exit)?)?.changes())
        });
        let (mut voluntary, mut forced) = (Vec::new(), Vec::new());
        for of_pair in changes {
            voluntary.push(of_pair.voluntary);
            forced.push(of_pair.forced);
        }
        voluntary.sort_unstable();
        let observed = self.memoryless.iter().filter(|(route, _)| route.is_some());
        let observed: Vec<u64> = observed.map(|(_, changes)| *changes).collect();
        let mean = |all: &[u64]| {
            all.iter().sum::<u64>() as f64 / hours.max(1e-9) / all.len().max(1) as f64
        };
        self.results.changes = Changes {
            pairs: voluntary.len() as u64,
            mean: mean(&voluntary),
            most_of_99: voluntary
                .get(voluntary.len() * 99 / 100)
                .copied()
                .unwrap_or(0),
            most: voluntary.last().copied().unwrap_or(0),
            forced: mean(&forced),
            memoryless: mean(&observed),
        };
        self.results.fixed = self.fixed.gain();
        self.results
    }
}

/// The exit of a route.
fn decision_exit(decision: &RouteDecision) -> Option<&NodeName> {
    match decision {
        RouteDecision::Through(route) => route.nodes().last(),
        _ => None,
    }
}

/// The number in a node's name.
fn number(name: &NodeName) -> Option<usize> {
    name.as_str().get(1..)?.parse().ok()
}

/// Notes which route has the shortest prediction.
fn observe((route, changes): &mut (Option<Route>, u64), member: &Member, exit: &NodeName) {
    let Some(present) = member.known.present(exit) else {
        return;
    };
    let ranked = present.candidates().iter();
    let ranked = ranked.filter_map(|candidate| Some((candidate.rank()?, &candidate.route)));
    let Some((_, best)) = ranked.min_by_key(|(time, _)| *time) else {
        return;
    };
    match route {
        Some(before) if before != best => {
            *changes += 1;
            *route = Some(best.clone());
        }
        Some(_) => {}
        None => *route = Some(best.clone()),
    }
}
