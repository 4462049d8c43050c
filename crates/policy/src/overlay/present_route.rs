//! The present route to one exit, and when it changes.
//!
//! One route is used for all new sessions to an exit, until another one is clearly better than the
//! present one is *now*: a comparison with its earlier prediction would keep a bad route without end. Running sessions are not moved.
//!
//! How soon a change comes, for sessions that begin at least every 0.2 s: a leg that gets slower is seen
//! to be slower after at most 8.4 s ([`RoundTripEstimate`](super::RoundTripEstimate): two spans of 4 s and
//! two gaps), on a leg between other nodes 2 s later (rows), and two evaluations, 1 s apart, have to
//! agree: 8.4 + 2 + 2 = 12.4 s. So 15 s after the beginning of a brownout, new sessions go elsewhere.
//!
//! How often it changes back: a route that was left for a better one is not taken again for 5 minutes
//! unless the present one takes twice as long, and there is at most one such return in 10 minutes,
//! unless the present route cannot be used at all. The route that is left by a return was not bad, so it may
//! be taken again at once. Of the changes to a better route in an hour, the first one may come at any time, and the next ones 10,
//! 80 and 640 s after the one before. A fifth one does not come in the hour. Then a route is left only if it takes four times as
//! long as the best one, 640 s after the change before at the earliest, or if it cannot be used. Each change of an hour
//! needs a greater gain than the one before: otherwise, where round trips change all the time, small gains that last a minute would
//! use up the changes, and a route that becomes very bad could not be left.

use std::collections::{BTreeMap, VecDeque};

use midspan_units::{Time, TimeSpan};

use super::{Candidate, Route};

/// How often the routes to an exit are compared, while sessions use it.
pub const EVALUATION: TimeSpan = TimeSpan::from_seconds(1);
/// This many evaluations in a row have to find a better route.
const STREAK: u8 = 2;
/// A clearly better route takes at most this share of the time of the present one, in %, by the number of voluntary changes of the
/// last hour, and at least 10 ms less.
const SHARES: [u64; 4] = [85, 75, 50, UNBEARABLE];
/// The same after the voluntary changes of an hour.
const UNBEARABLE: u64 = 25;
const LESS: TimeSpan = TimeSpan::from_milliseconds(10);
/// A route within 10 % of the present one is as good.
const NEAR: u64 = 110;
/// See the module's text.
const RECENT: TimeSpan = TimeSpan::from_seconds(600);
const AWAY: TimeSpan = TimeSpan::from_seconds(300);
const HOUR: TimeSpan = TimeSpan::from_seconds(3600);
/// How long after the change before each voluntary change of an hour may happen.
const DWELLS: [TimeSpan; 4] = [
    TimeSpan::ZERO,
    TimeSpan::from_seconds(10),
    TimeSpan::from_seconds(80),
    LONGEST_DWELL,
];
const LONGEST_DWELL: TimeSpan = TimeSpan::from_seconds(640);
/// In place of the prediction of a route without a rank. No prediction is as long.
const UNRANKED: TimeSpan = TimeSpan::from_nanoseconds(u64::MAX);
/// Most routes that are remembered as left.
const MOST_LEFT: usize = 64;

/// The present route to one exit.
#[derive(Debug, Clone, Default)]
pub struct PresentRoute {
    route: Option<Route>,
    /// How many evaluations in a row have found a better route.
    streak: u8,
    evaluated: Option<Time>,
    /// The voluntary changes of the last hour, the oldest first.
    voluntary: VecDeque<Time>,
    /// The newest change of any kind.
    changed: Option<Time>,
    /// The newest change to a route that had been left.
    returned: Option<Time>,
    /// When each route was left.
    left: BTreeMap<Route, Time>,
    /// The routes as they were at the newest evaluation.
    candidates: Vec<Candidate>,
    /// The places of the candidates: the shortest prediction first, then those without a rank in the order of the search.
    order: Vec<usize>,
    /// The places of those that are as good as the present one.
    near: Vec<usize>,
    /// Changes since the start.
    changes: Changes,
}

/// How often a route has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// To a better route; at most four in any hour.
    pub voluntary: u64,
    /// Because the route before could not be used.
    pub forced: u64,
}

/// Why a route changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Voluntary,
    Forced,
}

impl Changes {
    /// All of them.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.voluntary + self.forced
    }
}

impl PresentRoute {
    /// The present route.
    #[must_use]
    pub const fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// The routes at the newest evaluation.
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The same, the shortest prediction first, then those without a rank.
    pub fn in_order(&self) -> impl Iterator<Item = &Candidate> {
        let places = self.order.iter();
        places.filter_map(|place| self.candidates.get(*place))
    }

    /// Routes that are as good as the present one.
    pub fn near(&self) -> impl ExactSizeIterator<Item = Option<&Candidate>> {
        let places = self.near.iter();
        places.map(|place| self.candidates.get(*place))
    }

    /// Changes of the route since the start.
    #[must_use]
    pub const fn changes(&self) -> Changes {
        self.changes
    }

    /// Whether the routes are to be compared.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        let is_old = |evaluated: Time| now.since(evaluated) >= EVALUATION;
        self.evaluated.is_none_or(is_old)
    }

    /// A call has failed: the routes are compared before the next session.
    pub const fn evaluate_at_once(&mut self) {
        self.evaluated = None;
    }

    /// Compares the routes to the exit.
    pub fn evaluate(&mut self, now: Time, candidates: Vec<Candidate>) {
        self.evaluated = Some(now);
        let is_old = |at: &Time| now.since(*at) >= HOUR;
        while self.voluntary.front().is_some_and(is_old) {
            self.voluntary.pop_front();
        }
        self.left.retain(|_, at| now.since(*at) < RECENT);
        let ranks = candidates.iter().enumerate();
        let ranks = ranks.map(|(place, it)| (it.rank().unwrap_or(UNRANKED), place));
        let mut order: Vec<(TimeSpan, usize)> = ranks.collect();
        order.sort_unstable();
        let ranked = order.iter().take_while(|(time, _)| *time < UNRANKED);
        let ranked =
            ranked.filter_map(|(time, place)| Some((&candidates.get(*place)?.route, *time)));
        let mut by_rank: Vec<(&Route, TimeSpan)> = Vec::with_capacity(candidates.len());
        by_rank.extend(ranked);
        let ranked = by_rank;
        let is_present = |route: &Route| self.route.as_ref() == Some(route);
        let present = ranked.iter().find(|(route, _)| is_present(route)).copied();
        match (present, ranked.first()) {
            (None, Some((best, _))) => self.change(now, best, Kind::Forced),
            (None, None) => self.streak = 0,
            (Some((_, time)), _) => {
                let better = ranked.iter().find(|(route, other)| {
                    self.is_clearly_better(*other, time)
                        && self.may_return(now, route, *other, time)
                });
                self.streak = match better {
                    Some(_) => self.streak.saturating_add(1),
                    None => 0,
                };
                if let Some((better, _)) = better
                    && self.streak >= STREAK
                    && let Some(kind) = self.may_change(now)
                {
                    self.change(now, better, kind);
                }
            }
        }
        let present = self.route.as_ref();
        let time = ranked.iter().find(|(route, _)| Some(*route) == present);
        let most = time.map(|(_, time)| *time * NEAR);
        let is_near = |(_, (route, _)): &(&(TimeSpan, usize), &(&Route, TimeSpan))| {
            Some(*route) != present && !self.left.contains_key(*route)
        };
        let near = order.iter().zip(&ranked);
        let near = near
            .take_while(|((time, _), _)| most.is_some_and(|most| *time * 100 <= most))
            .filter(is_near);
        self.near = near.map(|((_, place), _)| *place).collect();
        self.order.clear();
        self.order.extend(order.iter().map(|(_, place)| *place));
        self.candidates = candidates;
    }

    fn may_return(&self, now: Time, to: &Route, its: TimeSpan, present: TimeSpan) -> bool {
        let Some(left) = self.left.get(to) else {
            return true;
        };
        let has_returned = self.returned.is_some_and(|at| now.since(at) < RECENT);
        !has_returned && (now.since(*left) >= AWAY || its * 2 <= present)
    }

    /// Whether a better route may be taken now.
    fn may_change(&self, now: Time) -> Option<Kind> {
        let is_over = |last: Option<Time>, dwell| last.is_none_or(|last| now.since(last) >= dwell);
        match DWELLS.get(self.voluntary.len()) {
            Some(dwell) => {
                let last = self.voluntary.back().copied();
                is_over(last, *dwell).then_some(Kind::Voluntary)
            }
            None => {
                let is_long_ago = is_over(self.changed, LONGEST_DWELL);
                is_long_ago.then_some(Kind::Forced)
            }
        }
    }

    fn is_clearly_better(&self, time: TimeSpan, present: TimeSpan) -> bool {
        let share = SHARES.get(self.voluntary.len()).unwrap_or(&UNBEARABLE);
        time * 100 <= present * *share && present - time >= LESS
    }

    fn change(&mut self, now: Time, to: &Route, kind: Kind) {
        self.streak = 0;
        let is_return = self.left.remove(to).is_some();
        if is_return {
            self.returned = Some(now);
        }
        // The first route is no change.
        if let Some(before) = self.route.replace(to.clone()) {
            self.changed = Some(now);
            match kind {
                Kind::Voluntary => {
                    self.changes.voluntary += 1;
                    self.voluntary.push_back(now);
                }
                Kind::Forced => self.changes.forced += 1,
            }
            if !is_return && self.left.len() < MOST_LEFT {
                self.left.insert(before, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::{Health, Obstacle};
    use midspan_units::Probability;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + TimeSpan::from_seconds(seconds)
    }

    fn route(node: &str) -> Route {
        Route::new(vec![node.parse().unwrap()]).unwrap()
    }

    /// Routes with these times in milliseconds; 0: down.
    fn candidates(times: &[u64]) -> Vec<Candidate> {
        let candidate = |(place, time): (usize, &u64)| {
            let node = format!("n{place}");
            Candidate {
                route: route(&node),
                prediction: Some(TimeSpan::from_milliseconds(*time)),
                obstacle: (*time == 0)
                    .then(|| Obstacle::Unwell(node.parse().unwrap(), Health::Suspect))
                    .map(Box::new),
                load: 0,
                kept: Probability::ONE,
                transit_heard: None,
            }
        };
        times.iter().enumerate().map(candidate).collect()
    }

    /// Evaluates each second of this time; returns when the route changed.
    fn run(present: &mut PresentRoute, seconds: std::ops::Range<u64>, times: &[u64]) -> Vec<u64> {
        let candidates = candidates(times);
        let mut changed = Vec::new();
        for second in seconds {
            let before = present.route().cloned();
            present.evaluate(at(second), candidates.clone());
            if before.is_some() && before.as_ref() != present.route() {
                changed.push(second);
            }
        }
        changed
    }

    #[test]
    fn a_better_route_is_taken_after_two_evaluations_and_an_as_good_one_never() {
        let mut present = PresentRoute::default();
        assert_eq!(run(&mut present, 0..10, &[300, 310]), []);
        assert_eq!(present.route(), Some(&route("n0")));
        let near: Vec<_> = present.near().map(|it| &it.unwrap().route).collect();
        assert_eq!(near, [&route("n1")]);
        assert_eq!(run(&mut present, 10..700, &[300, 256]), []);
        assert_eq!(run(&mut present, 700..800, &[300, 255]), [701]);
        // Less than 10 ms better: never.
        let mut short = PresentRoute::default();
        run(&mut short, 0..1, &[20, 30]);
        assert_eq!(run(&mut short, 1..900, &[20, 11]), []);
        assert_eq!(run(&mut short, 900..910, &[20, 10]), [901]);
    }

    #[test]
    fn one_bad_second_changes_nothing() {
        let mut present = PresentRoute::default();
        for second in (0..600).step_by(2) {
            assert_eq!(run(&mut present, second..second + 1, &[300, 310]), []);
            assert_eq!(run(&mut present, second + 1..second + 2, &[900, 310]), []);
        }
    }

    #[test]
    fn a_route_that_cannot_be_used_is_left_at_once() {
        let mut present = PresentRoute::default();
        run(&mut present, 0..5, &[300, 900, 500]);
        assert_eq!(run(&mut present, 5..6, &[0, 900, 500]), [5]);
        assert_eq!(present.route(), Some(&route("n2")));
        assert_eq!(run(&mut present, 6..7, &[0, 900, 0]), [6]);
        assert_eq!(run(&mut present, 7..8, &[0, 0, 0]), []);
        let changes = Changes {
            voluntary: 0,
            forced: 2,
        };
        assert_eq!(present.changes(), changes);
    }

    #[test]
    fn a_brownout_leads_to_one_change_and_later_to_one_back() {
        let mut present = PresentRoute::default();
        run(&mut present, 0..20, &[300, 400]);
        assert_eq!(run(&mut present, 20..50, &[900, 400]), [21]);
        // The brownout is over. The route back is open after five minutes.
        assert_eq!(run(&mut present, 50..600, &[300, 400]), [322]);
        // And again: away at once, because the change before is 80 s old, and back not within ten minutes.
        assert_eq!(run(&mut present, 600..660, &[900, 400]), [601]);
        // The fourth voluntary change needs 640 s.
        assert_eq!(run(&mut present, 660..2_000, &[200, 900]), [1_241]);
        // A fifth one within an hour after the first one does not happen, and a third part of the time is enough for the third
        // one of an hour only.
        assert_eq!(run(&mut present, 2_000..4_000, &[900, 300]), [3_923]);
        let changes = Changes {
            voluntary: 5,
            forced: 0,
        };
        assert_eq!(present.changes(), changes);
    }

    #[test]
    fn each_change_of_an_hour_needs_a_greater_gain() {
        let mut present = PresentRoute::default();
        run(&mut present, 0..20, &[1_000, 1_000]);
        for (seconds, too_little, enough) in [
            (20, [1_000, 860], [1_000, 850]),
            (1_000, [760, 1_000], [750, 1_000]),
            (2_000, [1_000, 510], [1_000, 500]),
            (3_000, [260, 1_000], [250, 1_000]),
        ] {
            assert_eq!(run(&mut present, seconds..seconds + 500, &too_little), []);
            let changed = seconds + 501;
            assert_eq!(
                run(&mut present, seconds + 500..changed + 20, &enough),
                [changed]
            );
        }
    }

    #[test]
    fn after_four_changes_only_an_unbearable_route_is_left() {
        let mut present = PresentRoute::default();
        run(&mut present, 0..20, &[300, 400]);
        for (seconds, times, changed) in [
            (20..50, [900, 400], 21),
            (50..600, [300, 400], 322),
            (600..660, [900, 400], 601),
            (660..2_000, [200, 900], 1_241),
            // Four times as long as the best one: at once, and then after 640 s.
            (2_000..2_100, [1_300, 300], 2_001),
            (2_100..2_700, [300, 1_300], 2_641),
        ] {
            assert_eq!(run(&mut present, seconds, &times), [changed]);
        }
        assert_eq!(run(&mut present, 2_700..3_600, &[1_190, 300]), []);
        let changes = Changes {
            voluntary: 4,
            forced: 2,
        };
        assert_eq!(present.changes(), changes);
    }

    proptest! {
        /// Whatever the routes do, as long as the present one can be used: in an hour there are at most four voluntary
        /// changes, and others only every 640 s; in ten minutes there is at most one return, after which the route
        /// that it left may be taken again.
        #[test]
        fn there_are_few_changes_and_fewer_returns(
            steps in proptest::collection::vec((1_u64..400, 1_u64..2_000, 1_u64..2_000, 1_u64..2_000), 1..60),
        ) {
            let mut present = PresentRoute::default();
            let (mut now, mut changes): (u64, Vec<(u64, Kind, Route)>) = (0, Vec::new());
            for (seconds, one, two, three) in steps {
                let times = [one, two, three];
                for second in now..now + seconds {
                    let before = present.changes();
                    for changed in run(&mut present, second..second + 1, &times) {
                        let kind = match present.changes().forced > before.forced {
                            true => Kind::Forced,
                            false => Kind::Voluntary,
                        };
                        changes.push((changed, kind, present.route().unwrap().clone()));
                    }
                }
                now += seconds;
            }
            for (end, kind, _) in &changes {
                let within = |span: u64| {
                    let newest = changes.iter().filter(move |(at, ..)| at <= end && end - at < span);
                    newest.collect::<Vec<_>>()
                };
                let in_hour = within(3_600);
                let voluntary = in_hour.iter().filter(|(_, kind, _)| *kind == Kind::Voluntary);
                prop_assert!(voluntary.count() <= 4, "{:?}", changes);
                prop_assert!(*kind == Kind::Voluntary || within(640).len() == 1, "{:?}", changes);
                let recent = within(600);
                let returns = recent.iter().enumerate().filter(|(place, (.., to))| {
                    recent[..*place].iter().any(|(.., other)| other == to)
                });
                prop_assert!(returns.count() <= 2, "{:?}", changes);
            }
        }
    }
}
