//! The papers' evaluations on real kernels, in the lab.
//!
//! A figure of a paper has [`Point`]s. At each point, several [`Case`]s of the lab are compared. The
//! cases of a point alternate, so that a slow change of the machine affects all of them. If
//! [`LabEffort::state`] names a file, each finished run is stored there, and a second execution makes
//! only the runs that are missing or void.

mod beside;
mod dismissal;
mod error;
mod figures;
mod judging;
pub mod origin;
pub(crate) mod point;
pub mod real_paths;
mod run;
mod statement;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use midspan_records::{RunKey, RunKind, Store};

use crate::Simulated;
pub use error::LaboratoryError;
pub use figures::Judged;
pub use midspan_lab::Case;
pub use point::{Extent, Place, Point};
pub use run::{Run, Transfer, Wire};
pub use statement::{Metric, Statement};

/// The stored runs of the lab. Increase the version if the lab or the meaning of a [`Run`] changes.
const RUNS: RunKind = RunKind {
    name: "lab",
    version: 1,
    before: Some("{\"point\":"),
};

/// The options of a measurement in the lab.
#[derive(Debug, Clone, Default)]
pub struct LabEffort {
    /// How much is measured.
    pub extent: Extent,
    /// Only this item, such as "figure 9"; with `None`, all items.
    pub item: Option<String>,
    /// For real paths, only these transfers, such as "1 MB"; all if the list is empty.
    pub transfers: Vec<String>,
    /// The number of repetitions of each case, in place of the extent's.
    pub repetitions: Option<u32>,
    /// The file that stores finished runs.
    pub state: Option<PathBuf>,
    /// Measure nothing more, and report only the stored runs.
    pub only_finished: bool,
    /// Threads for the simulations that accompany the measurements.
    pub threads: usize,
}

/// The progress of a measurement, for the person who waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LabProgress<'a> {
    /// The runs are known.
    Planned {
        /// The number of runs.
        runs: usize,
        /// The number of runs that are stored already.
        finished: usize,
        /// Seconds that the other runs are expected to take.
        seconds: f64,
    },
    /// A run begins.
    Begin(&'a str),
    /// A message about the current run.
    Say(&'a str),
    /// A message about the stored runs, before the others are known.
    Note(&'a str),
}

/// The result of a measurement in the lab.
#[derive(Debug, Clone)]
pub struct Laboratory {
    /// The points that were measured.
    pub points: Vec<Point>,
    /// The records and the figures.
    pub figures: Simulated,
    /// The statements with a bound.
    pub judged: Vec<Judged>,
    /// The number of runs.
    pub runs: usize,
    /// The number of void runs.
    pub void: usize,
}

/// Those of the points that `effort` selects, with its repetitions; `of` names the points in errors.
///
/// # Errors
/// No point has the item.
pub(crate) fn wanted(
    mut points: Vec<Point>,
    of: &'static str,
    effort: &LabEffort,
) -> Result<Vec<Point>, LaboratoryError> {
    if let Some(item) = &effort.item {
        let known = distinct(points.iter().map(|point| point.item));
        points.retain(|point| point.item == item);
        if points.is_empty() {
            return Err(LaboratoryError::Item {
                what: "item",
                of,
                item: item.clone(),
                known,
            });
        }
    }
    if let Some(repetitions) = effort.repetitions {
        for point in &mut points {
            point.repetitions = repetitions;
        }
    }
    Ok(points)
}

/// Each name once, for an error message that lists the available names.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known.join(", ")
}

/// Measures the runs of the points that are not stored, or are stored as void; with
/// [`LabEffort::only_finished`], none. The caller has moved the process into namespaces of its own
/// ([`midspan_lab`]).
///
/// # Errors
/// The lab fails, the file of stored runs cannot be used, or no path file can describe the path of a
/// case. A transfer that fails is no error: its run is void.
pub fn laboratory(
    mut points: Vec<Point>,
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
        let is_stored = |case: &Case, repetition| {
            let key = case.run_key(repetition);
            key.is_some_and(|key| store.get(&key).is_some())
        };
        let has_stored = |point: &Point| point.runs().any(|(_, case, run)| is_stored(case, run));
        points.retain(has_stored);
    }
    let planned = planned(&points)?;
    let left: Vec<&Planned<'_>> = planned
        .iter()
        .filter(|_| !effort.only_finished)
        .filter(|one| store.get(&one.key).is_none_or(|run| run.void.is_some()))
        .filter(|one| !dismissal::is_dismissed(one.point, one.case, one.repetition, &store))
        .collect();
    let runs = planned.len();
    progress(LabProgress::Planned {
        runs,
        finished: runs - left.len(),
        // An empty sum of floats is −0.
        seconds: left
            .iter()
            .fold(0.0, |sum, one| sum + one.case.run_seconds()),
    });
    for Planned {
        point,
        case,
        repetition,
        key,
    } in left
    {
        if dismissal::is_dismissed(point, case, *repetition, &store) {
            continue;
        }
        let name = format!(
            "{}, {}, repetition {}",
            point.name,
            case.name,
            repetition + 1
        );
        progress(LabProgress::Begin(&name));
        let made = run::make(&point.name, case, *repetition, &mut |line| {
            progress(LabProgress::Say(line));
        })?;
        progress(LabProgress::Say(&made.line(case)));
        store.put(key, made)?;
    }
    let made: Vec<Run> = planned.iter().filter_map(|one| one.made(&store)).collect();
    let (figures, judged) = figures::tell(&points, &made, effort.threads);
    Ok(Laboratory {
        points,
        figures,
        judged,
        runs,
        void: made.iter().filter(|run| run.void.is_some()).count(),
    })
}

/// A run that belongs to the points.
struct Planned<'a> {
    point: &'a Point,
    case: &'a Case,
    repetition: u32,
    key: RunKey,
}

impl Planned<'_> {
    /// The stored run, if there is one. It gets the names of its present point and case.
    fn made(&self, store: &Store<Run>) -> Option<Run> {
        let run = store.get(&self.key)?.clone();
        Some(Run {
            point: self.point.name.clone(),
            case: self.case.name.to_owned(),
            ..run
        })
    }
}

/// All runs of the points, with their keys.
fn planned(points: &[Point]) -> Result<Vec<Planned<'_>>, LaboratoryError> {
    point::runs(points)
        .into_iter()
        .map(|(point, case, repetition)| {
            let unwritable = || LaboratoryError::Unwritable {
                case: point.name_of(case),
            };
            let key = case.run_key(repetition).ok_or_else(unwritable)?;
            Ok(Planned {
                point,
                case,
                repetition,
                key,
            })
        })
        .collect()
}
