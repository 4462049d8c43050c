//! `midspan sim PATH`: flows in virtual time, one point or a sweep, optionally with traces.

mod rows;
mod traces;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use midspan_lab::CaseKind;
use midspan_records::Records;
use midspan_report::{pivot, stdout_width};
use midspan_sweep::{Plan, Row, Status, Step};
use miette::miette;

use super::Outcome;
use super::choices::{cores, interruption, overrides, sweeps};
use crate::lab_arguments::SimOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs a path in the simulator, without its proxies and with them.
pub fn sim(options: &SimOptions) -> Outcome {
    let plan = Plan {
        source: midspan_path::source(&options.path)?,
        overrides: overrides(&options.set)?,
        sweeps: sweeps(&options.sweep)?,
        flows: options.flows.clone(),
        repetitions: options.repetitions,
        seed: options.seed,
        threads: options.threads.map_or_else(cores, usize::from),
    };
    let path = plan.path()?;
    let title = format!("Simulated flows over the path \"{}\"", path.name);
    if !options.traces() {
        return sweep(&plan, &path.name, &title, options);
    }
    if !plan.sweeps.is_empty() || plan.repetitions > 1 {
        return Err(miette!(
            help = "set what is to be traced with --set",
            "a trace is of one run: leave out --sweep and --repetitions"
        ));
    }
    let mut records = Records::default();
    traces::run(&path, options, &mut records)?;
    if options.output.json {
        printing::line(records.to_json());
    } else {
        printing::text(pivot(&title, &records.records).to_text(stdout_width()));
    }
    Ok(true)
}

/// Runs all points. CSV and JSON are printed point by point; the table needs all points, so the
/// points of a sweep are printed on standard error meanwhile.
fn sweep(plan: &Plan, path: &str, title: &str, options: &SimOptions) -> Outcome {
    let runs = plan.runs()?;
    let interrupted = interruption()?;
    let mut output: Box<dyn rows::Output> = if options.csv {
        Box::new(rows::Csv::begin(plan)?)
    } else if options.output.json {
        Box::new(rows::Json::begin(path))
    } else {
        Box::new(rows::Text::begin(path))
    };
    let bar = Bar::new(runs as u64);
    let (mut done, mut failed_to_print) = (0, Ok(()));
    let all = plan.run(|step| {
        match step {
            Step::Run => {
                done += 1;
                bar.advance();
            }
            Step::Rows(new) => {
                if !plan.sweeps.is_empty() && !options.csv && !options.output.json {
                    new.iter()
                        .filter_map(|row| rows::line(plan, row))
                        .for_each(|line| bar.say(&line));
                }
                failed_to_print = output.add(plan, new);
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
    let is_nothing = !all.is_empty() && all.iter().all(|row| row.status() == Status::Failed);
    let reason = || all.iter().find_map(|row| row.failure.as_ref());
    // One point without a result is an error, and no table.
    if !(is_nothing && plan.sweeps.is_empty() && output.is_table()) {
        output.end(title);
    }
    if interrupted.load(Ordering::Relaxed) && done < runs {
        printing::warning(format_args!(
            "stopped after {done} of {runs} runs: the points that were complete are in the output"
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

/// The number of points of some rows.
fn distinct_points<'a>(rows: impl Iterator<Item = &'a Row>) -> usize {
    let mut points: Vec<(&[String], bool)> = rows
        .map(|row| (row.point.as_slice(), row.proxies))
        .collect();
    points.sort_unstable();
    points.dedup();
    points.len()
}

const fn case_of(proxies: bool) -> CaseKind {
    if proxies {
        CaseKind::Midspan
    } else {
        CaseKind::Direct
    }
}
