//! The choice in an overlay of five nodes: ams (the ingress), fra and par (transit nodes), sin and tyo
//! (exits). Time is virtual.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use midspan_units::{BitRate, ByteSize, Probability};
use proptest::prelude::*;

use super::*;
use crate::overlay::{
    CallFailure, ChoiceSettings, Congestion, Health, Node, OperatorRoute, Route, RouteDestination,
    Row, RowLeg,
};

const SERVER: [u8; 4] = [203, 0, 113, 7];

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

fn route(nodes: &[&str]) -> Route {
    Route::new(nodes.iter().map(|node| name(node))).unwrap()
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + TimeSpan::from_milliseconds(milliseconds)
}

fn ms(milliseconds: u64) -> TimeSpan {
    TimeSpan::from_milliseconds(milliseconds)
}

fn overlay(for_all: bool, by: Option<RouteBy>) -> Overlay {
    let node = |text: &str, last: u8, transit: bool, serves: &[&str]| Node {
        transit,
        serves: (serves.iter())
            .map(|text| text.parse::<IpNet>().unwrap().into())
            .collect(),
        ..Node::new(name(text), Some(([10, 0, 0, last], 7704).into()))
    };
    let none = Probability::ZERO;
    Overlay {
        routes: by
            .map(|by| OperatorRoute {
                destinations: vec![RouteDestination::All],
                by,
            })
            .into_iter()
            .collect(),
        choice: ChoiceSettings {
            for_all,
            explore: none,
            control: none,
            ..ChoiceSettings::default()
        },
        ..Overlay::new(
            name("ams"),
            vec![
                node("ams", 1, true, &["0.0.0.0/0"]),
                node("fra", 2, true, &[]),
                node("par", 3, true, &[]),
                node("sin", 4, false, &["203.0.113.0/24"]),
                node("tyo", 5, false, &["203.0.113.0/24", "198.51.100.0/24"]),
            ],
        )
    }
}

/// The sessions' exit is sin.
fn to_sin() -> Overlay {
    overlay(
        false,
        Some(RouteBy::Exits {
            exits: vec![name("sin")],
            or_here: false,
        }),
    )
}

fn wanted(client: u8, tried: &[Route]) -> Wanted<'_> {
    Wanted {
        client: [192, 0, 2, client].into(),
        host: WantedHost::Address(SERVER.into()),
        port: 443,
        tried,
    }
}

fn site() -> IpNet {
    site_prefix(SERVER.into())
}

/// The networks between the nodes, and what the ingress does with them.
struct World {
    routes: ChosenRoutes,
    known: KnownOverlay,
    /// Round trip in milliseconds and loss of each leg; a leg that is missing passes nothing.
    legs: BTreeMap<(&'static str, &'static str), (u64, f64)>,
    /// The load of each node in 1/1000.
    loads: BTreeMap<String, u16>,
    now: u64,
}

impl World {
    /// ams–sin 100 ms, over fra 80 + 80 ms, over par 110 + 110 ms; tyo is far. The last legs have 10 ms,
    /// and the servers are 400 ms from ams.
    fn new(overlay: Overlay) -> Self {
        let legs = [
            (("ams", "sin"), (100, 0.0)),
            (("ams", "fra"), (80, 0.0)),
            (("ams", "par"), (110, 0.0)),
            (("ams", "tyo"), (300, 0.0)),
            (("fra", "sin"), (80, 0.0)),
            (("par", "sin"), (110, 0.0)),
        ];
        Self {
            routes: ChosenRoutes::new(overlay),
            known: KnownOverlay::new(1),
            legs: legs.into_iter().collect(),
            loads: BTreeMap::new(),
            now: 0,
        }
    }

    fn leg(&self, one: &str, other: &str) -> Option<(u64, f64)> {
        let leg = |((from, to), value): (&(&str, &str), &(u64, f64))| {
            let is_it = (*from == one && *to == other) || (*from == other && *to == one);
            is_it.then_some(*value)
        };
        self.legs.iter().find_map(leg)
    }

    /// The nodes answer exchanges, every two seconds.
    fn exchange(&mut self) {
        for node in ["fra", "par", "sin", "tyo"] {
            let Some((round_trip, _)) = self.leg("ams", node) else {
                continue;
            };
            let legs = ["ams", "fra", "par", "sin", "tyo"]
                .into_iter()
                .filter_map(|to| {
                    let (round_trip, loss) = self.leg(node, to)?;
                    Some(RowLeg {
                        to: name(to),
                        round_trip: ms(round_trip),
                        loss: Probability::from_f64(loss.max(0.0001)).unwrap(),
                        rate: BitRate::from_bits_per_second(50_000_000),
                        congestion: Congestion::Cubic,
                    })
                });
            let row = Row {
                legs: legs.collect(),
                load: self.loads.get(node).copied().unwrap_or(0),
                ..Row::default()
            };
            self.known
                .note_row(at(self.now), &name(node), ms(round_trip), row);
        }
    }

    /// One session: the routes that it has tried.
    fn session(&mut self, client: u8) -> (Vec<Route>, RouteDecision) {
        let mut tried = Vec::new();
        loop {
            let now = at(self.now);
            let decision = self
                .routes
                .route(now, &wanted(client, &tried), &mut self.known);
            let RouteDecision::Through(route) = decision else {
                if decision == RouteDecision::Here {
                    self.known.note_opened_here(now, site(), ms(400));
                }
                return (tried, decision);
            };
            let own = name("ams");
            let legs: Vec<_> = (route.hops(&own))
                .map(|(from, to)| (from.clone(), self.leg(from.as_str(), to.as_str())))
                .collect();
            if let Some((from, _)) = legs.iter().find(|(_, leg)| leg.is_none()) {
                let node = (from.as_str() != "ams").then(|| from.clone());
                let failure = CallFailure {
                    node,
                    is_busy: false,
                };
                self.known.note_failed(now, &own, &route, &failure);
                tried.push(route);
                continue;
            }
            let mut times = vec![(route.nodes().last().unwrap().clone(), ms(10))];
            let between = legs.iter().skip(1);
            times.extend(between.map(|(from, leg)| (from.clone(), ms(leg.unwrap().0))));
            let handshake = ms(legs[0].1.unwrap().0);
            let to = (&route, Some(site()));
            self.known.note_opened(now, &own, to, handshake, &times);
            return (tried, RouteDecision::Through(route));
        }
    }

    /// Five sessions a second for this time; returns when each began and where it went.
    fn run(&mut self, seconds: u64) -> Vec<(u64, RouteDecision)> {
        let mut all = Vec::new();
        for _ in 0..seconds * 5 {
            if self.now.is_multiple_of(2_000) {
                self.exchange();
            }
            let (_, decision) = self.session(1);
            all.push((self.now, decision));
            self.now += 200;
        }
        all
    }
}

fn through(nodes: &[&str]) -> RouteDecision {
    RouteDecision::Through(route(nodes))
}

#[test]
fn without_knowledge_sessions_leave_here_or_go_straight() {
    let mut world = World::new(overlay(true, None));
    assert_eq!(world.session(1), (Vec::new(), RouteDecision::Here));
    let mut world = World::new(to_sin());
    assert_eq!(world.session(1), (Vec::new(), through(&["sin"])));
    // A server that no node serves.
    let routes = ChosenRoutes::new(overlay(true, None));
    let other = Wanted {
        host: WantedHost::Address([8, 8, 8, 8].into()),
        ..wanted(1, &[])
    };
    let decided = routes.decide(at(0), &other, &mut KnownOverlay::new(0));
    assert_eq!(decided.reason, Reason::NoExit);
}

#[test]
fn the_operator_comes_first() {
    let fixed = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| name(node)).collect();
        World::new(overlay(true, Some(RouteBy::Nodes(nodes))))
    };
    let mut world = fixed(&["par", "tyo"]);
    world.run(60);
    assert_eq!(
        fixed(&["fra", "sin"]).session(1).1,
        through(&["fra", "sin"])
    );
    assert_eq!(fixed(&[]).session(1).1, RouteDecision::Here);
    // No other route replaces it: par does not reach tyo.
    assert_eq!(
        world.session(1),
        (vec![route(&["par", "tyo"])], RouteDecision::Nowhere)
    );
}

#[test]
fn the_straight_route_stays_if_it_is_the_best() {
    let mut world = World::new(to_sin());
    let all = world.run(300);
    assert!(
        all.iter()
            .all(|(_, decision)| *decision == through(&["sin"]))
    );
}

/// The shares of sessions that begin 15 s after a change, and the number of changes of the route.
fn after_brownout(round_trip: u64, loss: f64) {
    let mut world = World::new(to_sin());
    // The straight route is clearly better, as long as it is well.
    for leg in [("ams", "fra"), ("fra", "sin")] {
        world.legs.insert(leg, (120, 0.0));
    }
    world.run(60);
    let begin = world.now;
    world.legs.insert(("ams", "sin"), (round_trip, loss));
    let during = world.run(60);
    let late: Vec<_> = (during.iter())
        .filter(|(time, _)| time - begin >= 15_000)
        .collect();
    let away = late
        .iter()
        .filter(|(_, decision)| *decision != through(&["sin"]));
    assert!(away.count() * 10 >= late.len() * 9, "{round_trip} {loss}");
    world.legs.insert(("ams", "sin"), (100, 0.0));
    let after = world.run(600);
    let all = during.iter().chain(&after).map(|(_, decision)| decision);
    let all: Vec<_> = all.collect();
    let changes = all.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes <= 2, "{round_trip} {loss}: {changes}");
    // The brownout is forgotten at last.
    assert_eq!(
        after.last().unwrap().1,
        through(&["sin"]),
        "{round_trip} {loss}"
    );
}

#[test]
fn a_brownout_leads_elsewhere_within_15_seconds_and_at_most_once_back() {
    after_brownout(300, 0.03);
    after_brownout(300, 0.0);
    after_brownout(100, 0.03);
}

#[test]
fn a_dead_transit_node_costs_one_session_one_try() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.run(60);
    assert_eq!(world.session(1).1, through(&["fra", "sin"]));
    world.legs.remove(&("ams", "fra"));
    let next = through(&["par", "sin"]);
    assert_eq!(
        world.session(1),
        (vec![route(&["fra", "sin"])], next.clone())
    );
    for (_, decision) in world.run(30) {
        assert_eq!(decision, next);
    }
    // A leg between other nodes, as the transit node reports.
    world.legs.remove(&("par", "sin"));
    assert_eq!(
        world.session(1),
        (vec![route(&["par", "sin"])], through(&["sin"]))
    );
    assert_eq!(world.session(1), (Vec::new(), through(&["sin"])));
    // Everything is gone: each route is tried, and the session may not leave here.
    world.legs.clear();
    let (tried, last) = world.session(1);
    assert_eq!(last, RouteDecision::Nowhere);
    assert!(tried.contains(&route(&["sin"])));
}

#[test]
fn a_busy_node_gets_no_sessions() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.run(60);
    let failure = CallFailure {
        node: Some(name("fra")),
        is_busy: true,
    };
    let (now, own) = (at(world.now), name("ams"));
    world
        .known
        .note_failed(now, &own, &route(&["fra", "sin"]), &failure);
    assert_eq!(world.session(1).1, through(&["par", "sin"]));
    assert_eq!(world.known.health(now, &name("fra")), Health::Up);
}

#[test]
fn of_routes_that_are_as_good_the_less_loaded_one_is_taken() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.legs.insert(("ams", "par"), (80, 0.0));
    world.legs.insert(("par", "sin"), (80, 0.0));
    world.run(60);
    let RouteDecision::Through(present) = world.session(1).1 else {
        panic!("no route");
    };
    let busy = present.nodes()[0].clone();
    // A load that has just been reported does not yet move all sessions; one that lasts does.
    let mut shares = Vec::new();
    world.loads.insert(busy.to_string(), 700);
    for _ in 0..4 {
        let sessions = world.run(20);
        let moved = |decision: &RouteDecision| *decision != RouteDecision::Through(present.clone());
        let moved = sessions
            .iter()
            .filter(|(_, decision)| moved(decision))
            .count();
        shares.push(moved as f64 / sessions.len() as f64);
    }
    assert!(
        (0.2..0.9).contains(&shares[0]) && shares[3] > 0.99,
        "{shares:?}"
    );
    // With the same load, both share the sessions.
    let other = ["fra", "par"]
        .into_iter()
        .find(|node| *node != busy.as_str());
    world.loads.insert(other.unwrap().to_owned(), 700);
    world.run(80);
    let sessions = world.run(60);
    let to_busy = |(_, decision): &&(u64, RouteDecision)| {
        *decision == RouteDecision::Through(present.clone())
    };
    let share = sessions.iter().filter(to_busy).count() as f64 / sessions.len() as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn of_the_sessions_of_an_overloaded_node_a_part_goes_elsewhere() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.legs.remove(&("ams", "par"));
    world.run(60);
    world.loads.insert("fra".to_owned(), 900);
    // A load of 1/8 above the target shrinks the share by a factor e in 240 s.
    world.run(240);
    let sessions = world.run(20);
    let over = through(&["fra", "sin"]);
    let kept = sessions.iter().filter(|(_, decision)| *decision == over);
    let kept = kept.count() as f64 / sessions.len() as f64;
    assert!((0.25..0.48).contains(&kept), "{kept}");
    assert!(
        sessions
            .iter()
            .all(|(_, to)| *to == over || *to == through(&["sin"]))
    );
    assert_eq!(
        world.known.present(&name("sin")).unwrap().changes().all(),
        0
    );
    // The load has gone.
    world.loads.clear();
    world.run(60);
    assert!(world.run(20).iter().all(|(_, decision)| *decision == over));
}

#[test]
fn a_second_try_trusts_only_nodes_that_have_just_answered() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.run(60);
    // Both transit nodes fail at once; 4 s later, the ingress has noticed neither.
    world.legs.remove(&("ams", "fra"));
    world.legs.remove(&("ams", "par"));
    for _ in 0..2 {
        world.exchange();
        world.now += 2_000;
    }
    let expected = (vec![route(&["fra", "sin"])], through(&["sin"]));
    assert_eq!(world.session(1), expected);
}

#[test]
fn an_exit_is_left_for_what_real_sessions_get() {
    let mut world = World::new(overlay(true, None));
    world.run(60);
    // Nothing is known of the route from sin to the servers.
    assert_eq!(world.session(1).1, RouteDecision::Here);
    let opened = (&route(&["sin"]), Some(site()));
    let times = [(name("sin"), ms(10))];
    world
        .known
        .note_opened(at(world.now), &name("ams"), opened, ms(100), &times);
    // Over sin 110 ms instead of 400 ms.
    assert_eq!(world.session(1).1, through(&["sin"]));
    let (now, size) = (at(world.now), ByteSize::from_bytes(1_000_000));
    for _ in 0..5 {
        world
            .known
            .note_ended(now, site(), Left::Here, (size, ms(500)));
        world
            .known
            .note_ended(now, site(), Left::Overlay, (size, ms(900)));
    }
    // The exit of the first client stays; new clients leave here.
    assert_eq!(world.session(1).1, through(&["sin"]));
    assert_eq!(world.session(2).1, RouteDecision::Here);
}

#[test]
fn an_exit_that_fails_is_left() {
    let mut world = World::new(overlay(true, None));
    world.run(60);
    let opened = (&route(&["sin"]), Some(site()));
    let times = [(name("sin"), ms(10))];
    world
        .known
        .note_opened(at(world.now), &name("ams"), opened, ms(100), &times);
    assert_eq!(world.session(1).1, through(&["sin"]));
    for leg in [("ams", "sin"), ("fra", "sin"), ("par", "sin")] {
        world.legs.remove(&leg);
    }
    let (tried, decision) = world.session(1);
    assert_eq!(decision, RouteDecision::Here);
    assert!(!tried.is_empty());
}

#[test]
fn names_have_routes_but_no_last_leg() {
    let mut world = World::new(to_sin());
    world.legs.insert(("ams", "sin"), (400, 0.0));
    world.run(60);
    let by_name = Wanted {
        host: WantedHost::Name("www.example.org"),
        ..wanted(1, &[])
    };
    let found = world
        .routes
        .route(at(world.now), &by_name, &mut world.known);
    assert_eq!(found, through(&["fra", "sin"]));
    let mut all = ChosenRoutes::new(overlay(true, None));
    let found = all.route(at(world.now), &by_name, &mut world.known);
    assert_eq!(found, RouteDecision::ByAddress);
}

#[test]
fn a_small_share_explores_and_a_smaller_one_is_the_control_group() {
    let mut with = overlay(true, None);
    with.choice = ChoiceSettings {
        for_all: true,
        ..ChoiceSettings::default()
    };
    let mut world = World::new(with);
    world.run(60);
    let opened = (&route(&["sin"]), Some(site()));
    let times = [(name("sin"), ms(10))];
    world
        .known
        .note_opened(at(world.now), &name("ams"), opened, ms(100), &times);
    let mut counts = [0; 3];
    for number in 0..20_000_u32 {
        let client = IpAddr::from((0x0a01_0000 + number).to_be_bytes());
        let wanted = Wanted {
            client,
            ..wanted(1, &[])
        };
        let decided = world
            .routes
            .decide(at(world.now), &wanted, &mut world.known);
        counts[match (decided.reason, decided.decision) {
            (Reason::ControlGroup, RouteDecision::Here) => 0,
            (Reason::Exploration, RouteDecision::Through(_)) => 1,
            (_, RouteDecision::Through(_)) => 2,
            other => panic!("{other:?}"),
        }] += 1;
    }
    // 1 % of the pairs; 2 % of the pairs, and 2 % of the other sessions by another route.
    assert!((120..280).contains(&counts[0]), "{counts:?}");
    assert!((600..1_000).contains(&counts[1]), "{counts:?}");
}

proptest! {
    /// After any measurements and failures, a session goes only where the operator permits it, and never again
    /// where it has failed; and one that may leave here is never left without an answer.
    #[test]
    fn every_route_is_permitted(
        or_here in any::<bool>(),
        steps in proptest::collection::vec((0_u8..8, 0_usize..4, 1_u64..1_000, 0.0_f64..0.5), 1..60),
    ) {
        let exits = vec![name("sin"), name("tyo")];
        let by = RouteBy::Exits { exits: exits.clone(), or_here };
        let overlay = overlay(false, Some(by));
        let transit = [name("fra"), name("par")];
        let mut world = World::new(overlay);
        for (what, place, number, loss) in steps {
            world.now += number * 10;
            let node = ["fra", "par", "sin", "tyo"][place];
            match what {
                0 => world.exchange(),
                1 => {
                    world.legs.remove(&("ams", node));
                }
                2 => {
                    world.legs.insert(("ams", node), (number, loss));
                }
                3 => {
                    world.legs.insert(("fra", "sin"), (number, loss));
                }
                4 => {
                    let failure = CallFailure { node: Some(name(node)), is_busy: loss < 0.25 };
                    let now = at(world.now);
                    world.known.note_failed(now, &name("ams"), &route(&["fra", "sin"]), &failure);
                }
                5 => {
                    world.run(1);
                }
                _ => {}
            }
            let (tried, last) = world.session(u8::try_from(place).unwrap());
            let mut all = tried.clone();
            match last {
                RouteDecision::Through(route) => all.push(route),
                RouteDecision::Here => prop_assert!(or_here),
                other => prop_assert!(!or_here && other == RouteDecision::Nowhere),
            }
            for (place, route) in all.iter().enumerate() {
                let (exit, before) = route.nodes().split_last().unwrap();
                prop_assert!(exits.contains(exit) && before.len() <= 2);
                prop_assert!(before.iter().all(|node| transit.contains(node)));
                prop_assert!(!all[..place].contains(route));
            }
        }
    }
}
