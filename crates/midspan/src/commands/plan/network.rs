//! `midspan plan network`: which nodes to make overlay nodes, and the routes over them.

use midspan_plan::plan_network;
use midspan_records::Records;
use midspan_report::{Content, Report, Section, stdout_width};
use miette::IntoDiagnostic;

use super::load;
use crate::commands::Outcome;
use crate::files;
use crate::plan_arguments::NetworkOptions;
use crate::printing;

/// Chooses and prints.
pub fn network(options: &NetworkOptions) -> Outcome {
    let path = load(&options.path, &options.set)?;
    let nodes = usize::try_from(options.nodes).unwrap_or(usize::MAX);
    let plan = plan_network(&path, nodes, options.size).into_diagnostic()?;
    let records = Records {
        records: plan.records(),
    };
    let table = plan.table();
    if options.output.json {
        printing::line(records.to_json());
    } else {
        printing::line(plan.text());
        printing::text(table.to_text(stdout_width()));
    }
    if let Some(file) = &options.html {
        let report = Report {
            title: format!("Overlay nodes on the path \"{}\"", plan.name),
            summary: plan.text(),
            command: printing::command_line(),
            sections: vec![Section {
                heading: "Routes".to_owned(),
                text: String::new(),
                content: vec![Content::Table(table)],
            }],
            records,
            ..Report::default()
        };
        files::write_report(report, file)?;
    }
    Ok(true)
}
