//! The papers' evaluations on real kernels, in the lab.
//!
//! A paper is a [`LabPlan`]: points, at each of which arms are compared on one path. The arms of a
//! point alternate, so that what changes with time changes all of them; each finished run is kept
//! in a file, so that a second call goes on where the first was stopped.

mod beside;
mod bhole;
mod error;
mod figures;
mod hasegawa;
mod maki;
mod plan;
mod run;
mod shikama;
mod state;
mod statement;
mod subscribers;
mod tam;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::{Paper, Simulated};
pub use error::LaboratoryError;
pub use plan::{Arm, Extent, LabPlan, Place, Point};
pub use run::{Run, Transfer, Wire};
use state::Finished;
pub use statement::{Bound, Metric, Statement};

/// What is wanted from the lab.
#[derive(Debug, Clone, Default)]
pub struct LabEffort {
    /// How much is measured.
    pub extent: Extent,
    /// Only this item, such as "figure 9"; everything where there is none.
    pub item: Option<String>,
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
#[derive(Debug, Clone, Default)]
pub struct Laboratory {
    /// The records and the figures.
    pub figures: Simulated,
    /// Runs in all.
    pub runs: usize,
    /// Those of them that are void.
    pub void: usize,
}

/// What is measured of a paper.
///
/// # Errors
/// The lab has not the item that is asked for.
pub fn lab_plan(paper: Paper, effort: &LabEffort) -> Result<LabPlan, LaboratoryError> {
    let mut plan = match paper {
        Paper::Hasegawa => hasegawa::plan(effort.extent)?,
        Paper::Tam => tam::plan(effort.extent)?,
        Paper::Shikama => shikama::plan(effort.extent)?,
        Paper::Maki => maki::plan(effort.extent)?,
        Paper::Bhole => bhole::plan(effort.extent)?,
    };
    let mut known: Vec<&str> = plan.points.iter().map(|point| point.item).collect();
    known.dedup();
    let known = known.join(", ");
    plan.retain(effort.item.as_deref());
    match &effort.item {
        Some(item) if plan.points.is_empty() => Err(LaboratoryError::Item {
            paper,
            item: item.clone(),
            known,
        }),
        _ => Ok(plan),
    }
}

/// Measures what is wanted of a paper. The caller has moved the process into namespaces of its
/// own ([`midspan_lab`]). Void runs of an earlier call are made again.
///
/// # Errors
/// There is no such item, the lab fails, or the file of finished runs cannot be used. A
/// transfer that fails makes its run void.
pub fn laboratory(
    paper: Paper,
    effort: &LabEffort,
    progress: &mut dyn FnMut(LabProgress<'_>),
) -> Result<Laboratory, LaboratoryError> {
    let mut plan = lab_plan(paper, effort)?;
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
        .filter(|_| !effort.only_finished)
        .filter(|(point, arm, repetition)| is_left(&finished, point, arm, *repetition))
        .collect();
    let runs = plan.runs().count();
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
        .filter_map(|(point, arm, repetition)| finished.find(point, arm, repetition).cloned())
        .collect();
    Ok(Laboratory {
        figures: figures::tell(&plan, &made, effort.threads),
        runs,
        void: made.iter().filter(|run| run.void.is_some()).count(),
    })
}
