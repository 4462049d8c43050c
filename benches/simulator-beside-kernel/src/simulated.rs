//! A run in the simulator.

use midspan_path::Path;
use midspan_records::statistics::quantile;
use midspan_sim::{NoObserver, Scenario, Simulation};
use midspan_units::{Time, TimeSpan, number};

use crate::{Failure, Run};

/// Runs the path's flow once, with the seed of the lab's repetition.
pub fn run(path: &Path, repetition: u32) -> Result<Run, Failure> {
    let mut path = path.clone();
    path.seed = path.seed.wrapping_add(u64::from(repetition));
    let made = Scenario::from_path(&path, false)?;
    let made = made.first().ok_or("a path without a scenario")?;
    let flow = made
        .flows
        .first()
        .and_then(|parts| parts.data.first())
        .copied()
        .ok_or("a scenario without a flow")?;
    let mut simulation = Simulation::observed(&made.scenario, NoObserver)?;
    let mut round_trips = Vec::new();
    let mut at = TimeSpan::ZERO;
    while at < made.scenario.duration {
        at = at + TimeSpan::from_seconds(1);
        simulation.run_until(at);
        let sender = simulation.sender(flow, 0);
        let smoothed = sender.and_then(midspan_sim::tcp::Sender::round_trip_time);
        round_trips.extend(smoothed.map(|time| time.as_seconds()));
    }
    let results = simulation.run();
    let of = results.flows.get(flow.0).ok_or("no result")?;
    let sender = of.legs.first().ok_or("a flow without legs")?.sender;
    let end = of.finished.unwrap_or(results.until);
    Ok(Run {
        goodput: number(of.delivered) * 8.0 / end.since(Time::ZERO).as_seconds(),
        segments: number(sender.segments),
        again: number(sender.retransmissions),
        round_trip: quantile(&round_trips, 0.5),
        void: None,
    })
}
