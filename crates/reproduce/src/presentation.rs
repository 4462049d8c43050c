//! The numbers of a paper next to the paper's own, as a table and as a report.

use midspan_records::{Record, Records};
use midspan_report::{
    Axis, Content, Extra, LinePlot, Report, Section, Series, Table, beside_printed,
};

use crate::{Error, FigurePlot, Paper, curves};

/// The table, the simulated figures, and the figures of the analysis.
///
/// # Errors
/// Those of [`curves()`].
pub fn report(
    paper: Paper,
    records: &Records,
    figures: &[FigurePlot],
    lab: bool,
) -> Result<Report, Error> {
    let mut content = vec![Content::Table(table(paper, &records.records, lab))];
    for figure in figures {
        let mut plot = figure.plot.clone();
        plot.title = format!("{}: {}", figure.item, plot.title);
        content.push(Content::Lines(plot));
    }
    let computed = curve_figures(paper)?.into_iter();
    content.extend(computed.map(|figure| Content::Lines(figure.plot)));
    Ok(Report {
        title: title(paper),
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

/// The figures of the analysis.
///
/// # Errors
/// Those of [`curves()`].
pub fn curve_figures(paper: Paper) -> Result<Vec<FigurePlot>, Error> {
    let figures = curves(paper)?.into_iter().map(|curves| {
        let lines = curves.lines.into_iter().map(|line| Series {
            name: line.name,
            points: line.points,
        });
        let plot = LinePlot {
            title: curves.title,
            x: Axis::new(curves.x.0, curves.x.1),
            y: Axis::new(curves.y.0, curves.y.1),
            series: lines.collect(),
        };
        FigurePlot::new(curves.item, plot)
    });
    Ok(figures.collect())
}

/// Each number next to the paper's. If `lab` is one of the sources, a column shows the source of
/// each number.
#[must_use]
pub fn table(paper: Paper, records: &[Record], lab: bool) -> Table {
    let by = |record: &Record| record.by.name().to_owned();
    let by: &[Extra<'_>] = if lab { &[("by", &by)] } else { &[] };
    beside_printed(&title(paper), records, by)
}

fn title(paper: Paper) -> String {
    format!("What {} prints, and what comes out here", paper.name())
}
