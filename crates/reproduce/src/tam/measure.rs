//! Runs of the cable network, and their results.

use midspan_path::Path;
use midspan_records::{Record, statistics};
use midspan_sim::{NoObserver, Observer, Results, Scenario, Simulation, StopReason};
use midspan_sweep::in_parallel;
use midspan_units::TimeSpan;

use super::cable::{Download, Load, WARM_UP};
use crate::run::{number, simulated};
use crate::{Effort, Error};

/// Runs of each case. A mean over fewer runs is not meaningful, because users come and go in
/// bursts.
pub(super) const fn runs(effort: &Effort) -> u64 {
    if effort.quick { 12 } else { 100 }
}

/// The simulated time between two checks of the download.
const STEP: TimeSpan = TimeSpan::from_seconds(2);

/// Runs a scenario until its first flow has ended.
pub(super) fn until_first_flow_ends<O: Observer>(
    scenario: &Scenario,
    observer: O,
) -> Result<(Results, O), Error> {
    let mut simulation = Simulation::observed(scenario, observer)?;
    let mut until = WARM_UP;
    loop {
        until = until + STEP;
        let results = simulation.run_until(until);
        let ended = results
            .flows
            .first()
            .is_some_and(|flow| flow.finished.is_some());
        if ended {
            return Ok((results, simulation.into_observer()));
        }
        if results.stop != StopReason::TimeIsUp || until > scenario.duration {
            return Err(Error::Ended {
                until: results.until,
                reason: results.stop,
            });
        }
    }
}

/// The throughput of a download in bit/s, from its SYN to its last byte.
pub(super) fn throughput(scenario: &Scenario, results: &Results, size: u64) -> f64 {
    let start = midspan_units::Time::ZERO
        + scenario
            .flows()
            .first()
            .map_or(TimeSpan::ZERO, |flow| flow.start);
    let finished = results.flows.first().and_then(|flow| flow.finished);
    let span = finished.map_or(TimeSpan::ZERO, |at| at.since(start));
    number(8 * size) / span.as_seconds().max(1e-9)
}

/// The mean goodput of each user in bit/s, for downloads without end. Measured after the warm-up,
/// for as long as the warm-up.
fn steady(scenario: &Scenario) -> Result<f64, Error> {
    let mut simulation = Simulation::new(scenario)?;
    let delivered =
        |results: &Results| results.flows.iter().map(|flow| flow.delivered).sum::<u64>();
    let before = delivered(&simulation.run_until(WARM_UP));
    let after = delivered(&simulation.run_until(WARM_UP + WARM_UP));
    let users = number(scenario.flows().len().max(1) as u64);
    Ok(number(8 * (after - before)) / WARM_UP.as_seconds() / users)
}

/// The throughput of each run, for each download. Runs with the same index have the same users.
pub(super) fn throughputs(downloads: &[Download], effort: &Effort) -> Result<Vec<Vec<f64>>, Error> {
    let count = usize::try_from(runs(effort)).unwrap_or(1);
    let paths: Vec<Path> = downloads
        .iter()
        .map(Download::path)
        .collect::<Result<_, _>>()?;
    let all = in_parallel(
        downloads.len() * count,
        effort.threads,
        |run| {
            let download = &downloads[run / count];
            let seed = (run % count) as u64 + 1;
            let scenario = download.scenario(&paths[run / count], seed);
            if download.load == Load::Downloads {
                return steady(&scenario);
            }
            let (results, _) = until_first_flow_ends(&scenario, NoObserver)?;
            Ok::<f64, Error>(throughput(&scenario, &results, download.size))
        },
        |_| (),
    )?;
    Ok(all.chunks(count).map(<[f64]>::to_vec).collect())
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / number(values.len().max(1) as u64)
}

/// The mean throughput, with its interval.
pub(super) fn mean_record(item: &str, case: &str, values: &[f64]) -> Record {
    let record = simulated(item, case, "mean throughput", "bit/s", mean(values));
    match statistics::mean(values).and_then(|mean| mean.interval()) {
        Some((low, high)) => record.with_spread(low, high),
        None => record,
    }
}
