//! Sources, traffic and dialogues.

use super::check_nodes;
use crate::random::Distribution;
use crate::scenario::{Dialogue, Flow, Pattern, Scenario, ScenarioError, Source, Traffic};

fn error(place: String, setting: &'static str, problem: &str) -> ScenarioError {
    ScenarioError::Setting {
        place,
        setting,
        problem: problem.to_owned(),
    }
}

fn check_distribution(
    place: &str,
    setting: &'static str,
    distribution: Distribution,
) -> Result<(), ScenarioError> {
    let (mean, shape) = match distribution {
        Distribution::Constant(mean) | Distribution::Exponential { mean } => (mean, 2.0),
        Distribution::Pareto { mean, shape } => (mean, shape),
    };
    if !mean.is_finite() || mean < 0.0 {
        let problem = format!("has a mean of {mean}; it must be a number from 0 on");
        return Err(error(place.to_owned(), setting, &problem));
    }
    if !shape.is_finite() || shape <= 1.0 {
        let problem = format!("has a shape of {shape}; it must be above 1, or there is no mean");
        return Err(error(place.to_owned(), setting, &problem));
    }
    Ok(())
}

pub(super) fn check_source(flow: &Flow) -> Result<(), ScenarioError> {
    if let Source::OnOff { size, pause } = flow.source {
        let place = format!("flow \"{}\"", flow.name);
        check_distribution(&place, "the size", size)?;
        check_distribution(&place, "the pause", pause)?;
    }
    Ok(())
}

pub(super) fn check_traffic(scenario: &Scenario, traffic: &Traffic) -> Result<(), ScenarioError> {
    let place = format!("traffic \"{}\"", traffic.name);
    check_nodes(scenario, &place, &[traffic.from, traffic.to])?;
    if traffic.packet_size == 0 {
        let problem = "is 0 bytes; it must be at least 1";
        return Err(error(place, "the packet size", problem));
    }
    if traffic.end.is_some_and(|end| end < traffic.start) {
        return Err(error(place, "the end", "is before the start"));
    }
    if let Pattern::OnOff { on, off } = traffic.pattern {
        check_distribution(&place, "the time on", on)?;
        check_distribution(&place, "the time off", off)?;
        if matches!(on, Distribution::Constant(mean) if mean == 0.0) {
            return Err(error(place, "the time on", "is zero: it would never send"));
        }
    }
    Ok(())
}

pub(super) fn check_dialogue(
    scenario: &Scenario,
    dialogue: &Dialogue,
) -> Result<(), ScenarioError> {
    let of_flow = |flow: crate::scenario::FlowId| scenario.flows.get(flow.0);
    for flow in dialogue.connections.iter().flatten() {
        let known = of_flow(*flow).map(|flow| (flow.source, &flow.name));
        if !matches!(known, Some((Source::Dialogue, _))) {
            let name = known.map_or_else(|| flow.0.to_string(), |(_, name)| name.clone());
            let problem = "must be `Source::Dialogue`, because a dialogue uses this flow";
            return Err(error(format!("flow \"{name}\""), "the source", problem));
        }
    }
    let place = || {
        let first = dialogue
            .connections
            .first()
            .and_then(|pair| of_flow(pair[0]));
        let name = first.map_or("without flows", |flow| &flow.name);
        format!("dialogue \"{name}\"")
    };
    if dialogue.request.bytes() == 0 || dialogue.answer.bytes() == 0 {
        let problem = "is 0 bytes; it must be at least 1";
        return Err(error(place(), "a request or an answer", problem));
    }
    if dialogue.connections.is_empty() {
        return Err(error(place(), "the connections", "are missing"));
    }
    Ok(())
}
