//! `midspan check`: finds what is missing on this machine.

use std::path::Path;

use midspan_proxy::check::{CheckOptions as Options, Expected, Finding, State, check as check_all};
use midspan_report::{Alignment, Cell, Table, stdout_width};

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
        expected: Expected {
            rate: options.rate.map(u64::from),
            sessions: options.sessions.map(u64::from),
        },
    })?;
    if options.output.json {
        printing::json(&report)?;
    } else {
        printing::text(text(&report.checks, stdout_width()));
    }
    Ok(report.is_met())
}

/// The part that tests the kernel, in a network namespace of its own.
pub fn kernel(config: &Path) -> Outcome {
    midspan_proxy::check::kernel_main(config)?;
    Ok(true)
}

fn text(checks: &[Finding], width: Option<u16>) -> String {
    let mut table = Table::new("");
    for heading in ["check", "state", "found"] {
        table.add_column(heading, Alignment::Left);
    }
    for finding in checks {
        let texts = [&finding.check, name(finding.state), &finding.found];
        table.add_row(texts.into_iter().map(Cell::new).collect());
    }
    let mut text = table.to_text(width);
    // Commands are not in the table, because it would wrap them.
    for (state, heading) in [
        (State::Missing, "Missing, and how to fix it:"),
        (State::Warning, "Not required, but recommended:"),
    ] {
        let mut findings = checks.iter().filter(|f| f.state == state).peekable();
        if findings.peek().is_some() {
            text += &format!("\n{heading}\n");
        }
        for finding in findings {
            let mend = finding.mend.as_deref().unwrap_or_default();
            text += &format!("  {}\n    {mend}\n", finding.check);
        }
    }
    text
}

const fn name(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warning => "warning",
        State::Missing => "missing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_before_what_is_recommended() {
        let finding = |check: &str, state, found: &str, mend: Option<&str>| Finding {
            check: check.to_owned(),
            state,
            found: found.to_owned(),
            mend: mend.map(str::to_owned),
        };
        let checks = [
            finding("kernel", State::Ok, "6.1.0", None),
            finding(
                "sysctl net.ipv4.tcp_wmem",
                State::Warning,
                "at most 4096 KiB: one connection gets at most about 43 Mbit/s",
                Some("sysctl -w net.ipv4.tcp_wmem='4096 16384 16777216'"),
            ),
            finding(
                "port of \"web\"",
                State::Missing,
                "127.0.0.1:80 is in use",
                Some("end the program that has it, or choose another port"),
            ),
        ];
        insta::assert_snapshot!(text(&checks, Some(100)));
    }
}
