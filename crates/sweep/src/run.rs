//! One run of a sweep, and how it is stored.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;

use midspan_path::Path;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT, RETRANSMISSIONS, SHARE_OF_LINK};
use midspan_records::{Quantity, RunKey, RunKind};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Case;
use crate::measure::{FlowRun, Measure};

/// Simulated runs in a [`Store`](midspan_records::Store).
///
/// Increase the version with every change after which any path has another result: the test
/// `results_change_only_with_the_version` finds such a change.
pub const RUNS: RunKind = RunKind {
    name: "sim",
    version: 4,
    before: None,
};

/// What a run can measure.
static QUANTITIES: [&Quantity; 4] = [&COMPLETION_TIME, &GOODPUT, &SHARE_OF_LINK, &RETRANSMISSIONS];

/// A run as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The commit of Midspan that made the run; empty if the build has none.
    #[serde(rename = "commit", default)]
    pub commit: String,
    /// The path's flows, in its order.
    #[serde(rename = "flows")]
    pub flows: Vec<StoredFlow>,
}

/// A flow of a run as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredFlow {
    /// The flow's name.
    #[serde(rename = "flow")]
    flow: String,
    /// The names of the quantities, and their values.
    #[serde(rename = "values", default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<(String, f64)>,
    /// Why the flow has no values.
    #[serde(rename = "reason", default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The best overlay route, if the case is the oracle; the chosen one, if nodes choose.
    #[serde(rename = "route", default, skip_serializing_if = "Option::is_none")]
    route: Option<String>,
}

impl StoredRun {
    /// The flows of a run over this path, to be stored.
    pub(crate) fn new(path: &Path, commit: &str, flows: &[FlowRun]) -> Self {
        let flows = flows.iter().map(|run| {
            let (values, reason) = match &run.outcome {
                Ok(measures) => {
                    let value = |one: &Measure| (one.quantity.name.to_string(), one.value);
                    (measures.iter().map(value).collect(), None)
                }
                Err(reason) => (Vec::new(), Some(reason.clone())),
            };
            StoredFlow {
                flow: path.flows[run.flow].name.clone(),
                values,
                reason,
                route: run.route.clone(),
            }
        });
        Self {
            commit: commit.to_owned(),
            flows: flows.collect(),
        }
    }

    /// The flows of a stored run over this path. `None` if the stored run does not fit the path, as
    /// in a file that was changed by hand: then it is made again.
    pub(crate) fn flows(&self, path: &Path) -> Option<Vec<FlowRun>> {
        let mut runs = Vec::with_capacity(self.flows.len());
        for stored in &self.flows {
            let flow = (path.flows.iter()).position(|flow| flow.name == stored.flow)?;
            let measure = |(name, value): &(String, f64)| {
                let quantity = QUANTITIES.iter().find(|one| one.name == *name)?;
                Some(Measure {
                    flow,
                    quantity,
                    value: *value,
                })
            };
            let outcome = match &stored.reason {
                Some(reason) => Err(reason.clone()),
                None => Ok(stored.values.iter().map(measure).collect::<Option<_>>()?),
            };
            let route = stored.route.clone();
            runs.push(FlowRun {
                flow,
                outcome,
                route,
            });
        }
        Some(runs)
    }
}

/// What distinguishes the runs of a point from those of others, without their seeds. `None` for a path
/// that no path file can have; its runs are not stored.
pub(crate) fn key_of_point(path: &Path, case: &Case) -> Option<RunKey> {
    let mut path = path.clone();
    path.description.clear();
    path.seed = 0;
    Some(
        RunKey::new()
            .with("path", path.to_text()?)
            .with("case", case),
    )
}

/// Some of the runs of a sweep, by their numbers from 0: points in their order, each in all cases, and of
/// each of these the repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// All runs.
    All,
    /// A part of equal size.
    Shard(Shard),
    /// The runs of these numbers.
    Runs(BTreeSet<usize>),
}

impl Part {
    /// Whether a run is in the part.
    pub(crate) fn has(&self, run: usize) -> bool {
        match self {
            Self::All => true,
            Self::Shard(shard) => shard.has(run),
            Self::Runs(runs) => runs.contains(&run),
        }
    }
}

/// A part of the runs of a sweep: those whose number, from 0, divided by `of` leaves the remainder
/// `number`. Written `0/4`, as the numbers of array jobs (`SLURM_ARRAY_TASK_ID`,
/// `JOB_COMPLETION_INDEX`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// Whether a run is in the part.
    const fn has(self, run: usize) -> bool {
        run as u64 % self.of as u64 == self.number as u64
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The text is no part of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is not K/N with a whole number K from 0 to N - 1, as in 0/4")]
pub struct NoShard(String);

impl FromStr for Shard {
    type Err = NoShard;

    fn from_str(text: &str) -> Result<Self, NoShard> {
        let parsed = || {
            let (number, of) = text.split_once('/')?;
            let (number, of) = (number.trim().parse().ok()?, of.trim().parse().ok()?);
            (number < of).then_some(Self { number, of })
        };
        parsed().ok_or_else(|| NoShard(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_every_run_once() {
        let shards: Vec<Shard> = (0..3).map(|k| format!("{k}/3").parse().unwrap()).collect();
        for run in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.has(run)).count(), 1);
            assert!(Part::All.has(run));
        }
        assert_eq!(shards[2].to_string(), "2/3");
        for wrong in ["", "1", "/", "3/3", "0/0", "-1/3", "1/2/3", "a/b"] {
            let error = wrong.parse::<Shard>().unwrap_err();
            assert!(error.to_string().contains("0/4"), "{error}");
        }
    }
}
