//! `midspan compare PATH`: analysis, simulator and lab side by side.

use midspan_lab::{Case, CaseKind, Purpose, flow_records, versions};
use midspan_linux::namespace;
use midspan_path::Path;
use midspan_records::quantity::{COMPLETION_TIME, GOODPUT};
use midspan_records::{By, Record, Records};
use midspan_report::{
    BarPlot, Content, Download, Fact, Method, Report, Section, Table, stdout_width,
};
use midspan_reproduce::comparison::{Comparison, table};
use miette::IntoDiagnostic;

use super::Outcome;
use super::choices::choose_flows;
use super::lab::run_with_progress;
use crate::commands::plan::load;
use crate::files;
use crate::plan_arguments::CompareOptions;
use crate::printing;

/// Computes, simulates, measures and prints.
pub fn compare(options: &CompareOptions) -> Outcome {
    let mut path = load(&options.path, &options.set)?;
    choose_flows(&mut path, &options.flows)?;
    // The lab first: it enters its own namespaces, which must happen before any thread starts.
    let (lab, valid) = if options.without_lab {
        (Vec::new(), true)
    } else {
        lab(&path, options)?
    };
    let mut rows = Vec::new();
    for flow in &path.flows {
        for case in [CaseKind::Direct, CaseKind::Midspan] {
            if case == CaseKind::Midspan && path.proxies_of(flow).is_empty() {
                continue;
            }
            rows.push(
                Comparison::new(&path, flow, case, options.repetitions, &lab).into_diagnostic()?,
            );
        }
    }
    let records = Records {
        records: rows.iter().flat_map(|row| row.records(&path)).collect(),
    };
    let table = table(&path, &rows);
    if options.output.json {
        printing::line(records.to_json());
    } else {
        printing::text(table.to_text(stdout_width()));
    }
    if let Some(file) = &options.html {
        files::write_report(page(&path, table, records, options.repetitions), file)?;
    }
    Ok(valid)
}

/// The page: a chart for each quantity, then the table.
fn page(path: &Path, table: Table, records: Records, repetitions: u32) -> Report {
    let charts = [&COMPLETION_TIME, &GOODPUT].map(|quantity| {
        BarPlot::from_records(&quantity.name, &quantity.name, &records.records, |record| {
            Some((record.case.clone(), record.by.name().to_owned()))
        })
    });
    let charts = charts.into_iter().filter(|chart| !chart.groups.is_empty());
    let mut facts = vec![
        Fact::new("path", &path.name),
        Fact::new("seed of the first repetition", path.seed),
        Fact::new("repetitions", repetitions),
    ];
    if records.records.iter().any(|record| record.by == By::Lab) {
        facts.extend(versions([(CaseKind::Direct, path)]));
    }
    Report {
        title: format!("Analysis, simulation and lab on the path \"{}\"", path.name),
        command: printing::command_line(),
        sections: vec![Section {
            heading: "Side by side".to_owned(),
            text: "Medians of the repetitions, with the least and the greatest.".to_owned(),
            content: charts
                .map(Content::Bars)
                .chain([Content::Table(table)])
                .collect(),
        }],
        method: Method {
            facts,
            ..Method::default()
        },
        records,
        downloads: path
            .to_text()
            .map(Download::path_file)
            .into_iter()
            .collect(),
        ..Report::default()
    }
}

/// The lab's results, and whether every run was valid.
fn lab(path: &Path, options: &CompareOptions) -> miette::Result<(Vec<Record>, bool)> {
    let kinds = if path.proxies().next().is_some() {
        vec![CaseKind::Direct, CaseKind::Midspan]
    } else {
        vec![CaseKind::Direct]
    };
    let cases = Case::of_kinds(&kinds, path, options.timeout.into()).into_diagnostic()?;
    namespace::isolate().into_diagnostic()?;
    let measurements = run_with_progress(path, &cases, options.repetitions, Purpose::Measurement)?;
    let valid = measurements.iter().all(|run| run.validity.is_valid());
    Ok((flow_records(path, &measurements), valid))
}
