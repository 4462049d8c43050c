//! Routes through the links.

use std::collections::VecDeque;
use std::sync::Arc;

use midspan_link::Direction;
use midspan_units::TimeSpan;

use super::{Flow, LinkId, NodeId, Scenario, ScenarioError};

/// The place of a direction of a link in the event queue.
pub(crate) fn place_of(link: LinkId, direction: Direction) -> u32 {
    // The number of places was checked before.
    u32::try_from(2 * link.0).unwrap_or(u32::MAX) + u32::from(direction == Direction::Down)
}

/// The route of a leg's data, and the route back.
pub(crate) type Routes = [Arc<[u32]>; 2];

/// The routes of all legs of a flow: those with the fewest links, and among these the one whose
/// links were added first.
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
    let forward = nodes_between(scenario, name, from, to)?;
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

fn nodes_between(
    scenario: &Scenario,
    flow: &str,
    from: NodeId,
    to: NodeId,
) -> Result<Vec<u32>, ScenarioError> {
    // Searched from the far end, so that each node gets its own next step towards it.
    let mut towards: Vec<Option<(u32, NodeId)>> = vec![None; scenario.nodes.len()];
    let mut reached = VecDeque::from([to]);
    while let Some(node) = reached.pop_front() {
        for (place, before) in into_node(scenario, node) {
            if before != to && towards[before.0].is_none() {
                towards[before.0] = Some((place, node));
                reached.push_back(before);
            }
        }
    }
    let mut places = Vec::new();
    let mut node = from;
    while let Some((place, next)) = towards.get(node.0).copied().flatten() {
        places.push(place);
        node = next;
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

/// The link directions that lead into a node, each with the node that it comes from.
fn into_node(scenario: &Scenario, node: NodeId) -> impl Iterator<Item = (u32, NodeId)> {
    let links = scenario.links.iter().enumerate();
    links.filter_map(move |(index, link)| {
        let [first, second] = link.between;
        if second == node {
            Some((place_of(LinkId(index), Direction::Up), first))
        } else if first == node {
            Some((place_of(LinkId(index), Direction::Down), second))
        } else {
            None
        }
    })
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
