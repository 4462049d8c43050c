//! `midspan sim PATH`: flows in virtual time, one point or a sweep, optionally with traces.

mod page;
mod rows;
mod traces;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use midspan_records::{Records, Store};
use midspan_report::{pivot, stdout_width};
use midspan_sweep::{Case, Execution, Part, Plan, RUNS, Row, Shard, Status, Step, StoredRun};
use miette::{IntoDiagnostic, miette};
use serde_json::json;

use self::page::Page;
use super::Outcome;
use super::choices::{cores, interruption, overrides, sweeps};
use crate::lab_arguments::SimOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs a path in the simulator, in each case: without its proxies and with them, for example.
pub fn sim(options: &SimOptions) -> Outcome {
    let plan = Plan {
        source: midspan_path::source(&options.path)?,
        overrides: overrides(&options.set)?,
        sweeps: sweeps(&options.sweep)?,
        cases: options.against.clone(),
        flows: options.flows.clone(),
        repetitions: options.repetitions,
        seed: options.seed,
    };
    let path = plan.path()?;
    let title = format!("Simulated flows over the path \"{}\"", path.name);
    if !options.traces() {
        return sweep(&plan, &path, &title, options);
    }
    if !plan.sweeps.is_empty() || plan.repetitions > 1 {
        return Err(miette!(
            help = "set what is to be traced with --set",
            "a trace is of one run: leave out --sweep and --repetitions"
        ));
    }
    let cases = plan.cases_on(&path)?;
    if cases.contains(&Case::Oracle) {
        return Err(miette!(
            help = "the case overlay-static=all traces each route by itself",
            "a trace is of one run, and the oracle runs every overlay route"
        ));
    }
    let mut records = Records::default();
    traces::run(&path, &cases, options, &mut records)?;
    if options.output.json {
        printing::line(records.to_json());
    } else {
        printing::text(pivot(&title, &records.records).to_text(stdout_width()));
    }
    Ok(true)
}

/// Runs all points. CSV and JSON are printed point by point; the table needs all points, so the
/// points of a sweep are printed on standard error meanwhile.
fn sweep(plan: &Plan, path: &midspan_path::Path, title: &str, options: &SimOptions) -> Outcome {
    let mut store: Store<StoredRun> = match &options.state {
        Some(name) => Store::open(name, RUNS).into_diagnostic()?,
        None => Store::in_memory(RUNS),
    };
    if let Some(note) = store.note() {
        printing::warning(note);
    }
    let execution = Execution {
        threads: options.threads.map_or_else(cores, usize::from),
        part: options.shard.map_or(Part::All, Part::Shard),
        commit: env!("MIDSPAN_BUILT_FROM").to_owned(),
    };
    let runs = plan.counts(&execution.part, &store)?;
    let interrupted = interruption()?;
    let mut output: Box<dyn rows::Output> = match (options.csv, options.output.json) {
        _ if options.shard.is_some() => Box::new(rows::Nothing),
        (true, _) if options.each_run => Box::new(rows::RunCsv::begin(plan)?),
        (true, _) => Box::new(rows::Csv::begin(plan)?),
        (_, true) => Box::new(rows::Json::begin(plan, &path.name, options.each_run)),
        (false, false) if options.each_run => {
            return Err(miette!(
                "--each-run has no table: add --csv or --json, or leave it out"
            ));
        }
        (false, false) => Box::new(rows::Text::begin(&path.name)),
    };
    let mut page = options
        .html
        .is_some()
        .then(|| Page::begin(plan))
        .transpose()?;
    let is_watched = !plan.sweeps.is_empty() && output.is_table();
    let bar = Bar::new(runs.left as u64);
    let (mut done, mut failed_to_print) = (0, Ok(()));
    let all = plan.run(&execution, &mut store, |step| {
        match step {
            Step::Run => {
                done += 1;
                bar.advance();
            }
            Step::Point { rows: new, runs } => {
                if is_watched {
                    new.iter()
                        .filter_map(|row| rows::line(plan, row))
                        .for_each(|line| bar.say(&line));
                }
                failed_to_print = output.add(plan, new, runs);
                if let (Some(page), Ok(())) = (&mut page, &failed_to_print) {
                    failed_to_print = page.add(runs);
                }
            }
        }
        if interrupted.load(Ordering::Relaxed) || failed_to_print.is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    bar.finish();
    let all = all?;
    failed_to_print?;
    if let (Some(shard), Some(file)) = (options.shard, &options.state) {
        let is_complete = done == runs.left;
        report_shard(shard, file, (done, runs.stored), options.output.json);
        if !is_complete {
            printing::warning(format_args!(
                "stopped after {done} of {} runs: the same command makes the others",
                runs.left
            ));
        }
        return Ok(is_complete);
    }
    let is_nothing = !all.is_empty() && all.iter().all(|row| row.status() == Status::Failed);
    let reason = || all.iter().find_map(|row| row.failure.as_ref());
    // One point without a result is an error, and no table.
    if !(is_nothing && plan.sweeps.is_empty() && output.is_table()) {
        output.end(title);
    }
    if let (Some(page), Some(file), false) = (page, &options.html, is_nothing) {
        page.write(plan, path, title, &all, file)?;
    }
    if interrupted.load(Ordering::Relaxed) && done < runs.left {
        printing::warning(format_args!(
            "stopped after {done} of {} runs: the points that were complete are in the output",
            runs.left
        ));
        return Ok(false);
    }
    if let (true, Some(failure)) = (is_nothing, reason()) {
        return Err(miette!("{}", failure.reason));
    }
    let failed = all.iter().filter(|row| row.failure.is_some());
    let failed: usize = distinct_points(failed);
    if failed > 0 {
        printing::warning(format_args!(
            "{failed} points have failed runs; their rows contain the reason"
        ));
    }
    Ok(failed == 0)
}

/// Prints what a part of a sweep has stored.
fn report_shard(shard: Shard, file: &Path, (made, stored): (usize, usize), json: bool) {
    if json {
        let shard = shard.to_string();
        printing::line(
            json!({ "shard": shard, "state": file, "made": made, "stored before": stored }),
        );
    } else {
        printing::line(format_args!(
            "part {shard}: made {made} runs; {} had {stored} before. When all parts are made, join their \
             files with `midspan merge`",
            file.display()
        ));
    }
}

/// The number of points of some rows.
fn distinct_points<'a>(rows: impl Iterator<Item = &'a Row>) -> usize {
    let mut points: Vec<(&[String], &Case)> =
        rows.map(|row| (row.point.as_slice(), &row.case)).collect();
    points.sort_unstable();
    points.dedup();
    points.len()
}
