//! Runs of the settings, and their results.

use midspan_sweep::in_parallel;
use midspan_units::TimeSpan;

use super::NARROW;
use super::bursts::Bursts;
use super::scenario::{Scheme, Setting};
use crate::run::number;
use crate::{Effort, Error};

pub(super) const SCHEMES: [Scheme; 3] = [Scheme::A, Scheme::B, Scheme::C];

/// The duration of a run, and the number of runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    pub(super) duration: TimeSpan,
    pub(super) count: u64,
}

impl Runs {
    /// The paper's duration and number of runs.
    const FULL: Self = Self {
        duration: TimeSpan::from_seconds(1000),
        count: 10,
    };
    const QUICK: Self = Self {
        duration: TimeSpan::from_seconds(100),
        count: 2,
    };

    pub(super) const fn of(effort: &Effort) -> Self {
        if effort.quick {
            Self::QUICK
        } else {
            Self::FULL
        }
    }

    /// Whether runs are as long as the paper's.
    pub(super) fn are_full(self) -> bool {
        self.duration >= Self::FULL.duration
    }
}

/// All runs of a setting.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Throughput in bit/s of each run. Runs with the same index have the same losses.
    pub(super) throughputs: Vec<f64>,
    /// Packets that arrived at the queue of n2, and those that found it full.
    pub(super) handled: u64,
    pub(super) drops: u64,
    pub(super) bursts: Bursts,
}

impl Measured {
    pub(super) fn mean(&self) -> f64 {
        self.throughputs.iter().sum::<f64>() / number(self.throughputs.len() as u64)
    }

    /// The share of packets that were lost on the wired section.
    pub(super) fn loss(&self) -> f64 {
        number(self.drops) / number(self.handled.max(1))
    }
}

/// Measures all settings, on all cores.
pub(super) fn measure(
    settings: &[Setting],
    runs: Runs,
    threads: usize,
    mut done: impl FnMut(&Setting),
) -> Result<Vec<Measured>, Error> {
    let count = usize::try_from(runs.count).unwrap_or(1).max(1);
    let results = in_parallel(
        settings.len() * count,
        threads,
        |run| settings[run / count].run((run % count) as u64 + 1, runs.duration),
        |run| done(&settings[run / count]),
    )?;
    let mut measured: Vec<Measured> = Vec::new();
    for (run, (results, watch)) in results.into_iter().enumerate() {
        if run % count == 0 {
            measured.push(Measured::default());
        }
        let Some(setting) = measured.last_mut() else {
            continue;
        };
        let bits = number(results.flows[0].delivered * 8);
        setting.throughputs.push(bits / runs.duration.as_seconds());
        let narrow = &results.links[NARROW.0].up;
        setting.handled += narrow.handled.packets;
        setting.drops += narrow.queue_full.packets;
        setting.bursts.add(watch);
    }
    Ok(measured)
}
