//! `midspan reproduce PAPER`: a paper's figures next to Midspan's.

mod bundle;
pub(super) mod lab;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use midspan_records::Records;
use midspan_report::stdout_width;
use midspan_reproduce::laboratory::{Point, origin};
use midspan_reproduce::{Effort, FigurePlot, Paper, analysis, report, simulation_by_figure, table};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::Outcome;
use super::choices::cores;
use crate::files;
use crate::lab_arguments::ReproduceOptions;
use crate::printing;
use crate::progress::Spinner;

/// Computes and prints the paper's numbers.
pub fn reproduce(options: &ReproduceOptions) -> Outcome {
    let effort = Effort {
        quick: options.quick,
        item: options.item.clone(),
        threads: options.threads.map_or_else(cores, usize::from),
    };
    let paper: Option<Paper> = options.paper.map(Into::into);
    if let Some(folder) = &options.bundle {
        let papers = paper.map_or(Paper::ALL.to_vec(), |paper| vec![paper]);
        return bundle::bundle(&papers, &effort, folder);
    }
    let paper = paper.ok_or_else(|| miette!("--all needs --bundle FOLDER"))?;
    if options.lab {
        return lab::reproduce(paper, options);
    }
    let Results {
        records, figures, ..
    } = results(paper, &effort)?;
    if let (Some(item), true) = (&options.item, records.records.is_empty()) {
        return Err(miette!(
            help = "without an item, all are printed, with their names",
            "{} has no item \"{item}\" that is reproduced",
            paper.name()
        ));
    }
    show(paper, options, &records, &figures, &[])?;
    Ok(records.all_ok())
}

/// What the analysis and the simulator give for a paper.
struct Results {
    records: Records,
    figures: Vec<FigurePlot>,
    /// How long the equations of all figures took.
    analysis: Duration,
    /// How long the simulation of the figures took that are made together, with their items.
    simulations: Vec<(&'static [&'static str], Duration)>,
}

fn results(paper: Paper, effort: &Effort) -> miette::Result<Results> {
    let spinner = Spinner::new();
    let mut simulations = Vec::new();
    let mut start = Instant::now();
    let simulated =
        simulation_by_figure(paper, effort, &mut |step| spinner.say(step), &mut |items| {
            simulations.push((items, start.elapsed()));
            start = Instant::now();
        });
    spinner.finish();
    let simulated = simulated.into_diagnostic()?;
    let start = Instant::now();
    let mut records = Records {
        records: analysis(paper).into_diagnostic()?,
    };
    let analysis = start.elapsed();
    records.records.retain(|record| effort.wants(&record.item));
    records.records.extend(simulated.records);
    Ok(Results {
        records,
        figures: simulated.figures,
        analysis,
        simulations,
    })
}

/// The name of a figure's file, if `same` figures of this item come before it.
fn figure_file(item: &str, same: usize) -> String {
    let name = item.replace(' ', "-");
    match same {
        0 => name,
        same => format!("{name}-{}", same + 1),
    }
}

/// Prints the table and writes the requested files. `points` are those of the lab.
fn show(
    paper: Paper,
    options: &ReproduceOptions,
    records: &Records,
    figures: &[FigurePlot],
    points: &[Point],
) -> miette::Result<()> {
    if let Some(folder) = &options.output_directory {
        write_figures(paper, folder, figures)?;
    }
    if options.output.json {
        printing::line(records.to_json());
    } else {
        printing::text(table(paper, &records.records, options.lab).to_text(stdout_width()));
    }
    if let Some(file) = &options.html {
        let mut report = report(paper, records, figures, options.lab).into_diagnostic()?;
        report.method.facts.extend(origin::facts(points));
        report.downloads.extend(origin::path_files(points));
        files::write_report(report, file)?;
    }
    Ok(())
}

/// The figures as separate files.
fn write_figures(paper: Paper, folder: &Path, figures: &[FigurePlot]) -> miette::Result<()> {
    fs::create_dir_all(folder)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot make {}", folder.display()))?;
    for figure in figures {
        let name = figure_file(&figure.item, 0);
        let file = folder.join(format!("{}-{name}.svg", paper.name()));
        let svg = figure.plot.to_svg().into_diagnostic()?;
        files::write(&file, svg)?;
    }
    Ok(())
}
