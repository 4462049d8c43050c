//! Runs of the cases, and their results.

use midspan_records::{Record, statistics};
use midspan_sweep::in_parallel;
use midspan_units::TimeSpan;

use super::scenario::Case;
use crate::run::{number, simulated};
use crate::{Effort, Error};

/// How often and how long each case runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    count: usize,
    /// The time from which on a run is measured.
    warm_up: TimeSpan,
    end: TimeSpan,
    threads: usize,
}

impl Runs {
    /// Ten runs of `seconds`; with `quick`, three runs of a fifth of that. The first fifth of each
    /// run is not measured.
    pub(super) const fn of(effort: &Effort, seconds: u64) -> Self {
        let (count, seconds) = if effort.quick {
            (3, seconds / 5)
        } else {
            (10, seconds)
        };
        Self {
            count,
            warm_up: TimeSpan::from_seconds(seconds / 5),
            end: TimeSpan::from_seconds(seconds),
            threads: effort.threads,
        }
    }
}

/// Throughput of all runs of a case, in bit/s. Runs with the same index have the same losses.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured(Vec<f64>);

impl Measured {
    pub(super) fn mean(&self) -> f64 {
        statistics::mean(&self.0).map_or(0.0, |mean| mean.value)
    }

    /// The ratio of this throughput to that of `other`, run by run.
    pub(super) fn over(&self, other: &Self) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(ours, theirs)| ours / theirs).collect())
    }

    /// The ratio of this throughput to a fixed value.
    pub(super) fn over_fixed(&self, other: f64) -> Self {
        Self(self.0.iter().map(|value| value / other).collect())
    }

    /// The mean as a record, with its 95 % interval.
    pub(super) fn record(&self, item: &str, case: &str, quantity: &str, unit: &str) -> Record {
        let record = simulated(item, case, quantity, unit, self.mean());
        match statistics::mean(&self.0).and_then(|mean| mean.interval()) {
            Some((low, high)) => record.with_spread(low, high),
            None => record,
        }
    }
}

/// Variance over mean (the index of dispersion) of the packets that a case delivers in windows of
/// `seconds`, one value for each run. A Poisson process has 1.
pub(super) fn dispersion(case: &Case, runs: Runs, seconds: u64) -> Result<Measured, Error> {
    let window = TimeSpan::from_seconds(seconds);
    let indices = in_parallel(
        runs.count,
        runs.threads,
        |run| {
            let counts = case.packets(run as u64 + 1, runs.warm_up, runs.end, window)?;
            let mean = statistics::mean(&counts).map_or(0.0, |mean| mean.value);
            let squares = counts.iter().map(|count| (count - mean).powi(2));
            let variance = squares.sum::<f64>() / (number(counts.len() as u64) - 1.0);
            Ok::<f64, Error>(variance / mean)
        },
        |_| {},
    )?;
    Ok(Measured(indices))
}

/// Measures all cases, on all cores. Calls `done` after each run, with the index of its case.
pub(super) fn measure(
    cases: &[Case],
    runs: Runs,
    mut done: impl FnMut(usize),
) -> Result<Vec<Measured>, Error> {
    let throughputs = in_parallel(
        cases.len() * runs.count,
        runs.threads,
        |run| {
            cases[run / runs.count].throughput(
                (run % runs.count) as u64 + 1,
                runs.warm_up,
                runs.end,
            )
        },
        |run| done(run / runs.count),
    )?;
    Ok(throughputs
        .chunks(runs.count)
        .map(|runs| Measured(runs.to_vec()))
        .collect())
}
