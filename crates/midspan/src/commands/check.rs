//! `midspan check`: finds what is missing on this machine.

use std::path::Path;

use midspan_proxy::check::{CheckOptions as Options, CheckReport, State, check as check_all};
use midspan_report::{Alignment, Cell, Table, stdout_width};
use miette::IntoDiagnostic;

use super::Outcome;
use crate::arguments::CheckOptions;
use crate::printing;

/// Runs all checks.
pub fn check(options: &CheckOptions) -> Outcome {
    let report = check_all(&Options {
        configuration: options.config.clone(),
        kernel_arguments: vec![
            "check-kernel".to_owned(),
            options.config.display().to_string(),
        ],
        rate: options.rate.map(u64::from),
    })?;
    if options.output.json {
        printing::line(serde_json::to_string_pretty(&report).into_diagnostic()?);
    } else {
        print(&report);
    }
    Ok(report.is_met())
}

/// The part that tests the kernel, in a network namespace of its own.
pub fn kernel(config: &Path) -> Outcome {
    midspan_proxy::check::kernel_main(config)?;
    Ok(true)
}

fn print(report: &CheckReport) {
    let mut table = Table::new("");
    for heading in ["check", "state", "found"] {
        table.add_column(heading, Alignment::Left);
    }
    for finding in &report.checks {
        let texts = [&finding.check, name(finding.state), &finding.found];
        table.add_row(texts.into_iter().map(Cell::new).collect());
    }
    printing::text(table.to_text(stdout_width()));
    // Commands are not in the table, because it would wrap them.
    for (state, heading) in [
        (State::Missing, "Missing, and how to fix it:"),
        (State::Warning, "Not required, but recommended:"),
    ] {
        let mut findings = report.checks.iter().filter(|f| f.state == state).peekable();
        if findings.peek().is_some() {
            printing::line(format_args!("\n{heading}"));
        }
        for finding in findings {
            let mend = finding.mend.as_deref().unwrap_or_default();
            printing::line(format_args!("  {}\n    {mend}", finding.check));
        }
    }
}

const fn name(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Missing => "missing",
    }
}
