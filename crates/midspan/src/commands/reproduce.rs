//! `midspan reproduce PAPER`: a paper's figures next to Midspan's.

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
    let paper: Paper = options.paper.into();
    if options.lab {
        return lab::reproduce(paper, options);
    }
    let effort = Effort {
        quick: options.quick,
        item: options.item.clone(),
        threads: options.threads.map_or_else(cores, usize::from),
    };
    let spinner = Spinner::new();
    let simulated = simulation(paper, &effort, &mut |step| spinner.say(step));
    spinner.finish();
    let simulated = simulated.into_diagnostic()?;
    let mut records = Records {
        records: analysis(paper).into_diagnostic()?,
    };
    records.records.retain(|record| effort.wants(&record.item));
    records.records.extend(simulated.records);
    if let (Some(item), true) = (&options.item, records.records.is_empty()) {
        return Err(miette!(
            help = "without an item, all are printed, with their names",
            "{} has no item \"{item}\" that is reproduced",
            paper.name()
        ));
    }
    show(paper, options, &records, &simulated.figures)?;
    Ok(records.all_ok())
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
        let name = figure.item.replace(' ', "-");
        let file = folder.join(format!("{}-{name}.svg", paper.name()));
        let svg = figure.plot.to_svg().into_diagnostic()?;
        files::write(&file, svg)?;
    }
    Ok(())
}
