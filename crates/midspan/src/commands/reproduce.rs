//! `midspan reproduce PAPER`: a paper's figures next to Midspan's.

pub(super) mod lab;

use std::fs;
use std::path::Path;

use midspan_records::{By, Record, Records};
use midspan_report::units::Scale;
use midspan_report::{
    Alignment, Axis, Cell, Content, LinePlot, Report, Section, Series, Table, stdout_width,
};
use midspan_reproduce::{Effort, FigurePlot, Paper, analysis, curves, simulation};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::Outcome;
use super::choices::cores;
use crate::lab_arguments::ReproduceOptions;
use crate::printing;
use crate::progress::Spinner;

/// Digits shown: one more than any paper prints.
const DIGITS: i32 = 9;

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
        let table = table(paper, &records.records, options.lab);
        printing::text(table.to_text(stdout_width()));
    }
    if let Some(file) = &options.html {
        let page = report(paper, records, figures, options.lab)?
            .to_html()
            .into_diagnostic()?;
        fs::write(file, page)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write the report {}", file.display()))?;
        printing::note(format_args!("report: {}", file.display()));
    }
    Ok(())
}

/// The table, the simulated figures, and the figures of the analysis.
fn report(
    paper: Paper,
    records: &Records,
    figures: &[FigurePlot],
    lab: bool,
) -> miette::Result<Report> {
    let mut content = vec![Content::Table(table(paper, &records.records, lab))];
    for figure in figures {
        let mut plot = figure.plot.clone();
        plot.title = format!("{}: {}", figure.item, plot.title);
        content.push(Content::Lines(plot));
    }
    for curves in curves(paper).into_diagnostic()? {
        content.push(Content::Lines(LinePlot {
            title: curves.title,
            x: Axis::new(curves.x.0, curves.x.1),
            y: Axis::new(curves.y.0, curves.y.1),
            series: curves
                .lines
                .into_iter()
                .map(|line| Series {
                    name: line.name,
                    points: line.points,
                })
                .collect(),
        }));
    }
    Ok(Report {
        title: format!("What {} prints, and what comes out here", paper.name()),
        command: format!(
            "midspan reproduce {}{}",
            paper.name(),
            if lab { " --lab" } else { "" }
        ),
        sections: vec![Section {
            heading: "The paper's figures".to_owned(),
            text: String::new(),
            content,
        }],
        records: records.clone(),
        ..Report::default()
    })
}

/// The figures as separate files.
fn write_figures(paper: Paper, folder: &Path, figures: &[FigurePlot]) -> miette::Result<()> {
    let failed = |file: &Path| format!("cannot write {}", file.display());
    fs::create_dir_all(folder)
        .into_diagnostic()
        .wrap_err_with(|| failed(folder))?;
    for figure in figures {
        let name = figure.item.replace(' ', "-");
        let file = folder.join(format!("{}-{name}.svg", paper.name()));
        let svg = figure.plot.to_svg().into_diagnostic()?;
        fs::write(&file, svg)
            .into_diagnostic()
            .wrap_err_with(|| failed(&file))?;
    }
    Ok(())
}

/// With a column for the source of each number, if `lab` is one of the sources.
fn table(paper: Paper, records: &[Record], lab: bool) -> Table {
    let mut table = Table::new(&format!(
        "What {} prints, and what comes out here",
        paper.name()
    ));
    for heading in ["item", "case", "quantity"] {
        table.add_column(heading, Alignment::Left);
    }
    if lab {
        table.add_column("by", Alignment::Left);
    }
    for heading in ["paper", "here", "difference"] {
        table.add_column(heading, Alignment::Right);
    }
    for record in records {
        // The paper's own unit prefix for both, so that digits can be compared.
        let scale = Scale::of(record.paper.unwrap_or(record.value), &record.unit);
        let shown = |value: f64| scale.label(&digits(scale.convert(value)));
        let paper = record.paper.map_or_else(String::new, shown);
        let difference = record
            .paper
            .filter(|paper| *paper != 0.0)
            .map_or_else(String::new, |paper| {
                format!("{:+.4} %", (record.value / paper - 1.0) * 100.0)
            });
        let spread = match (record.low, record.high) {
            (Some(low), Some(high)) => format!(" ({}–{})", shown(low), shown(high)),
            _ => String::new(),
        };
        let mut here = Cell::new(&format!("{}{spread}", shown(record.value))).with_ok(record.ok);
        if let Some(note) = &record.note {
            table.add_note(&mut here, note);
        }
        let mut row = vec![
            Cell::new(&record.item),
            Cell::new(&record.case),
            Cell::new(&record.quantity),
        ];
        if lab {
            row.push(Cell::new(name_of(record.by)));
        }
        row.extend([Cell::new(&paper), here, Cell::new(&difference)]);
        table.add_row(row);
    }
    table
}

const fn name_of(by: By) -> &'static str {
    match by {
        By::Analysis => "analysis",
        By::Simulation => "simulation",
        By::Lab => "lab",
        By::Measurement => "measurement",
    }
}

/// `value` with nine significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let before_point = if value == 0.0 {
        1
    } else {
        value.abs().log10().floor() as i32 + 1
    };
    let decimals = usize::try_from(DIGITS - before_point).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn digits_are_kept_and_empty_zeros_are_not() {
        assert_eq!(digits(2.823_370), "2.82337");
        assert_eq!(digits(180.320_358), "180.320358");
        assert_eq!(digits(800.0), "800");
        assert_eq!(digits(0.0), "0");
        assert_eq!(digits(1e12), "1000000000000");
    }
}
