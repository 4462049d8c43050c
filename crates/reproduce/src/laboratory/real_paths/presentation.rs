//! The results of the real paths as a report.

use midspan_records::{By, Record, Records};
use midspan_report::{BarPlot, Content, Fact, Method, Report, Section, Validity};

use super::super::{Laboratory, Metric, Point, origin};
use super::{summary, targets, times};

/// The report: a chart of the completion times of each transfer, the table, and the targets. `command` is
/// the command that measured, as it was typed.
#[must_use]
pub fn report(laboratory: &Laboratory, command: String) -> Report {
    let Laboratory {
        points,
        figures,
        judged,
        runs,
        void,
    } = laboratory;
    let charts = transfers(points).into_iter().map(|transfer| {
        let quantity = Metric::Completion.quantity().name;
        BarPlot::from_records(transfer, &quantity, &figures.records, |record| {
            let (point, case) = place(points, record)?;
            let (path, of) = point.name.split_once(", ")?;
            (of == transfer).then(|| (path.to_owned(), case.to_owned()))
        })
    });
    let charts: Vec<BarPlot> = charts.filter(|chart| !chart.groups.is_empty()).collect();
    let mut sections = vec![Section {
        heading: "Completion times".to_owned(),
        text: "Medians over the repetitions, with the least and the greatest.".to_owned(),
        content: charts
            .into_iter()
            .map(Content::Bars)
            .chain([Content::Table(times(points, &figures.records))])
            .collect(),
    }];
    if !judged.is_empty() {
        sections.push(Section {
            heading: "Targets".to_owned(),
            text: "A target is met if the median meets it, and missed if the whole interval is beyond it. \
                   Otherwise it is open."
                .to_owned(),
            content: vec![Content::Table(targets(judged))],
        });
    }
    let repetitions = points.iter().map(|point| point.repetitions);
    let repetitions = (repetitions.clone().min(), repetitions.max());
    let mut facts = vec![
        Fact::new("runs", runs),
        Fact::new(
            "repetitions of a case",
            match repetitions {
                (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
                (Some(all), _) => all.to_string(),
                (None, _) => "0".to_owned(),
            },
        ),
    ];
    facts.extend(origin::facts(points));
    Report {
        title: "Midspan without hand-set values on real paths".to_owned(),
        summary: summary(judged),
        command,
        sections,
        method: Method {
            validity: match void {
                0 => Validity::Valid,
                _ => Validity::Void(vec![format!("{void} of {runs} runs are void and do not count")]),
            },
            facts,
            notes: vec![
                "Hosts and proxies are network namespaces of one machine, each with the kernel's own TCP. \
                 Links are emulated in user space; losses are the same for every case of a repetition. \
                 The cases alternate."
                    .to_owned(),
            ],
        },
        records: Records {
            records: figures.records.clone(),
        },
        downloads: origin::path_files(points),
        ..Report::default()
    }
}

/// The transfers of the points, each once.
fn transfers(points: &[Point]) -> Vec<&str> {
    let mut transfers = Vec::new();
    for (_, transfer) in points
        .iter()
        .filter_map(|point| point.name.split_once(", "))
    {
        if !transfers.contains(&transfer) {
            transfers.push(transfer);
        }
    }
    transfers
}

/// The point and the case of a measurement.
fn place<'a>(points: &'a [Point], record: &Record) -> Option<(&'a Point, &'a str)> {
    if record.by != By::Lab {
        return None;
    }
    points.iter().find_map(|point| {
        let case = point
            .cases
            .iter()
            .find(|case| record.case == format!("{}, {}", point.name, case.name))?;
        Some((point, case.name))
    })
}
