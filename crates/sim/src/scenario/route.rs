//! Routes through the links.

use std::sync::Arc;

use midspan_link::Direction;
use midspan_path::{NodeIndex, first_hops};
use midspan_units::TimeSpan;

use super::{Flow, LinkId, NodeId, Scenario, ScenarioError};

/// The place of a direction of a link in the event queue.
pub(crate) fn place_of(link: LinkId, direction: Direction) -> u32 {
    // The number of places was checked before.
    u32::try_from(2 * link.0).unwrap_or(u32::MAX) + u32::from(direction == Direction::Down)
}

/// The route of a leg's data, and the route back.
pub(crate) type Routes = [Arc<[u32]>; 2];

/// The routes of all legs of a flow, each with the fewest links ([`first_hops`]).
pub(crate) fn routes(scenario: &Scenario, flow: &Flow) -> Result<Vec<Routes>, ScenarioError> {
    let mut stops = vec![flow.from];
    stops.extend(flow.splits.iter().map(|split| split.node));
    stops.push(flow.to);
    stops
        .windows(2)
        .map(|leg| route_of(scenario, &flow.name, leg[0], leg[1]))
        .collect()
}

/// The route from one node to another with the fewest links, and back over the same links.
pub(crate) fn route_of(
    scenario: &Scenario,
    name: &str,
    from: NodeId,
    to: NodeId,
) -> Result<Routes, ScenarioError> {
    let forward = places_between(scenario, name, from, to)?;
    let back = forward.iter().rev().map(|place| place ^ 1).collect();
    Ok([forward.into(), back])
}

/// The time in which an empty packet goes from one node to another and back, without any queue;
/// `None` if there is no route.
pub(crate) fn base_round_trip(scenario: &Scenario, from: NodeId, to: NodeId) -> Option<TimeSpan> {
    let [there, back] = route_of(scenario, "", from, to).ok()?;
    let delay = |place: &u32| {
        let link = scenario.links.get(*place as usize / 2)?;
        Some(link.directions[*place as usize % 2].state.delay)
    };
    let mut delays = there.iter().chain(back.iter()).map(delay);
    delays.try_fold(TimeSpan::ZERO, |sum, delay| Some(sum + delay?))
}

/// The places that the route passes, by the rule of the path file ([`first_hops`]).
fn places_between(
    scenario: &Scenario,
    flow: &str,
    from: NodeId,
    to: NodeId,
) -> Result<Vec<u32>, ScenarioError> {
    let links = scenario.links.iter();
    let ends: Vec<[NodeIndex; 2]> = links
        .map(|link| link.between.map(|node| NodeIndex(node.0)))
        .collect();
    let hops = first_hops(scenario.nodes.len(), &ends, NodeIndex(to.0));
    let mut places = Vec::new();
    let mut node = from;
    while let Some(hop) = hops.get(node.0).copied().flatten() {
        places.push(place_of(LinkId(hop.link.0), hop.direction));
        node = NodeId(hop.node.0);
    }
    if node != to || from == to {
        let name = |node| scenario.node_name(node).unwrap_or("?").to_owned();
        return Err(ScenarioError::Disconnected {
            flow: flow.to_owned(),
            from: name(from),
            to: name(to),
        });
    }
    if places.len() > 255 {
        return Err(ScenarioError::TooLong {
            flow: flow.to_owned(),
            links: places.len(),
        });
    }
    Ok(places)
}

/// For each direction of a link, the only direction that hands it packets; `None` if several do, or
/// if an end of a leg does.
pub(crate) fn feeders<'a>(
    directions: usize,
    routes: impl Iterator<Item = &'a Routes>,
) -> Vec<Option<u32>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Feeder {
        Unused,
        One(u32),
        Several,
    }
    let mut feeders = vec![Feeder::Unused; directions];
    let mut feed = |place: u32, feeder: Option<u32>| {
        if let Some(slot) = feeders.get_mut(place as usize) {
            *slot = match (*slot, feeder) {
                (Feeder::Unused, Some(feeder)) => Feeder::One(feeder),
                (Feeder::One(known), Some(feeder)) if known == feeder => *slot,
                _ => Feeder::Several,
            };
        }
    };
    for route in routes.flatten() {
        for (index, place) in route.iter().enumerate() {
            feed(*place, index.checked_sub(1).map(|before| route[before]));
        }
    }
    feeders
        .into_iter()
        .map(|feeder| match feeder {
            Feeder::One(place) => Some(place),
            Feeder::Unused | Feeder::Several => None,
        })
        .collect()
}
