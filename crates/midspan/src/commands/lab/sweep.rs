//! `midspan lab PATH` with `--sweep` or `--state`: each case of each point is a run of its own, which is
//! stored as soon as it has ended.

use std::sync::atomic::Ordering;

use midspan_document::Sweep;
use midspan_lab::{
    Case, CaseKind, Measurement, Progress, Purpose, RUNS, StoredRun, comparison_records,
    flow_records, oracle,
};
use midspan_linux::namespace;
use midspan_path::Path;
use midspan_records::quantity::COMPLETION_TIME;
use midspan_records::{By, Record, RunKey, Store};
use midspan_sweep::Plan;
use miette::{IntoDiagnostic, miette};

use super::super::Outcome;
use super::super::choices::{interruption, overrides, sweeps};
use super::{Results, line_of, show, succeeded};
use crate::lab_arguments::LabRunOptions;
use crate::printing;
use crate::progress::Bar;

/// A combination of swept values.
struct Point {
    /// The values as text that follows a case's name; empty without `--sweep`.
    suffix: String,
    path: Path,
    cases: Vec<Case>,
}

/// A run of a case with all flows of the path.
struct Run<'a> {
    point: &'a Point,
    case: &'a Case,
    repetition: u32,
    key: RunKey,
}

/// A run in which a transfer failed.
struct Failure<'a> {
    run: &'a Run<'a>,
    reason: String,
}

impl Run<'_> {
    fn name(&self) -> String {
        let (case, repetition) = (self.case.name, self.repetition + 1);
        format!("{case}{}, repetition {repetition}", self.point.suffix)
    }

    /// The stored measurements, if the run has been made.
    fn made<'s>(&self, store: &'s Store<StoredRun>) -> Option<&'s StoredRun> {
        store.get(&self.key)
    }

    /// Whether the run has been made and counts.
    fn counts(&self, store: &Store<StoredRun>) -> bool {
        let counts = |run: &StoredRun| run.iter().all(|one| one.validity.counts());
        self.made(store).is_some_and(counts)
    }
}

/// Runs all points and prints the results.
pub fn sweep(options: &LabRunOptions, kinds: &[CaseKind]) -> Outcome {
    let points = points(options, kinds)?;
    let runs = runs(&points, options.repetitions)?;
    let mut store: Store<StoredRun> = match &options.state {
        Some(file) => Store::open(file, RUNS).into_diagnostic()?,
        None => Store::in_memory(RUNS),
    };
    if let Some(note) = store.note() {
        printing::warning(note);
    }
    // The lab enters its own namespaces, which must happen before any thread starts.
    namespace::isolate().into_diagnostic()?;
    let (failures, is_complete) = make(&runs, &mut store)?;
    let (mut flows, mut comparisons, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for point in &points {
        let mut measurements: Vec<Measurement> = runs
            .iter()
            .filter(|run| std::ptr::eq(run.point, point))
            .filter_map(|run| run.made(&store))
            .flatten()
            .cloned()
            .collect();
        if kinds.contains(&CaseKind::Oracle) {
            measurements.extend(oracle(&point.path, &measurements));
        }
        let named = |record: Record| Record {
            case: format!("{}{}", record.case, point.suffix),
            ..record
        };
        flows.extend(
            flow_records(&point.path, &measurements)
                .into_iter()
                .map(named),
        );
        let ratios = comparison_records(&point.path, &measurements, options.at_most);
        comparisons.extend(ratios.into_iter().map(named));
        measured.extend(measurements);
    }
    if let (true, Some(Failure { reason, .. })) = (measured.is_empty(), failures.first()) {
        return Err(miette!("{reason}"));
    }
    for failure in &failures {
        let missing = failed_records(failure, &flows);
        flows.extend(missing);
    }
    let valid = measured
        .iter()
        .all(|run| run.validity.is_valid() && succeeded(run));
    let Some(first) = points.first() else {
        return Ok(true);
    };
    let results = Results {
        flows,
        comparisons,
        measurements: &measured,
        traces: &[],
    };
    let is_met = show(&first.path, options, results)?;
    for Failure { run, reason } in &failures {
        printing::warning(format_args!("{}: {reason}", run.name()));
    }
    Ok(is_met && valid && is_complete && failures.is_empty())
}

/// All combinations of the swept values, each with its cases.
fn points(options: &LabRunOptions, kinds: &[CaseKind]) -> miette::Result<Vec<Point>> {
    let plan = Plan {
        source: midspan_path::source(options.path.as_deref().unwrap_or_default())?,
        overrides: overrides(&options.set)?,
        sweeps: sweeps(&options.sweep)?,
        // The lab has its own cases.
        cases: Vec::new(),
        flows: options.flows.clone(),
        repetitions: options.repetitions,
        seed: options.seed,
    };
    let point = |(values, path): (Vec<String>, Path)| -> miette::Result<Point> {
        midspan_lab::check(&path).into_diagnostic()?;
        Ok(Point {
            suffix: suffix(&plan.sweeps, &values),
            cases: Case::of_kinds(kinds, &path, options.timeout.into()).into_diagnostic()?,
            path,
        })
    };
    plan.paths()?.into_iter().map(point).collect()
}

/// The swept values as text, as `midspan sim` has them.
fn suffix(sweeps: &[Sweep], values: &[String]) -> String {
    let value = |(sweep, value): (&Sweep, &String)| format!(", {} = {value}", sweep.key());
    sweeps.iter().zip(values).map(value).collect()
}

/// All runs. Every point is measured once before any point is measured again, so that a measurement
/// that is stopped has results of each point.
fn runs(points: &[Point], repetitions: u32) -> miette::Result<Vec<Run<'_>>> {
    let mut runs = Vec::new();
    for repetition in 0..repetitions {
        for point in points {
            for case in &point.cases {
                let key = case.run_key(repetition).ok_or_else(|| {
                    miette!(
                        "a run over the path \"{}\" cannot be stored",
                        point.path.name
                    )
                })?;
                runs.push(Run {
                    point,
                    case,
                    repetition,
                    key,
                });
            }
        }
    }
    Ok(runs)
}

/// Makes the runs that are not stored or do not count. Returns those that failed, and whether all runs
/// were made: Ctrl-C ends the measurement after the current run.
fn make<'a>(
    runs: &'a [Run<'a>],
    store: &mut Store<StoredRun>,
) -> miette::Result<(Vec<Failure<'a>>, bool)> {
    let interrupted = interruption()?;
    let left: Vec<&Run<'_>> = runs.iter().filter(|run| !run.counts(store)).collect();
    let finished = runs.len() - left.len();
    printing::note(format_args!(
        "{} runs, {finished} of them finished already",
        runs.len()
    ));
    let bar = Bar::new(left.len() as u64);
    let mut failures = Vec::new();
    for (done, &run) in left.iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            bar.finish();
            printing::warning(format_args!(
                "stopped after {} of {} runs",
                finished + done,
                runs.len()
            ));
            return Ok((failures, false));
        }
        bar.next(&run.name());
        let this = run.repetition..run.repetition.saturating_add(1);
        let cases = std::slice::from_ref(run.case);
        let suffix = &run.point.suffix;
        let made =
            midspan_lab::run(
                cases,
                this,
                Purpose::Measurement,
                &mut |progress| match progress {
                    Progress::Again(validity) => {
                        bar.say(&format!("repeated, because it was {validity}"));
                    }
                    Progress::End(measurement) => {
                        let line = line_of(&run.point.path, measurement, Purpose::Measurement);
                        bar.say(&format!("{line}{suffix}"));
                    }
                    Progress::Ready { .. } | Progress::Begin { .. } | Progress::Traced(_) => {}
                },
            );
        match made {
            Ok(measurements) => store.put(&run.key, measurements).into_diagnostic()?,
            // A transfer that takes too long is a result of this point; other points may succeed.
            Err(error) if error.is_of_transfer() => {
                let reason = error.to_string();
                bar.say(&format!("{}: {reason}", run.name()));
                failures.push(Failure { run, reason });
            }
            Err(error) => {
                bar.finish();
                return Err(error).into_diagnostic();
            }
        }
    }
    bar.finish();
    Ok((failures, true))
}

/// For each flow of a failed run that has no result from another repetition, a record without a number.
fn failed_records(failure: &Failure<'_>, measured: &[Record]) -> Vec<Record> {
    let Point { suffix, path, .. } = failure.run.point;
    let name = |flow: &midspan_path::Flow| {
        let case = failure.run.case.kind;
        format!("{}{suffix}", midspan_lab::results::case_name(flow, case))
    };
    path.flows
        .iter()
        .map(name)
        .filter(|name| !measured.iter().any(|record| record.case == *name))
        .map(|name| {
            Record::of(&path.name, &name, &COMPLETION_TIME, By::Lab, f64::NAN)
                .with_note(failure.reason.clone())
        })
        .collect()
}
