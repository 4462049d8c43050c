//! `midspan lab PATH`: flows over emulated links.

pub mod shell;
mod sweep;
mod traces;

use std::path::Path as FilePath;

use midspan_lab::trace::{RunTrace, Tracing};
use midspan_lab::{
    Case, CaseKind, FlowMeasurement, FlowResult, Measurement, Presentation, Progress, Purpose,
    comparison_records, flow_records, oracle,
};
use midspan_linux::namespace;
use midspan_path::{Flow, Path};
use midspan_records::{Record, Records};
use midspan_report::{pivot, stdout_width};
use midspan_sim::trace::Kind;
use miette::{IntoDiagnostic, miette};

use self::traces::Traces;
use super::Outcome;
use super::choices::{choose_flows, overrides};
use crate::files;
use crate::lab_arguments::LabRunOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs a path and prints the results.
pub fn lab(options: &LabRunOptions) -> Outcome {
    let kinds = installed(&options.against)?;
    if !options.sweep.is_empty() || options.state.is_some() {
        return sweep::sweep(options, &kinds);
    }
    let name = options.path.as_deref().unwrap_or_default();
    let mut path = Path::load_with(name, &overrides(&options.set)?)?;
    if let Some(seed) = options.seed {
        path.seed = seed;
    }
    choose_flows(&mut path, &options.flows)?;
    let cases = Case::of_kinds(&kinds, &path, options.timeout.into()).into_diagnostic()?;
    let traces = Traces::new(&path, options)?;
    namespace::isolate().into_diagnostic()?;
    let mut open = |name: &midspan_lab::trace::CaptureName<'_>| traces.open(name);
    let mut tracing = Tracing {
        sockets: traces.wants(&[Kind::Cwnd, Kind::Rtt]),
        links: traces.wants(&[Kind::Queue, Kind::Rate]),
        interval: options.trace_interval,
        captures: None,
    };
    if options.pcap.is_some() {
        tracing.captures = Some(&mut open);
    }
    let runs = Runs {
        path: &path,
        cases: &cases,
        repetitions: options.repetitions,
        purpose: Purpose::Measurement,
    };
    let mut measurements = runs.make(&mut tracing, &|trace| traces.add(trace))?;
    if kinds.contains(&CaseKind::Oracle) {
        measurements.extend(oracle(&path, &measurements));
    }
    let (kept, written) = traces.finish();
    let results = Results {
        flows: flow_records(&path, &measurements),
        comparisons: comparison_records(&path, &measurements, options.at_most),
        measurements: &measurements,
        traces: &kept,
    };
    let valid = measurements
        .iter()
        .all(|run| run.validity.is_valid() && succeeded(run));
    let is_met = show(&path, options, results)?;
    written?;
    Ok(valid && is_met)
}

/// The measurements and their records.
struct Results<'a> {
    flows: Vec<Record>,
    comparisons: Vec<Record>,
    measurements: &'a [Measurement],
    /// Traces to be plotted.
    traces: &'a [RunTrace],
}

/// The kinds of cases whose program is installed. Those that are left out are named.
fn installed(kinds: &[CaseKind]) -> miette::Result<Vec<CaseKind>> {
    let (left_out, kept): (Vec<CaseKind>, Vec<CaseKind>) = kinds
        .iter()
        .copied()
        .partition(|kind| kind.missing().is_some());
    for kind in &left_out {
        if let Some(reason) = kind.missing() {
            printing::warning(format_args!("skipped: no {kind}: {reason}"));
        }
    }
    if kept.is_empty() {
        return Err(miette!("no case is left: name another one with --against"));
    }
    Ok(kept)
}

/// Prints the records and writes the report. Returns whether all bounds are met.
fn show(path: &Path, options: &LabRunOptions, results: Results<'_>) -> miette::Result<bool> {
    let Results {
        flows,
        comparisons,
        measurements,
        traces,
    } = results;
    let title = format!("Flows over the path \"{}\"", path.name);
    let mut tables = vec![pivot(&title, &flows)];
    if !comparisons.is_empty() {
        let title = "Midspan against the others (below 1: faster)";
        tables.push(pivot(title, &comparisons));
    }
    let records = Records {
        records: flows.into_iter().chain(comparisons).collect(),
    };
    if options.output.json {
        printing::line(records.to_json());
    } else {
        let tables: Vec<String> = tables
            .iter()
            .map(|table| table.to_text(stdout_width()))
            .collect();
        printing::text(tables.join("\n"));
    }
    if let Some(file) = &options.html {
        let presentation = Presentation {
            path,
            title: &title,
            command: printing::command_line(),
            measurements,
            traces,
            records: &records,
        };
        write_report(&presentation, file)?;
    }
    Ok(records.all_ok())
}

/// Writes the report of a lab run.
pub fn write_report(presentation: &Presentation<'_>, file: &FilePath) -> miette::Result<()> {
    files::write_report(presentation.report(), file)
}

/// Measures the cases of a path, and shows the progress.
pub fn run_with_progress(
    path: &Path,
    cases: &[Case],
    repetitions: u32,
    purpose: Purpose,
) -> miette::Result<Vec<Measurement>> {
    let runs = Runs {
        path,
        cases,
        repetitions,
        purpose,
    };
    runs.make(&mut Tracing::default(), &|_| {})
}

/// The runs of a measurement.
struct Runs<'a> {
    path: &'a Path,
    cases: &'a [Case],
    repetitions: u32,
    purpose: Purpose,
}

impl Runs<'_> {
    /// Makes the runs, and shows the progress. `add` gets the traces of each run.
    fn make(
        &self,
        tracing: &mut Tracing<'_>,
        add: &dyn Fn(&RunTrace),
    ) -> miette::Result<Vec<Measurement>> {
        let Self {
            path,
            cases,
            repetitions,
            purpose,
        } = *self;
        let mut bar = None;
        printing::note(format_args!("setting up the network of \"{}\"", path.name));
        let show = &mut |progress: Progress<'_>| match progress {
            Progress::Ready { runs } => bar = Some(Bar::new(runs)),
            Progress::Begin {
                case,
                flow,
                repetition,
            } => {
                let flow = flow.map_or("all flows", |flow| flow.name.as_str());
                if let Some(bar) = &bar {
                    bar.next(&format!(
                        "{flow} {}, repetition {}",
                        case.name,
                        repetition + 1
                    ));
                }
            }
            Progress::Again(validity) => {
                if let Some(bar) = &bar {
                    bar.say(&format!("repeated, because it was {validity}"));
                }
            }
            Progress::Traced(trace) => {
                add(trace);
                for note in &trace.notes {
                    printing::warning(note);
                }
            }
            Progress::End(run) => {
                if let Some(bar) = &bar {
                    bar.say(&line_of(path, run, purpose));
                }
            }
        };
        let all = 0..repetitions;
        let measurements = midspan_lab::run_with_traces(cases, all, purpose, tracing, show);
        if let Some(bar) = &bar {
            bar.finish();
        }
        measurements.into_diagnostic()
    }
}

/// The most important number of a flow's result.
fn figure(flow: &Flow, measured: &FlowMeasurement) -> String {
    if let Some(status) = measured.failed_status() {
        return format!("exit status {status}: {}", last_line(&measured.result));
    }
    match measured.completion() {
        Some(time) => midspan_report::units::format(time.as_seconds(), "s"),
        None => {
            let goodput = measured.goodput(flow).unwrap_or_default();
            midspan_report::units::format(goodput, "bit/s")
        }
    }
}

/// Whether all commands of a run have succeeded.
fn succeeded(run: &Measurement) -> bool {
    run.flows.iter().all(|flow| flow.failed_status().is_none())
}

/// The last line that a command has printed.
fn last_line(result: &FlowResult) -> &str {
    match result {
        FlowResult::Command { output, .. } => {
            output.trim_end().lines().next_back().unwrap_or_default()
        }
        _ => "",
    }
}

/// One line for a run that has ended.
fn line_of(path: &Path, run: &Measurement, purpose: Purpose) -> String {
    let results: Vec<String> = run
        .flows
        .iter()
        .map(|measured| {
            let flow = &path.flows[measured.flow];
            let figure = figure(flow, measured);
            format!("{} {}: {figure}", flow.name, run.case)
        })
        .collect();
    // What disturbs a demonstration is stated once, at its end.
    let is_silent = run.validity.is_valid() || purpose == Purpose::Demonstration;
    let void = if is_silent {
        String::new()
    } else {
        format!("  ({})", run.validity)
    };
    format!("{}{void}", results.join(", "))
}
