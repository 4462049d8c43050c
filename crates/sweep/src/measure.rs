//! The results of one simulated run of a path.

use midspan_path::Path;
use midspan_records::Quantity;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT, RETRANSMISSIONS, SHARE_OF_LINK};
use midspan_sim::{
    FlowResults, NoObserver, Observer, PathFlowParts, PathScenario, Results, ScenarioError,
    Simulation, StopReason,
};
use midspan_units::{BitRate, Time, number};

use crate::{Case, Error};

/// One number of one flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// The flow, by its index in the path.
    pub flow: usize,
    /// The quantity that was measured.
    pub quantity: &'static Quantity,
    /// The number.
    pub value: f64,
}

/// One flow of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowRun {
    /// The flow, by its index in the path.
    pub flow: usize,
    /// What was measured; or why the flow can never finish.
    pub outcome: Result<Vec<Measure>, String>,
    /// The best overlay route, if the case is the oracle; the chosen one, if nodes choose.
    pub route: Option<String>,
}

/// Runs a path in one case, and measures every flow. `observe` is called before each
/// scenario. If it returns an observer, `seen` gets this observer back with the results; with `None`,
/// the scenario runs without an observer, and `seen` is not called for it.
///
/// # Errors
/// The path cannot be simulated, `observe` fails, or a flow can never finish or reaches the limit of
/// events.
pub fn measure<O: Observer>(
    path: &Path,
    case: &Case,
    observe: impl FnMut(&PathScenario) -> Result<Option<O>, Error>,
    seen: impl FnMut(O, &Results),
) -> Result<Vec<Measure>, Error> {
    let mut measures = Vec::new();
    for run in measure_flows(path, case, observe, seen)? {
        let measured = run.outcome.map_err(|reason| Error::NeverFinishes {
            path: path.name.clone(),
            flow: path.flows[run.flow].name.clone(),
            reason,
        })?;
        measures.extend(measured);
    }
    Ok(measures)
}

/// As [`measure`]. A flow that can never finish does not hide the results of the others.
///
/// # Errors
/// The path cannot be simulated.
pub fn measure_flows<O: Observer>(
    path: &Path,
    case: &Case,
    mut observe: impl FnMut(&PathScenario) -> Result<Option<O>, Error>,
    mut seen: impl FnMut(O, &Results),
) -> Result<Vec<FlowRun>, Error> {
    let refused = |error: ScenarioError| Error::Scenario {
        path: path.name.clone(),
        error,
    };
    let mut best: Vec<FlowRun> = Vec::new();
    let alternatives = case.alternatives(path);
    for alternative in alternatives.map_err(|error| refused(error.into()))? {
        let route = alternative.route().filter(|_| *case == Case::Oracle);
        for made in alternative.scenarios(path).map_err(refused)? {
            let results = match observe(&made)? {
                None => Simulation::observed(&made.scenario, NoObserver)
                    .map_err(refused)?
                    .run(),
                Some(observer) => {
                    let watched = Simulation::link_by_link(&made.scenario, observer);
                    let mut simulation = watched.map_err(refused)?;
                    let results = simulation.run();
                    seen(simulation.into_observer(), &results);
                    results
                }
            };
            for parts in made.flows.iter().filter(|parts| is_used(parts, &results)) {
                let chosen = parts
                    .route
                    .as_ref()
                    .map(|route| path.overlay_route_text(route));
                let run = FlowRun {
                    flow: parts.flow,
                    outcome: of_flow(path, parts, &results),
                    route: chosen.or_else(|| route.map(str::to_owned)),
                };
                match best.iter_mut().find(|known| known.flow == run.flow) {
                    None => best.push(run),
                    Some(known) if run.is_better_than(known) => *known = run,
                    Some(_) => {}
                }
            }
        }
    }
    Ok(best)
}

impl FlowRun {
    /// Whether a flow took less time, or got more in the same time, than in another run. A flow that
    /// never finishes is the worst.
    fn is_better_than(&self, other: &Self) -> bool {
        match (&self.outcome, &other.outcome) {
            (Ok(own), Ok(other)) => rank(own) < rank(other),
            (Ok(_), Err(_)) => true,
            (Err(_), _) => false,
        }
    }
}

/// The less, the better: the completion time, or the goodput with a minus.
fn rank(measures: &[Measure]) -> f64 {
    let of = |quantity: &'static Quantity| {
        let mut measures = measures.iter();
        measures
            .find(|one| one.quantity == quantity)
            .map(|one| one.value)
    };
    let goodput = || of(&GOODPUT).map_or(f64::INFINITY, |goodput| -goodput);
    of(&COMPLETION_TIME).unwrap_or_else(goodput)
}

/// Whether these parts of a scenario carry their flow: not if it has taken another overlay route.
fn is_used(parts: &PathFlowParts, results: &Results) -> bool {
    let mut flows = parts.data.iter().filter_map(|id| results.flows.get(id.0));
    !flows.any(|flow| flow.unused)
}

/// What was measured of a flow, or why it can never finish.
fn of_flow(path: &Path, parts: &PathFlowParts, results: &Results) -> Result<Vec<Measure>, String> {
    let mut measures = Vec::new();
    let flow = &path.flows[parts.flow];
    let of = |ids: &[midspan_sim::FlowId]| -> Vec<&FlowResults> {
        ids.iter()
            .filter_map(|id| results.flows.get(id.0))
            .collect()
    };
    let (data, requests) = (of(&parts.data), of(&parts.requests));
    let delivered: u64 = data.iter().map(|flow| flow.delivered).sum();
    if let Some(reason) = hindrance(results, delivered, data.iter().chain(&requests)) {
        return Err(reason);
    }
    let ends = data
        .iter()
        .map(|flow| flow.finished.unwrap_or(results.until));
    let end = ends.max().unwrap_or(results.until);
    let span = end.since(Time::ZERO + flow.start);
    let mut push = |quantity, value| {
        measures.push(Measure {
            flow: parts.flow,
            quantity,
            value,
        });
    };
    if flow.workload.total_size().is_some() {
        push(&COMPLETION_TIME, span.as_seconds());
    }
    if let Some(goodput) = BitRate::from_transfer(delivered, span) {
        let goodput = number(goodput.bits_per_second());
        push(&GOODPUT, goodput);
        if let Some(rate) = path.data_rate(flow) {
            let share = goodput / number(rate.bits_per_second());
            push(&SHARE_OF_LINK, share);
        }
    }
    let legs = data.iter().chain(&requests).flat_map(|flow| &flow.legs);
    let again: u64 = legs.map(|leg| leg.sender.retransmissions).sum();
    push(&RETRANSMISSIONS, number(again));
    Ok(measures)
}

/// Why a flow has not finished and never will.
fn hindrance<'a>(
    results: &Results,
    delivered: u64,
    mut flows: impl Iterator<Item = &'a &'a FlowResults>,
) -> Option<String> {
    let gave_up = flows.find_map(|flow| flow.gave_up);
    if let Some(gave_up) = gave_up {
        return Some(format!(
            "can never finish: leg {} was given up after {:.0} s, because many time-outs in a row had \
             no answer; {delivered} bytes had arrived",
            gave_up.leg + 1,
            gave_up.at.since(Time::ZERO).as_seconds()
        ));
    }
    let until = results.until.since(Time::ZERO);
    match results.stop {
        StopReason::Stalled => Some(format!(
            "can never finish: there is no further event after {until}; {delivered} bytes had arrived"
        )),
        StopReason::EventLimit => Some(format!("reached the limit of events at {until}")),
        StopReason::TimeIsUp | StopReason::Finished => None,
    }
}
