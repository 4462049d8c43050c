//! What is known of the overlay, as the answers to `GET /overlay` and `GET /overlay/routes`.

use std::net::{IpAddr, Ipv4Addr};

use midspan_explicit::{Destination, Host};
use midspan_policy::overlay::{
    ChosenRoutes, KnownOverlay, NodeName, Overlay, Overload, Route, RouteDecision, Wanted,
    WantedHost,
};
use midspan_policy::prefix::site_prefix;
use midspan_relay::SharedOverlay;
use midspan_relay::overlay::counts::{NodeCounts, RefusedHop};
use midspan_relay::overlay::warm::WarmCounts;
use midspan_units::{Probability, Time, TimeSpan};
use serde::{Deserialize, Serialize};

/// The answer to `GET /overlay`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverlayReport {
    /// The name of this node; `None` if it is part of no overlay.
    pub node: Option<String>,
    /// Whether it exchanges measurements with other nodes.
    pub measures: bool,
    /// The other nodes.
    pub nodes: Vec<NodeRow>,
    /// The exits to which sessions went.
    pub exits: Vec<ExitRow>,
    /// How many sessions of each listener have taken which route.
    pub routes: Vec<SessionsRow>,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name; with uplinks, followed by a slash and the uplink.
    pub name: String,
    /// Where it accepts hops.
    pub address: Option<String>,
    /// Whether it carries sessions on.
    pub transit: bool,
    /// Whether it connects to servers.
    pub exit: bool,
    /// `up`, `probation`, `unknown`, `suspect` or `down`.
    pub health: String,
    /// Time since it has last answered.
    pub heard_seconds: Option<f64>,
    /// `busy` or `draining`, if it gets no new sessions.
    pub overload: Option<String>,
    /// The leg to it, as this node measures it.
    #[serde(flatten)]
    pub leg: LegRow,
    /// What it reports of its legs, and how old the report is.
    pub reports: Option<ReportRow>,
    /// Sessions whose next node it is.
    pub sessions_to: u64,
    /// Sessions that come from it.
    pub sessions_from: u64,
    /// Calls that have failed at it, or at the leg to it.
    pub calls_failed: u64,
    /// Its hops that this node has refused, by reason.
    pub hops_refused: Vec<(String, u64)>,
    /// Warm connections to it.
    pub warm: WarmRow,
}

/// The warm connections to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WarmRow {
    /// Connections that sessions can use now.
    pub ready: u64,
    /// Sessions that have used one.
    pub used: u64,
    /// Sessions for which there was none.
    pub missed: u64,
    /// Connections that have ended unused.
    pub ended: u64,
}

/// The sessions of a listener by one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsRow {
    /// The listener.
    pub listener: String,
    /// The nodes after this one; empty for sessions that leave the overlay here.
    pub route: Vec<String>,
    /// Their number.
    pub sessions: u64,
}

/// A leg from one node to another one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LegRow {
    /// The present round trip: the smallest of the last seconds.
    pub rtt_seconds: Option<f64>,
    /// The base round trip: the smallest of the last minutes.
    pub base_rtt_seconds: Option<f64>,
    /// The probability that a segment is lost.
    pub loss: Option<f64>,
    /// The rate.
    pub rate_bits_per_second: Option<u64>,
    /// The congestion control of the newest session.
    pub congestion_control: Option<String>,
}

/// What a node reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// The age of the report.
    pub age_seconds: f64,
    /// Its legs, by the node at the other end.
    pub legs: Vec<(String, LegRow)>,
}

/// The present route to an exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitRow {
    /// The exit.
    pub exit: String,
    /// The nodes of the present route.
    pub route: Option<Vec<String>>,
    /// How often the route has changed.
    pub changes: u64,
}

/// The answer to `GET /overlay/routes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoutesReport {
    /// The destination.
    pub destination: String,
    /// `through`, `here`, `by_address` or `nowhere`.
    pub decision: String,
    /// The nodes of the chosen route; empty without one.
    pub route: Vec<String>,
    /// Why it was chosen.
    pub reason: String,
    /// All candidates.
    pub candidates: Vec<CandidateRow>,
}

/// A route that could be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateRow {
    /// Its nodes; empty for a session that leaves here.
    pub route: Vec<String>,
    /// The predicted completion time up to the exit.
    pub to_exit_seconds: Option<f64>,
    /// The predicted completion time up to the server.
    pub prediction_seconds: Option<f64>,
    /// What is against it.
    pub obstacle: Option<String>,
    /// Whether it is the present route to its exit.
    pub present: bool,
}

impl OverlayReport {
    /// What is known of the overlay.
    pub(crate) fn read(shared: &SharedOverlay, now: Time) -> Self {
        let Some(overlay) = shared.members() else {
            return Self::default();
        };
        let (warm, counts) = (shared.warm().counts(), shared.counts().clone());
        let known = shared.known();
        let known = &*known;
        let others = overlay.nodes.iter().filter(|node| node.name != overlay.own);
        // With uplinks, each leg to a node has a row.
        let legs = others.flat_map(|node| {
            let legs = overlay.legs_to(&node.name).into_iter();
            legs.map(move |leg| (node, leg))
        });
        let nodes = legs.map(|(node, leg)| NodeRow {
            name: leg.to_string(),
            address: node.address.map(|address| address.to_string()),
            transit: node.transit,
            exit: !node.serves.is_empty(),
            health: known.health(now, &leg).name().to_owned(),
            heard_seconds: (known.last_heard(&leg)).map(|at| now.since(at).as_seconds()),
            overload: known.overload(now, &node.name).map(|overload| {
                let word = match overload {
                    Overload::Busy => "busy",
                    Overload::Draining => "draining",
                };
                word.to_owned()
            }),
            leg: LegRow::measured(known, now, &leg),
            reports: ReportRow::of(known, now, &node.name),
            warm: warm.get(&leg).map(WarmRow::from).unwrap_or_default(),
            ..NodeRow::counted(counts.nodes.get(&leg), counts.nodes.get(&node.name))
        });
        let exits = overlay.nodes.iter().filter_map(|node| {
            let present = known.present(&node.name)?;
            Some(ExitRow {
                exit: node.name.to_string(),
                route: present.route().map(names),
                changes: present.changes().all(),
            })
        });
        Self {
            node: Some(overlay.own.to_string()),
            measures: overlay.choice.exchange,
            nodes: nodes.collect(),
            exits: exits.collect(),
            routes: counts.routes.iter().map(SessionsRow::from).collect(),
        }
    }
}

impl NodeRow {
    /// A leg of which only the counts are known: its own, and those of the node, whose hops come over any uplink.
    fn counted(leg: Option<&NodeCounts>, node: Option<&NodeCounts>) -> Self {
        let [leg, node] = [leg, node].map(|counts| counts.copied().unwrap_or_default());
        let refused = RefusedHop::ALL.into_iter().zip(node.hops_refused);
        Self {
            sessions_to: leg.sessions_to,
            sessions_from: node.sessions_from,
            calls_failed: leg.calls_failed,
            hops_refused: refused
                .map(|(reason, count)| (reason.name().to_owned(), count))
                .collect(),
            ..Self::default()
        }
    }
}

impl From<&WarmCounts> for WarmRow {
    fn from(counts: &WarmCounts) -> Self {
        let WarmCounts {
            ready,
            used,
            missed,
            ended,
        } = *counts;
        Self {
            ready,
            used,
            missed,
            ended,
        }
    }
}

impl From<(&(String, Option<Route>), &u64)> for SessionsRow {
    fn from(((listener, route), sessions): (&(String, Option<Route>), &u64)) -> Self {
        Self {
            listener: listener.clone(),
            route: route.as_ref().map(names).unwrap_or_default(),
            sessions: *sessions,
        }
    }
}

impl LegRow {
    fn measured(known: &KnownOverlay, now: Time, to: &NodeName) -> Self {
        let Some(leg) = known.leg_to(to) else {
            return Self::default();
        };
        let seconds = |time: Option<TimeSpan>| time.map(TimeSpan::as_seconds);
        Self {
            rtt_seconds: seconds(leg.round_trip.get(now)),
            base_rtt_seconds: seconds(leg.round_trip.base(now)),
            loss: Some(leg.loss.get(now)),
            rate_bits_per_second: leg.rate.get(now).map(|rate| rate.bits_per_second()),
            congestion_control: Some(leg.congestion.name().to_owned()),
        }
    }
}

impl ReportRow {
    fn of(known: &KnownOverlay, now: Time, node: &NodeName) -> Option<Self> {
        let (at, row) = known.row(now, node)?;
        let legs = row.legs.iter().map(|leg| {
            let of_leg = LegRow {
                rtt_seconds: Some(leg.round_trip.as_seconds()),
                base_rtt_seconds: None,
                loss: Some(leg.loss.as_f64()),
                rate_bits_per_second: leg.rate.map(|rate| rate.bits_per_second()),
                congestion_control: Some(leg.congestion.name().to_owned()),
            };
            (leg.to.to_string(), of_leg)
        });
        Some(Self {
            age_seconds: now.since(at).as_seconds(),
            legs: legs.collect(),
        })
    }
}

/// A request for [`RoutesReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutesQuery {
    destination: Destination,
    client: IpAddr,
}

impl RoutesQuery {
    /// Reads `destination=HOST[:PORT]&client=ADDRESS`.
    ///
    /// # Errors
    /// The text of the answer with status 400.
    pub(crate) fn read(query: &str) -> Result<Self, String> {
        let (mut destination, mut client) = (None, None);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_first = match &*name {
                "destination" => destination.replace(value).is_none(),
                "client" => client.replace(value).is_none(),
                _ => false,
            };
            if !is_first {
                return Err("known parameters: destination=HOST:PORT, client=ADDRESS".to_owned());
            }
        }
        let text =
            destination.ok_or("destination is missing, as in destination=203.0.113.7:443")?;
        let destination = Destination::parse(&text, Some(443)).or_else(|error| {
            // An IPv6 address without a port and without brackets.
            let address: Result<IpAddr, _> = text.parse();
            let address = address.map_err(|_| format!("\"{text}\": {error}"))?;
            Destination::new(address.into(), 443).map_err(|error| format!("\"{text}\": {error}"))
        })?;
        let client = client.map(|text| {
            let client: Result<IpAddr, _> = text.parse();
            client.map_err(|_| format!("\"{text}\" is not an address of a client"))
        });
        Ok(Self {
            destination,
            client: client.transpose()?.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
        })
    }
}

impl RoutesReport {
    /// The candidates of a destination, and the decision for a session that begins now and does not
    /// explore. `known` is a copy, which the decision changes.
    pub(crate) fn read(
        query: &RoutesQuery,
        overlay: &Overlay,
        known: &mut KnownOverlay,
        now: Time,
    ) -> Self {
        let mut overlay = overlay.clone();
        overlay.choice.explore = Probability::ZERO;
        overlay.choice.control = Probability::ZERO;
        let routes = ChosenRoutes::new(overlay.clone());
        let (host, site) = match &query.destination.host {
            Host::Address(address) => (WantedHost::Address(*address), Some(site_prefix(*address))),
            Host::Name(name) => (WantedHost::Name(name.as_str()), None),
        };
        let wanted = Wanted {
            client: query.client,
            host,
            port: query.destination.port,
            tried: &[],
        };
        let decided = routes.decide(now, &wanted, known);
        let prediction = |route: Option<&Route>| {
            let time = known.prediction(now, &overlay, route, site?);
            time.map(TimeSpan::as_seconds)
        };
        let mut candidates = Vec::new();
        if let Ok(permitted) = routes.permitted(&wanted) {
            if permitted.or_here {
                candidates.push(CandidateRow {
                    route: Vec::new(),
                    to_exit_seconds: None,
                    prediction_seconds: prediction(None),
                    obstacle: None,
                    present: false,
                });
            }
            for exit in &permitted.exits {
                let present = known.present(exit).and_then(|present| present.route());
                let of_exit = known.candidates(now, &overlay, exit).into_iter();
                candidates.extend(of_exit.map(|candidate| CandidateRow {
                    present: present == Some(&candidate.route),
                    to_exit_seconds: candidate.prediction.map(TimeSpan::as_seconds),
                    prediction_seconds: prediction(Some(&candidate.route)),
                    obstacle: candidate.obstacle.map(|obstacle| obstacle.to_string()),
                    route: names(&candidate.route),
                }));
            }
        }
        let (decision, route) = match &decided.decision {
            RouteDecision::Here => ("here", Vec::new()),
            RouteDecision::Through(route) => ("through", names(route)),
            RouteDecision::ByAddress => ("by_address", Vec::new()),
            RouteDecision::Nowhere => ("nowhere", Vec::new()),
        };
        Self {
            destination: query.destination.to_string(),
            decision: decision.to_owned(),
            route,
            reason: decided.reason.name().to_owned(),
            candidates,
        }
    }
}

fn names(route: &Route) -> Vec<String> {
    route.nodes().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused() {
        let read = |query| RoutesQuery::read(query).map(|query| query.destination.to_string());
        assert_eq!(
            read("destination=203.0.113.7"),
            Ok("203.0.113.7:443".to_owned())
        );
        assert_eq!(
            read("destination=www.example.org:80&client=192.0.2.1"),
            Ok("www.example.org:80".to_owned())
        );
        assert_eq!(
            read("destination=2001:db8::1"),
            Ok("[2001:db8::1]:443".to_owned())
        );
        for wrong in [
            "",
            "destination=",
            "destination=a&destination=b",
            "x=1",
            "destination=1.2.3.4&client=x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_an_overlay_there_is_nothing() {
        let report = OverlayReport::read(&SharedOverlay::default(), Time::ZERO);
        assert_eq!(report, OverlayReport::default());
    }
}
