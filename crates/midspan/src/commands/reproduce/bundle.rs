//! `midspan reproduce --bundle FOLDER`: everything that belongs to a paper's figures, in one folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_records::{By, Record, Records};
use midspan_report::{Content, Extra, Fact, Report, Section, Table, beside_printed};
use midspan_reproduce::{Effort, FigurePlot, Paper, curve_figures, report};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::{Map, Value};

use super::{Outcome, Results, figure_file, results};
use crate::{files, printing, provenance};

/// A paper's results.
struct Made {
    paper: Paper,
    results: Results,
    time: Duration,
}

/// Makes the figures of `papers`, and writes the folder.
pub fn bundle(papers: &[Paper], effort: &Effort, folder: &Path) -> Outcome {
    let mut entries = match fs::read_dir(folder) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).into_diagnostic().wrap_err(name(folder)),
    };
    if entries
        .as_mut()
        .is_some_and(|entries| entries.next().is_some())
    {
        return Err(miette!(
            help = "choose another folder, or remove its content",
            "{} is not empty: nothing was written",
            folder.display()
        ));
    }
    let mut all = Vec::new();
    for &paper in papers {
        let start = Instant::now();
        let results = results(paper, effort)?;
        let time = start.elapsed();
        write_paper(paper, &results, &folder.join(paper.name()))?;
        printing::note(format_args!(
            "{}: {:.0} s",
            paper.name(),
            time.as_secs_f64()
        ));
        all.push(Made {
            paper,
            results,
            time,
        });
    }
    let facts = provenance::facts();
    let environment: Map<String, Value> = facts
        .into_iter()
        .chain([Fact::new("command", printing::command_line())])
        .map(|fact| (fact.name, Value::from(fact.value)))
        .collect();
    let environment = serde_json::to_string_pretty(&environment).into_diagnostic()?;
    files::write(&folder.join("environment.json"), environment + "\n")?;
    files::write_report(page(&all, effort.quick), &folder.join("index.html"))?;
    Ok(all.iter().all(|made| made.results.records.all_ok()))
}

fn name(folder: &Path) -> String {
    format!("cannot use the folder {}", folder.display())
}

/// The numbers, each figure as a picture and as a table, and the page of one paper.
fn write_paper(paper: Paper, results: &Results, folder: &Path) -> miette::Result<()> {
    let Results {
        records,
        figures: simulated,
        ..
    } = results;
    fs::create_dir_all(folder)
        .into_diagnostic()
        .wrap_err_with(|| name(folder))?;
    files::write(&folder.join("records.json"), records.to_json() + "\n")?;
    let mut figures = simulated.clone();
    figures.extend(curve_figures(paper).into_diagnostic()?);
    for (number, figure) in figures.iter().enumerate() {
        let same = figures.iter().take(number);
        let same = same.filter(|one| one.item == figure.item).count();
        let file = figure_file(&figure.item, same);
        let svg = figure.plot.to_svg().into_diagnostic()?;
        files::write(&folder.join(format!("{file}.svg")), svg)?;
        files::write(&folder.join(format!("{file}.csv")), points(figure)?)?;
    }
    let page = report(paper, records, simulated, false).into_diagnostic()?;
    files::write(
        &folder.join("index.html"),
        files::with_provenance(page).to_html().into_diagnostic()?,
    )
}

/// The points of a figure's lines.
fn points(figure: &FigurePlot) -> miette::Result<Vec<u8>> {
    let heading = |label: &str, unit: &str| match unit {
        "" => label.to_owned(),
        unit => format!("{label} ({unit})"),
    };
    let mut table = csv::Writer::from_writer(Vec::new());
    let plot = &figure.plot;
    let [x, y] = [&plot.x, &plot.y].map(|axis| heading(&axis.label, &axis.unit));
    table.write_record(["line", &x, &y]).into_diagnostic()?;
    for series in &plot.series {
        for (x, y) in &series.points {
            let cells = [series.name.clone(), x.to_string(), y.to_string()];
            table.write_record(&cells).into_diagnostic()?;
        }
    }
    table
        .into_inner()
        .map_err(|error| error.into_error())
        .into_diagnostic()
}

/// Each number of a paper as a claim: the command that gives it alone and how long that took, the number
/// that is expected, and the one that came out.
fn claims(made: &Made, quick: &str) -> Table {
    let paper = made.paper.name();
    let command = |record: &Record| format!("midspan reproduce {paper} \"{}\"{quick}", record.item);
    let time = |record: &Record| {
        let simulations = &made.results.simulations;
        let made_with = simulations.iter().find(|(items, _)| {
            record.by == By::Simulation && items.contains(&record.item.as_str())
        });
        let time = made_with.map_or(made.results.analysis, |(_, time)| *time);
        format!("{:.1} s", time.as_secs_f64())
    };
    let extras: [Extra<'_>; 2] = [("command", &command), ("time", &time)];
    beside_printed("", &made.results.records.records, &extras)
}

/// The claims of all papers: what is printed, what came out, by which command, and how long it took.
fn page(all: &[Made], quick: bool) -> Report {
    let quick = if quick { " --quick" } else { "" };
    let sections = all.iter().map(|made| {
        let paper = made.paper.name();
        Section {
            heading: paper.to_owned(),
            text: format!(
                "Each claim with the command that gives it, the time that its figure took, the number that the paper \
                 prints, and the number here. All of them: midspan reproduce {paper}{quick}, {:.0} s. Files: \
                 {paper}/index.html, {paper}/records.json, and each figure as .svg and .csv. With real kernels: \
                 midspan reproduce {paper} --lab.",
                made.time.as_secs_f64()
            ),
            content: vec![Content::Table(claims(made, quick))],
        }
    });
    let records = || {
        all.iter()
            .flat_map(|made| made.results.records.records.iter())
    };
    let bounds: Vec<bool> = records().filter_map(|record| record.ok).collect();
    let met = bounds.iter().filter(|ok| **ok).count();
    Report {
        title: "The figures of the papers".to_owned(),
        summary: format!("{met} of {} stated bounds are met.", bounds.len()),
        command: printing::command_line(),
        sections: sections.collect(),
        records: Records {
            records: records().cloned().collect(),
        },
        ..Report::default()
    }
}
