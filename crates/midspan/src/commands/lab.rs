//! `midspan lab PATH`: flows over emulated links.

use std::path::Path as FilePath;
use std::time::Duration;

use midspan_lab::{
    Case, Measurement, Presentation, Progress, Purpose, comparison_records, flow_records,
};
use midspan_linux::namespace;
use midspan_path::Path;
use midspan_records::Records;
use midspan_report::{pivot, stdout_width};
use miette::IntoDiagnostic;

use super::Outcome;
use super::choices::{choose_flows, overrides};
use crate::files;
use crate::lab_arguments::LabRunOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs a path and prints the results.
pub fn lab(options: &LabRunOptions) -> Outcome {
    let name = options.path.as_deref().unwrap_or_default();
    let mut path = Path::load_with(name, &overrides(&options.set)?)?;
    if let Some(seed) = options.seed {
        path.seed = seed;
    }
    choose_flows(&mut path, &options.flows)?;
    let limit = Duration::from_secs(options.limit);
    let cases = Case::of_kinds(&options.against, &path, limit);
    let title = format!("Flows over the path \"{}\"", path.name);
    measure(
        &path,
        &cases,
        options.repetitions,
        &title,
        options.at_most,
        options.html.as_deref(),
        options.output.json,
    )
}

/// Measures the cases of a path, prints, writes the report.
fn measure(
    path: &Path,
    cases: &[Case],
    repetitions: u32,
    title: &str,
    at_most: Option<f64>,
    html: Option<&FilePath>,
    json: bool,
) -> Outcome {
    namespace::isolate().into_diagnostic()?;
    let measurements = run_with_progress(path, cases, repetitions, Purpose::Measurement)?;
    let flows = flow_records(path, &measurements);
    let comparisons = comparison_records(path, &measurements, at_most);
    let records = Records {
        records: flows.iter().chain(&comparisons).cloned().collect(),
    };
    if json {
        printing::line(records.to_json());
    } else {
        printing::text(pivot(title, &flows).to_text(stdout_width()));
        if !comparisons.is_empty() {
            let ratios = pivot("Midspan against the others (below 1: faster)", &comparisons);
            printing::text(format_args!("\n{}", ratios.to_text(stdout_width())));
        }
    }
    if let Some(file) = html {
        let presentation = Presentation {
            path,
            title,
            command: printing::command_line(),
            measurements: &measurements,
            records: &records,
        };
        write_report(&presentation, file)?;
    }
    let valid = measurements.iter().all(|run| run.validity.is_valid());
    Ok(valid && records.all_ok())
}

/// Writes the report of a lab run.
pub fn write_report(presentation: &Presentation<'_>, file: &FilePath) -> miette::Result<()> {
    let page = presentation.report().to_html().into_diagnostic()?;
    files::write_and_tell("report", file, page)
}

/// Measures the cases of a path, and shows the progress.
pub fn run_with_progress(
    path: &Path,
    cases: &[Case],
    repetitions: u32,
    purpose: Purpose,
) -> miette::Result<Vec<Measurement>> {
    let mut bar = None;
    printing::note(format_args!("setting up the network of \"{}\"", path.name));
    let all = 0..repetitions;
    let measurements = midspan_lab::run(cases, all, purpose, &mut |progress| match progress {
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
        Progress::End(run) => {
            if let Some(bar) = &bar {
                bar.say(&line_of(path, run, purpose));
            }
        }
    });
    if let Some(bar) = &bar {
        bar.finish();
    }
    measurements.into_diagnostic()
}

/// One line for a run that has ended.
fn line_of(path: &Path, run: &Measurement, purpose: Purpose) -> String {
    let results: Vec<String> = run
        .flows
        .iter()
        .map(|measured| {
            let flow = &path.flows[measured.flow];
            let figure = match (measured.completion(), measured.goodput(flow)) {
                (Some(time), _) => midspan_report::units::format(time.as_seconds(), "s"),
                (None, goodput) => {
                    midspan_report::units::format(goodput.unwrap_or_default(), "bit/s")
                }
            };
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
