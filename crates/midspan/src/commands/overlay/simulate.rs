//! `midspan overlay simulate`: an overlay of hundreds of nodes in virtual time.

use std::fs;
use std::path::{Path, PathBuf};

use midspan_overlay_sim::readers::{MOST_BYTES, MOST_FILES, Slices, matrices, regions};
use midspan_overlay_sim::{
    Answer, Network, Questions, Settings, Synthetic, answer, generate, weather,
};
use midspan_units::TimeSpan;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use super::super::Outcome;
use super::table;
use crate::overlay_arguments::{MatrixFormat, SimulateOptions};
use crate::printing;
use crate::progress::Spinner;

/// What is printed with `--json`.
#[derive(Debug, Serialize)]
struct Report {
    seed: u64,
    sessions: u64,
    failed: u64,
    over_transit: u64,
    answers: Vec<Row>,
}

/// One question.
#[derive(Debug, Serialize)]
struct Row {
    question: &'static str,
    asked: &'static str,
    measured: String,
    met: Option<bool>,
}

/// Simulates, and prints each question with its bound and the measured value.
pub fn simulate(options: &SimulateOptions) -> Outcome {
    let questions = Questions {
        network: network(options)?,
        settings: Settings {
            seed: options.seed,
            duration: options.duration,
            rate: options.rate,
            exits: options.exits,
            ..Settings::default()
        },
    };
    let spinner = Spinner::new();
    let progress = |step: &'static str, second: u64, last: u64| {
        if second.is_multiple_of(10) {
            spinner.say(&format!("{step}: {second} s of {last} s"));
        }
    };
    let (answers, results) = answer(&questions, progress).into_diagnostic()?;
    spinner.finish();
    let is_met = answers.iter().all(|answer| answer.met != Some(false));
    let report = Report {
        seed: options.seed,
        sessions: results.sessions,
        failed: results.failed,
        over_transit: results.over_transit,
        answers: answers.into_iter().map(Row::from).collect(),
    };
    match options.output.json {
        true => printing::json(&report)?,
        false => printing::text(text(&report, midspan_report::stdout_width())),
    }
    Ok(is_met)
}

impl From<Answer> for Row {
    fn from(answer: Answer) -> Self {
        Self {
            question: answer.question,
            asked: answer.asked,
            measured: answer.measured,
            met: answer.met,
        }
    }
}

fn text(report: &Report, width: Option<u16>) -> String {
    let rows = report.answers.iter().map(|row| {
        let met = match row.met {
            Some(true) => "yes",
            Some(false) => "MISSED",
            None => "",
        };
        [row.question, row.asked, &row.measured, met]
            .map(str::to_owned)
            .to_vec()
    });
    let title = format!(
        "Routes of {} sessions, {} over transit nodes, {} failed; seed {}",
        report.sessions, report.over_transit, report.failed, report.seed
    );
    table(
        &title,
        &["question", "asked", "measured", "met"],
        rows.collect(),
        width,
    )
}

fn network(options: &SimulateOptions) -> miette::Result<Network> {
    let Some(folder) = &options.matrix else {
        let size = Synthetic {
            seed: options.seed,
            transit: options.transit,
            leaves: options.leaves,
            duration: options.duration,
        };
        return generate(&size).into_diagnostic();
    };
    let names = files_in(folder)?;
    let format = options.format.or_else(|| format_of(&names)).ok_or_else(|| {
        miette!(
            "{} has no files of a known format: SeattleData_1, PlanetLabData_1 or latency.csv; see --format",
            folder.display()
        )
    })?;
    let mut network = match format {
        MatrixFormat::Skyplane => {
            let latency = read(&folder.join("latency.csv"))?;
            let file = folder.join("throughput.csv");
            let throughput = file.exists().then(|| read(&file)).transpose()?;
            let throughput = throughput.as_deref().map(|text| ("throughput.csv", text));
            regions(("latency.csv", &latency), throughput, options.transit)
        }
        MatrixFormat::Seattle | MatrixFormat::Planetlab => {
            let (prefix, unit, slice) = match format {
                MatrixFormat::Seattle => ("SeattleData_", 1.0, TimeSpan::from_milliseconds(15_700)),
                _ => ("PlanetLabData_", 0.001, TimeSpan::from_seconds(12 * 3600)),
            };
            let files = slices(&names, prefix)?;
            let slices = Slices {
                slice: options.slice.unwrap_or(slice),
                unit,
                transit: options.transit,
            };
            matrices(&files, &slices)
        }
    }
    .into_diagnostic()?;
    weather(&mut network, options.seed, options.duration);
    Ok(network)
}

/// The files of a folder; at most [`MOST_FILES`].
fn files_in(folder: &Path) -> miette::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.into_diagnostic()?.path());
        if files.len() > MOST_FILES {
            return Err(miette!(
                "{} has more than {MOST_FILES} files",
                folder.display()
            ));
        }
    }
    Ok(files)
}

fn format_of(files: &[PathBuf]) -> Option<MatrixFormat> {
    let names = files.iter().filter_map(|file| file.file_name()?.to_str());
    names.fold(None, |found, name| match name {
        "latency.csv" => Some(MatrixFormat::Skyplane),
        _ if name.starts_with("SeattleData_") => Some(MatrixFormat::Seattle),
        _ if name.starts_with("PlanetLabData_") => Some(MatrixFormat::Planetlab),
        _ => found,
    })
}

/// The files whose names are this prefix and a number, in the order of the numbers.
fn slices(files: &[PathBuf], prefix: &str) -> miette::Result<Vec<(String, String)>> {
    let numbered = files.iter().filter_map(|file| {
        let name = file.file_name()?.to_str()?;
        let number: u32 = name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, name.to_owned(), file))
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_unstable_by_key(|(number, ..)| *number);
    let read = |(_, name, file): (u32, String, &PathBuf)| Ok((name, read(file)?));
    numbered.into_iter().map(read).collect()
}

/// The text of a file; bytes that are no UTF-8 are errors of their line.
fn read(file: &Path) -> miette::Result<String> {
    use std::io::Read;

    let cannot = || format!("cannot read {}", file.display());
    let opened = fs::File::open(file)
        .into_diagnostic()
        .wrap_err_with(cannot)?;
    let mut bytes = Vec::new();
    let most = MOST_BYTES as u64 + 1;
    let copied = opened.take(most).read_to_end(&mut bytes);
    copied.into_diagnostic().wrap_err_with(cannot)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_files_decide_about_the_format() {
        let format =
            |names: &[&str]| format_of(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(format(&["a/README.md"]), None);
        assert_eq!(
            format(&["a/SeattleData_1", "a/x"]),
            Some(MatrixFormat::Seattle)
        );
        assert_eq!(
            format(&["a/PlanetLabData_9"]),
            Some(MatrixFormat::Planetlab)
        );
        assert_eq!(
            format(&["latency.csv", "throughput.csv"]),
            Some(MatrixFormat::Skyplane)
        );
    }

    #[test]
    fn a_missed_bound_is_marked() {
        let row = |met| Row {
            question: "changes",
            asked: "≤ 4",
            measured: "5".to_owned(),
            met,
        };
        let report = Report {
            seed: 1,
            sessions: 10,
            failed: 0,
            over_transit: 5,
            answers: vec![row(Some(false)), row(Some(true)), row(None)],
        };
        let text = text(&report, Some(120));
        assert!(text.contains("MISSED") && text.contains("yes"), "{text}");
    }
}
