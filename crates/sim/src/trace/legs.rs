//! The names of connections in traces.

use midspan_units::{BitRate, TimeSpan};

use crate::scenario::{NodeId, Scenario, ScenarioError, routes};

/// The description of a leg in traces.
#[derive(Debug, Clone)]
pub(super) struct LegName {
    pub(super) flow: String,
    /// Counted from 1, in the direction of the data.
    pub(super) leg: usize,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) segment_size: u32,
    /// Segments whose gap is at most this belong to one burst.
    pub(super) burst_gap: TimeSpan,
}

/// All legs of a scenario, by the number of their connection.
///
/// # Errors
/// The scenario cannot be simulated.
pub(super) fn legs(scenario: &Scenario) -> Result<Vec<LegName>, ScenarioError> {
    let mut legs = Vec::new();
    for flow in scenario.flows() {
        let mut from = flow.from;
        for (leg, routes) in (1..).zip(routes(scenario, flow)?) {
            let split = flow.splits.get(leg - 1);
            let to = split.map_or(flow.to, |split| split.node);
            let before = leg
                .checked_sub(2)
                .and_then(|before| flow.splits.get(before));
            let sender = before.map_or(&flow.sender, |split| &split.outbound);
            let pacing = before
                .and_then(|split| split.relay.pacing)
                .or(sender.pacing_rate);
            let packet = u64::from(sender.segment_size) + u64::from(sender.header_size);
            let first = routes[0].first().copied();
            legs.push(LegName {
                flow: flow.name.clone(),
                leg,
                from,
                to,
                segment_size: sender.segment_size,
                burst_gap: match pacing {
                    // Under half of the pacing gap.
                    Some(rate) => half(rate.transmission_time(packet)),
                    // Back to back at the outbound link's rate.
                    None => first
                        .and_then(|place| rate_of(scenario, place))
                        .map_or(TimeSpan::ZERO, |rate| rate.transmission_time(packet)),
                },
            });
            from = to;
        }
    }
    Ok(legs)
}

/// The largest value that is less than half.
fn half(gap: TimeSpan) -> TimeSpan {
    TimeSpan::from_nanoseconds((gap.nanoseconds().saturating_sub(1)) / 2)
}

fn rate_of(scenario: &Scenario, place: u32) -> Option<BitRate> {
    let link = scenario.links.get(place as usize / 2)?;
    link.directions.get(place as usize % 2)?.state.rate
}
