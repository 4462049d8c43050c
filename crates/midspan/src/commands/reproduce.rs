//! `midspan reproduce PAPER`: a paper's figures next to Midspan's.

mod bundle;
pub(super) mod lab;

use std::fs;
use std::path::Path;

use midspan_records::Records;
use midspan_report::stdout_width;
use midspan_reproduce::{Effort, FigurePlot, Paper, analysis, report, simulation, table};
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
    let (records, figures) = results(paper, &effort)?;
    if let (Some(item), true) = (&options.item, records.records.is_empty()) {
        return Err(miette!(
            help = "without an item, all are printed, with their names",
            "{} has no item \"{item}\" that is reproduced",
            paper.name()
        ));
    }
    show(paper, options, &records, &figures)?;
    Ok(records.all_ok())
}

/// What the analysis and the simulator give for a paper.
fn results(paper: Paper, effort: &Effort) -> miette::Result<(Records, Vec<FigurePlot>)> {
    let spinner = Spinner::new();
    let simulated = simulation(paper, effort, &mut |step| spinner.say(step));
    spinner.finish();
    let simulated = simulated.into_diagnostic()?;
    let mut records = Records {
        records: analysis(paper).into_diagnostic()?,
    };
    records.records.retain(|record| effort.wants(&record.item));
    records.records.extend(simulated.records);
    Ok((records, simulated.figures))
}

/// The name of a figure's file, if `same` figures of this item come before it.
fn figure_file(item: &str, same: usize) -> String {
    let name = item.replace(' ', "-");
    match same {
        0 => name,
        same => format!("{name}-{}", same + 1),
    }
}

/// Prints the table and writes the requested files.
fn show(
    paper: Paper,
    options: &ReproduceOptions,
    records: &Records,
    figures: &[FigurePlot],
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
        let report = report(paper, records, figures, options.lab).into_diagnostic()?;
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
