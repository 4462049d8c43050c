//! The choice of a route by measurements, within what the operator permits.
//!
//! | step | rule |
//! | --- | --- |
//! | the operator | the first route of the operator that matches decides: fixed nodes, or exits to choose from |
//! | exits | without a route of the operator: those that serve the destination by the longest prefix |
//! | exit | it stays for a pair of client and network of servers; otherwise, what real sessions got, and then the prediction |
//! | route | the present route to the exit; with load, others that are as good get a share of the sessions |
//! | load | a share of the sessions over busy transit nodes takes the next route that keeps it |
//! | exploration | a small share takes another route, a small share of pairs another exit or none |
//! | failure | a route that has failed is not tried again for this client; the routes are compared at once, and the second try is the best one whose transit nodes have answered within 5 s |
//!
//! A session leaves at the ingress whenever nothing better is known, if the operator permits it.

mod by_load;
#[cfg(test)]
mod noisy_legs;
#[cfg(test)]
mod tests;

use by_load::by_load;
use ipnet::IpNet;
use midspan_units::{Time, TimeSpan};

use super::candidate::Candidate;
use super::comparison::Left;
use super::dice::Dice;
use super::known::KnownOverlay;
use super::routes::{
    OperatorRoutes, RouteBy, RouteDecision, RoutePolicy, Wanted, WantedHost, by_nodes,
};
use super::sticky_exits::Pair;
use super::topology::Topology;
use super::{NodeName, Overlay};
use crate::prefix::{host_prefix, site_prefix};

/// Sessions leave at the ingress unless an exit takes at most 75 % of the time, and at least 20 ms less.
const SHARE: u64 = 75;
const LESS: TimeSpan = TimeSpan::from_milliseconds(20);

/// Most routes that are tried for one client. One that may leave at the ingress does so after one less.
pub const MOST_TRIES: usize = 3;
/// A second try goes over transit nodes only if each of them has answered within this time.
const ANSWERED: TimeSpan = TimeSpan::from_seconds(5);
/// An exploring session takes one of this many routes after the present one (VIA, SIGCOMM 2016: the best
/// k), each at most three times as long.
const MOST_EXPLORED: usize = 2;

/// Chooses routes by measurements.
#[derive(Debug, Clone)]
pub struct ChosenRoutes {
    overlay: Overlay,
    topology: Topology,
    operator: OperatorRoutes,
}

/// A decision, and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The decision.
    pub decision: RouteDecision,
    /// Why.
    pub reason: Reason,
}

/// Why a route was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A route of the operator names the nodes.
    Operator,
    /// The address decides.
    ByAddress,
    /// No node serves the destination.
    NoExit,
    /// No route to an exit is known to be better than leaving here.
    NothingBetter,
    /// It is the present route: no other one is clearly better.
    Present,
    /// It is as good as the present route and less loaded, or the nodes of the present route are busy.
    LessLoaded,
    /// Nothing is measured yet.
    Unmeasured,
    /// Another route than the present one, to measure it.
    Exploration,
    /// The pair of client and network of servers belongs to the control group.
    ControlGroup,
    /// Sessions that left here got more.
    BetterHere,
    /// The routes before it have failed for this client.
    OthersFailed,
}

impl Reason {
    /// Whether something is known about the choice.
    const fn is_judged(self) -> bool {
        !matches!(self, Self::Unmeasured | Self::OthersFailed)
    }

    /// The name that is written in logs and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::ByAddress => "by_address",
            Self::NoExit => "no_exit",
            Self::NothingBetter => "nothing_better",
            Self::Present => "present",
            Self::LessLoaded => "less_loaded",
            Self::Unmeasured => "unmeasured",
            Self::Exploration => "exploration",
            Self::ControlGroup => "control_group",
            Self::BetterHere => "better_here",
            Self::OthersFailed => "others_failed",
        }
    }
}

/// What the operator permits for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permitted {
    /// The exits.
    pub exits: Vec<NodeName>,
    /// Whether it may leave at the ingress.
    pub or_here: bool,
}

/// The exit of a session: one of the overlay, or the ingress itself.
type Exit<'a> = Option<&'a NodeName>;

impl RoutePolicy for ChosenRoutes {
    fn route(&mut self, now: Time, wanted: &Wanted<'_>, known: &mut KnownOverlay) -> RouteDecision {
        self.decide(now, wanted, known).decision
    }
}

impl ChosenRoutes {
    /// The choice in this overlay.
    #[must_use]
    pub fn new(overlay: Overlay) -> Self {
        let operator = OperatorRoutes::new(overlay.routes.clone());
        Self {
            topology: Topology::of(&overlay),
            overlay,
            operator,
        }
    }

    /// What the operator permits; the decision, if there is no choice.
    ///
    /// # Errors
    /// That decision.
    pub fn permitted(&self, wanted: &Wanted<'_>) -> Result<Permitted, Decided> {
        let fixed = |decision, reason| Err(Decided { decision, reason });
        match (self.operator.find(wanted.host), wanted.host) {
            (Some(RouteBy::Nodes(nodes)), _) => {
                fixed(by_nodes(nodes, wanted.tried), Reason::Operator)
            }
            (Some(RouteBy::Exits { exits, or_here }), _) => Ok(Permitted {
                exits: exits.clone(),
                or_here: *or_here,
            }),
            (None, WantedHost::Name(_)) => fixed(RouteDecision::ByAddress, Reason::ByAddress),
            (None, WantedHost::Address(address)) => {
                let exits = match self.overlay.choice.for_all {
                    true => self.serving(address, wanted.port),
                    false => Vec::new(),
                };
                match exits.is_empty() {
                    true => fixed(RouteDecision::Here, Reason::NoExit),
                    false => Ok(Permitted {
                        exits,
                        or_here: true,
                    }),
                }
            }
        }
    }

    /// The decision and its reason.
    pub fn decide(&self, now: Time, wanted: &Wanted<'_>, known: &mut KnownOverlay) -> Decided {
        let permitted = match self.permitted(wanted) {
            Ok(permitted) => permitted,
            Err(decided) => return decided,
        };
        let last = MOST_TRIES - usize::from(permitted.or_here);
        if wanted.tried.len() >= last {
            return Decided {
                decision: match permitted.or_here {
                    true => RouteDecision::Here,
                    false => RouteDecision::Nowhere,
                },
                reason: Reason::OthersFailed,
            };
        }
        for exit in &permitted.exits {
            let present = known.present.get(exit);
            if present.is_none_or(|present| present.is_due(now)) {
                known.refresh_assumed(now, &self.topology);
                let transfer = self.overlay.choice.transfer;
                let candidates = known.candidates_in(now, &self.topology, transfer, exit);
                match known.present.get_mut(exit) {
                    Some(present) => present.evaluate(now, candidates),
                    None => {
                        let present = known.present.entry(exit.clone()).or_default();
                        present.evaluate(now, candidates);
                    }
                }
            }
        }
        let site = match wanted.host {
            WantedHost::Address(address) => Some(site_prefix(address)),
            WantedHost::Name(_) => None,
        };
        let pair = site.map(|site| (host_prefix(wanted.client), site));
        let (exit, reason) = self.exit(now, wanted, &permitted, pair, known);
        // Leaving here because nothing is known is no reason to stay here.
        let is_chosen = exit.is_some() || reason.is_some_and(Reason::is_judged);
        if let Some(pair) = pair.filter(|_| is_chosen) {
            known.exits.set_if_changed(now, pair, exit.cloned());
        }
        let route = match exit {
            Some(exit) => self.route_to(now, wanted, exit, known),
            None => Some((RouteDecision::Here, Reason::NothingBetter)),
        };
        match route {
            Some((decision, of_route)) => Decided {
                decision,
                reason: reason.unwrap_or(of_route),
            },
            // A session that may not leave here, and every route has failed.
            None => Decided {
                decision: RouteDecision::Nowhere,
                reason: Reason::OthersFailed,
            },
        }
    }

    /// The exits that serve a server by the longest prefix.
    fn serving(&self, address: std::net::IpAddr, port: u16) -> Vec<NodeName> {
        let server = std::net::SocketAddr::new(address, port);
        let others = self.overlay.nodes.iter().filter(|node| {
            node.name != self.overlay.own && node.address.is_some() && node.serves(server)
        });
        let lengths = others.filter_map(|node| {
            let networks = node
                .serves
                .iter()
                .filter(|network| network.contains(address));
            Some((networks.map(|network| network.length).max()?, &node.name))
        });
        let lengths: Vec<_> = lengths.collect();
        let longest = lengths.iter().map(|(length, _)| *length).max();
        let of_longest = lengths
            .into_iter()
            .filter(|(length, _)| Some(*length) == longest);
        of_longest.map(|(_, name)| name.clone()).collect()
    }

    /// The exit of a session, and the reason if it is another one than that of the route.
    fn exit<'a>(
        &self,
        now: Time,
        wanted: &Wanted<'_>,
        permitted: &'a Permitted,
        pair: Option<Pair>,
        known: &KnownOverlay,
    ) -> (Exit<'a>, Option<Reason>) {
        let with = |suits: &dyn Fn(&Candidate) -> bool| -> Vec<&'a NodeName> {
            let exits = permitted.exits.iter();
            let has_route = |exit: &&NodeName| {
                let mut candidates = candidates_to(known, exit).iter();
                candidates
                    .any(|candidate| suits(candidate) && !wanted.tried.contains(&candidate.route))
            };
            exits.filter(has_route).collect()
        };
        let usable = with(&|candidate| candidate.rank().is_some());
        let is_first = wanted.tried.is_empty();
        match pair.and_then(|pair| known.exits.get(now, &pair)) {
            Some(None) if permitted.or_here => {
                let failed = (!is_first).then_some(Reason::OthersFailed);
                return (None, Some(failed.unwrap_or(Reason::NothingBetter)));
            }
            Some(Some(exit)) => {
                if let Some(exit) = usable.iter().find(|it| **it == exit) {
                    return (Some(*exit), None);
                }
            }
            _ => {}
        }
        if let (Some(pair), true) = (pair, is_first) {
            let choice = &self.overlay.choice;
            let mut dice = Dice::of_pair(known.seed, pair);
            if permitted.or_here && choice.control.happens(dice.next()) {
                return (None, Some(Reason::ControlGroup));
            }
            let possible = with(&Candidate::may_work);
            if choice.explore.happens(dice.next())
                && let Some(exit) = possible.get(dice.place(possible.len()))
            {
                return (Some(*exit), Some(Reason::Exploration));
            }
        }
        if usable.is_empty() {
            return match (permitted.or_here, is_first) {
                (true, true) => (None, Some(Reason::Unmeasured)),
                (true, false) => (None, Some(Reason::OthersFailed)),
                // Perhaps a route works of which nothing is known; at last, any that has not failed.
                (false, _) => {
                    let possible = with(&Candidate::may_work).into_iter().next();
                    let last = || with(&|_| true).into_iter().next();
                    (possible.or_else(last).or(permitted.exits.first()), None)
                }
            };
        }
        let site = pair.map(|(_, site)| site);
        self.best_exit(now, &usable, permitted.or_here, site, known)
    }

    /// The exit with the shortest prediction, or the ingress unless one is clearly better.
    fn best_exit<'a>(
        &self,
        now: Time,
        usable: &[&'a NodeName],
        or_here: bool,
        site: Option<IpNet>,
        known: &KnownOverlay,
    ) -> (Exit<'a>, Option<Reason>) {
        if let ([only], false) = (usable, or_here) {
            return (Some(*only), None);
        }
        let best_rank = |exit: &NodeName| {
            candidates_to(known, exit)
                .iter()
                .filter_map(Candidate::rank)
                .min()
        };
        // Without an address, or if nothing is known of the last legs, only the routes differ.
        let by_route = || usable.iter().min_by_key(|exit| best_rank(exit)).copied();
        // The operator prefers these exits for a name, because there is no other reason to list them.
        let Some(site) = site else {
            return (by_route(), None);
        };
        let transfer = self.overlay.choice.transfer;
        let predicted = |route| known.prediction_in(now, &self.topology, transfer, (route, site));
        let times = usable.iter().filter_map(|exit| {
            let route = known.present.get(*exit)?.route()?;
            let time = predicted(Some(route))?;
            Some((time, *exit))
        });
        let best = times.min_by_key(|(time, _)| *time);
        let best_exit = || best.map(|(_, exit)| exit).or_else(by_route);
        if !or_here {
            return (best_exit(), None);
        }
        match known.comparison.better(now, site) {
            Some(Left::Here) => return (None, Some(Reason::BetterHere)),
            Some(Left::Overlay) => return (best_exit(), None),
            None => {}
        }
        match (best, predicted(None)) {
            (Some((time, exit)), Some(here)) => {
                match time * 100 <= here * SHARE && here - time >= LESS {
                    true => (Some(exit), None),
                    false => (None, Some(Reason::NothingBetter)),
                }
            }
            _ => (None, Some(Reason::Unmeasured)),
        }
    }

    /// The route to an exit for one session; `None` if all have failed for this client.
    fn route_to(
        &self,
        now: Time,
        wanted: &Wanted<'_>,
        exit: &NodeName,
        known: &mut KnownOverlay,
    ) -> Option<(RouteDecision, Reason)> {
        let is_first = wanted.tried.is_empty();
        let mut dice = known.dice;
        let explores = self.overlay.choice.explore.happens(dice.next());
        let present = known.present.get(exit)?;
        let untried = |candidate: &&Candidate| !wanted.tried.contains(&candidate.route);
        let candidates: Vec<&Candidate> = present.in_order().filter(untried).collect();
        let of_present = candidates
            .iter()
            .find(|candidate| {
                Some(&candidate.route) == present.route() && candidate.rank().is_some()
            })
            .copied();
        let explored = (explores && is_first)
            .then(|| explored(&candidates, of_present, &mut dice))
            .flatten();
        let chosen = match (explored, of_present) {
            (Some(candidate), _) => Some((candidate, Reason::Exploration)),
            (None, _) if !is_first => {
                proven(now, &candidates, wanted.tried.len()).map(|it| (it, Reason::OthersFailed))
            }
            (None, Some(best)) => Some(by_load(&candidates, present, best, &mut dice)),
            (None, None) => None,
        };
        let chosen = chosen.or_else(|| {
            let mut possible = candidates.iter().filter(|candidate| candidate.may_work());
            let candidate = possible.next().or(candidates.first())?;
            let reason = match (is_first, candidate.rank()) {
                (false, _) => Reason::OthersFailed,
                (true, Some(_)) => Reason::Present,
                (true, None) => Reason::Unmeasured,
            };
            Some((*candidate, reason))
        });
        let chosen = chosen.map(|(candidate, reason)| {
            let route = candidate.route.clone();
            (RouteDecision::Through(route), reason)
        });
        known.dice = dice;
        chosen
    }
}

/// The route of an exploring session, if there is one: one of the best after the present one.
fn explored<'a>(
    candidates: &[&'a Candidate],
    present: Option<&Candidate>,
    dice: &mut Dice,
) -> Option<&'a Candidate> {
    let is_present = |candidate: &Candidate| present.is_some_and(|it| it.route == candidate.route);
    let bearable = |candidate: &Candidate| match (candidate.prediction, present) {
        (Some(time), Some(best)) => best.prediction.is_some_and(|best| time <= best * 3),
        _ => true,
    };
    let others = candidates.iter().copied();
    let others = others.filter(|it| it.may_work() && !is_present(it) && bearable(it));
    let others: Vec<&Candidate> = others.take(MOST_EXPLORED).collect();
    others.get(dice.place(others.len())).copied()
}

/// The route of a session whose first route has failed. If one node has failed, others may have too, and this node has
/// not noticed it yet: only a node that has answered very recently is trusted. The straight route has no transit node,
/// and is the last resort of the second try and the first choice of the third one.
fn proven<'a>(now: Time, candidates: &[&'a Candidate], tries: usize) -> Option<&'a Candidate> {
    let mut ranked = candidates
        .iter()
        .filter(|candidate| candidate.rank().is_some());
    let straight = ranked.clone().find(|it| it.route.transit().is_empty());
    let answered = |heard: Time| now.since(heard) <= ANSWERED;
    let proven = ranked.find(|candidate| candidate.transit_heard.is_some_and(answered));
    match tries > 1 {
        true => straight.or(proven),
        false => proven.or(straight),
    }
    .copied()
}

/// The routes to an exit as they were at the newest evaluation.
fn candidates_to<'a>(known: &'a KnownOverlay, exit: &NodeName) -> &'a [Candidate] {
    known
        .present
        .get(exit)
        .map_or(&[], |present| present.candidates())
}
