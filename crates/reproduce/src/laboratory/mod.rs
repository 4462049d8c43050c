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
mod statement;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use midspan_records::{RunKey, RunKind, Store};

use crate::Simulated;
pub use error::LaboratoryError;
pub use figures::Judged;
pub use plan::{Arm, Extent, LabPlan, Place, Point};
pub use run::{Run, Transfer, Wire};
pub use statement::{Metric, Statement};

/// The stored runs of the lab. Increase the version if the lab or the meaning of a [`Run`] changes.
const RUNS: RunKind = RunKind {
    name: "lab",
    version: 1,
    before: Some("{\"point\":"),
};

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
    /// Something about the stored runs, before anything is planned.
    Note(&'a str),
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
    let mut store: Store<Run> = match &effort.state {
        Some(file) => Store::open(file, RUNS)?,
        None => Store::in_memory(RUNS),
    };
    if let Some(note) = store.note() {
        progress(LabProgress::Note(&note));
    }
    if effort.only_finished {
        plan.retain_runs(|_, arm, repetition| {
            let key = arm.key(repetition);
            key.is_some_and(|key| store.get(&key).is_some())
        });
    }
    let planned = planned(&plan)?;
    let left: Vec<&Planned<'_>> = planned
        .iter()
        .filter(|_| !effort.only_finished)
        .filter(|one| store.get(&one.key).is_none_or(|run| run.void.is_some()))
        .collect();
    let runs = planned.len();
    progress(LabProgress::Planned {
        runs,
        finished: runs - left.len(),
        // An empty sum of floats is −0.
        seconds: left
            .iter()
            .fold(0.0, |sum, one| sum + one.arm.run_seconds()),
    });
    for Planned {
        point,
        arm,
        repetition,
        key,
    } in left
    {
        let name = format!(
            "{}, {}, repetition {}",
            point.name,
            arm.name,
            repetition + 1
        );
        progress(LabProgress::Begin(&name));
        let made = run::make(&point.name, arm, *repetition, &mut |line| {
            progress(LabProgress::Say(line));
        })?;
        progress(LabProgress::Say(&made.line(arm)));
        store.put(key, made)?;
    }
    let made: Vec<Run> = planned.iter().filter_map(|one| one.made(&store)).collect();
    let (figures, judged) = figures::tell(&plan, &made, effort.threads);
    Ok(Laboratory {
        plan,
        figures,
        judged,
        runs,
        void: made.iter().filter(|run| run.void.is_some()).count(),
    })
}

/// A run of the plan.
struct Planned<'a> {
    point: &'a Point,
    arm: &'a Arm,
    repetition: u32,
    key: RunKey,
}

impl Planned<'_> {
    /// The run, if it has been made. It has the names that the plan has now.
    fn made(&self, store: &Store<Run>) -> Option<Run> {
        let run = store.get(&self.key)?.clone();
        Some(Run {
            point: self.point.name.clone(),
            arm: self.arm.name.to_owned(),
            ..run
        })
    }
}

/// All runs of a plan, with their keys.
fn planned(plan: &LabPlan) -> Result<Vec<Planned<'_>>, LaboratoryError> {
    plan.runs()
        .into_iter()
        .map(|(point, arm, repetition)| {
            let key = arm
                .key(repetition)
                .ok_or_else(|| LaboratoryError::Unwritable {
                    case: point.case(arm),
                })?;
            Ok(Planned {
                point,
                arm,
                repetition,
                key,
            })
        })
        .collect()
}
