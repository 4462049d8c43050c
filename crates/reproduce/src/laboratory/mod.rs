//! The papers' evaluations on real kernels, in the lab.
//!
//! A paper is a [`LabPlan`]: points, at each of which arms are compared on one path. The arms of a
//! point alternate, so that what changes with time changes all of them; each finished run is kept
//! in a file, so that a second call goes on where the first was stopped.

mod beside;
mod error;
mod figures;
mod judging;
pub(crate) mod plan;
mod real_paths;
mod run;
mod state;
mod statement;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::Simulated;
pub use error::LaboratoryError;
pub use figures::Judged;
pub use plan::{Arm, Extent, LabPlan, Place, Point};
pub use run::{Run, Transfer, Wire};
use state::Finished;
pub use statement::{Metric, Statement};

/// What is wanted from the lab.
#[derive(Debug, Clone, Default)]
pub struct LabEffort {
    /// How much is measured.
    pub extent: Extent,
    /// Only this item, such as "figure 9"; everything where there is none.
    pub item: Option<String>,
    /// Of real paths, only these transfers, such as "1 MB"; all where there is none.
    pub transfers: Vec<String>,
    /// How often each arm is measured, in place of what the extent says.
    pub repetitions: Option<u32>,
    /// The file that keeps finished runs.
    pub state: Option<PathBuf>,
    /// Measure nothing more: tell what the file has.
    pub only_finished: bool,
    /// Threads of the simulations beside the measurements.
    pub threads: usize,
}

/// What happens now, for whoever waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LabProgress<'a> {
    /// So much is to be done.
    Planned {
        /// Runs in all.
        runs: usize,
        /// Those of them that an earlier call finished.
        finished: usize,
        /// Seconds that the others are expected to take.
        seconds: f64,
    },
    /// A run begins.
    Begin(&'a str),
    /// Something about it.
    Say(&'a str),
}

/// What comes out.
#[derive(Debug, Clone)]
pub struct Laboratory {
    /// What was measured.
    pub plan: LabPlan,
    /// The records and the figures.
    pub figures: Simulated,
    /// The statements with a bound.
    pub judged: Vec<Judged>,
    /// Runs in all.
    pub runs: usize,
    /// Those of them that are void.
    pub void: usize,
}

/// What is measured of real paths: downloads, uploads and pages without a hand-set value, beside
/// direct connections and HAProxy with hand-set ones.
///
/// # Errors
/// There is no such path or transfer.
pub fn real_paths(effort: &LabEffort) -> Result<LabPlan, LaboratoryError> {
    wanted(real_paths::plan(effort)?, "the real paths", effort)
}

/// The part of a plan that `effort` selects, with its repetitions; `of` names the plan in errors.
///
/// # Errors
/// The plan does not contain the item.
pub(crate) fn wanted(
    mut plan: LabPlan,
    of: &'static str,
    effort: &LabEffort,
) -> Result<LabPlan, LaboratoryError> {
    if let Some(item) = &effort.item {
        let known = distinct(plan.points.iter().map(|point| point.item));
        plan.points.retain(|point| point.item == item);
        if plan.points.is_empty() {
            return Err(LaboratoryError::Item {
                what: "item",
                of,
                item: item.clone(),
                known,
            });
        }
    }
    if let Some(repetitions) = effort.repetitions {
        for point in &mut plan.points {
            point.repetitions = repetitions;
        }
    }
    Ok(plan)
}

/// Each name once, for those who asked for another.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known.join(", ")
}

/// Measures what is planned. The caller has moved the process into namespaces of its
/// own ([`midspan_lab`]). Void runs of an earlier call are made again.
///
/// # Errors
/// The lab fails, or the file of finished runs cannot be used. A
/// transfer that fails makes its run void.
pub fn laboratory(
    mut plan: LabPlan,
    effort: &LabEffort,
    progress: &mut dyn FnMut(LabProgress<'_>),
) -> Result<Laboratory, LaboratoryError> {
    let mut finished = Finished::open(effort.state.as_deref())?;
    if effort.only_finished {
        plan.retain_runs(|point, arm, repetition| finished.find(point, arm, repetition).is_some());
    }
    let is_left = |finished: &Finished, point: &Point, arm: &Arm, repetition| {
        let found = finished.find(point, arm, repetition);
        found.is_none_or(|run| run.void.is_some())
    };
    let left: Vec<(&Point, &Arm, u32)> = plan
        .runs()
        .into_iter()
        .filter(|_| !effort.only_finished)
        .filter(|(point, arm, repetition)| is_left(&finished, point, arm, *repetition))
        .collect();
    let runs = plan.runs().len();
    progress(LabProgress::Planned {
        runs,
        finished: runs - left.len(),
        // An empty sum of floats is −0.
        seconds: left
            .iter()
            .fold(0.0, |sum, (_, arm, _)| sum + arm.run_seconds()),
    });
    for (point, arm, repetition) in left {
        let name = format!(
            "{}, {}, repetition {}",
            point.name,
            arm.name,
            repetition + 1
        );
        progress(LabProgress::Begin(&name));
        let made = run::make(&point.name, arm, repetition, &mut |line| {
            progress(LabProgress::Say(line));
        })?;
        progress(LabProgress::Say(&made.line(arm)));
        finished.add(made)?;
    }
    let made: Vec<Run> = plan
        .runs()
        .into_iter()
        .filter_map(|(point, arm, repetition)| finished.find(point, arm, repetition).cloned())
        .collect();
    let (figures, judged) = figures::tell(&plan, &made, effort.threads);
    Ok(Laboratory {
        plan,
        figures,
        judged,
        runs,
        void: made.iter().filter(|run| run.void.is_some()).count(),
    })
}
