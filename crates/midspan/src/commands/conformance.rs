//! `midspan conformance`: sessions at every edge of TCP, with and without a proxy.

use midspan_conformance::case::{self, Case};
use midspan_conformance::cases;
use midspan_conformance::{Family, Outcome as CaseOutcome, Plan, Verdict, proxy_names, results};
use midspan_linux::namespace;
use midspan_report::stdout_width;
use miette::{IntoDiagnostic, miette};

use super::Outcome;
use crate::lab_arguments::ConformanceOptions;
use crate::printing;
use crate::progress::Bar;

/// Runs the cases and prints the differences.
pub fn conformance(options: &ConformanceOptions) -> Outcome {
    let cases = chosen_cases(&options.only)?;
    if options.list {
        for case in cases {
            printing::line(case.name);
        }
        return Ok(true);
    }
    let program = match &options.program {
        Some(program) => program.canonicalize(),
        None => std::env::current_exe(),
    };
    let plan = Plan {
        cases,
        families: families(options),
        against: known_names(&options.against)?,
        program: program.into_diagnostic()?,
        quick: options.quick,
        limit: options.timeout.into(),
        jobs: options.jobs.into(),
    };
    namespace::isolate().into_diagnostic()?;
    let runs = plan.cases.len() * plan.families.len() * (plan.against.len() + 1);
    let bar = Bar::new(runs as u64);
    let results = midspan_conformance::run(&plan, &|outcome, _, _| {
        bar.next(&format!("{}, {}", outcome.case, outcome.proxy));
        if outcome.verdict == Verdict::Different {
            bar.say(&difference(outcome));
        }
    });
    bar.finish();
    let results = results.into_diagnostic()?;
    if options.output.json {
        printing::line(results::records(&results).to_json());
    } else if options.markdown {
        printing::line(results::table(&results).to_markdown());
        printing::line("### What both ends do and see without a proxy\n");
        printing::text(results::baseline(&results).to_markdown());
    } else {
        printing::text(results::table(&results).to_text(stdout_width()));
    }
    Ok(results.all_conform())
}

fn families(options: &ConformanceOptions) -> Vec<Family> {
    match (options.ipv4, options.ipv6) {
        (true, false) => vec![Family::V4],
        (false, true) => vec![Family::V6],
        _ => vec![Family::V4, Family::V6],
    }
}

fn chosen_cases(patterns: &[String]) -> miette::Result<Vec<Case>> {
    let mut cases = cases::all();
    for pattern in patterns {
        if !cases.iter().any(|known| case::fits(pattern, known.name)) {
            let near = midspan_document::nearest(pattern, cases.iter().map(|known| known.name));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
            return Err(miette!("no case fits \"{pattern}\"{hint}; see --list"));
        }
    }
    if !patterns.is_empty() {
        cases.retain(|known| {
            patterns
                .iter()
                .any(|pattern| case::fits(pattern, known.name))
        });
    }
    Ok(cases)
}

fn known_names(names: &[String]) -> miette::Result<Vec<String>> {
    let known = proxy_names();
    for name in names {
        if !known.contains(name) {
            let near = midspan_document::nearest(name, known.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
            return Err(miette!(
                "no proxy is called \"{name}\"{hint}; there are {}",
                known.join(", ")
            ));
        }
    }
    Ok(names.to_vec())
}

/// Prints a difference as soon as it is found, with all events at both ends.
fn difference(outcome: &CaseOutcome) -> String {
    format!(
        "{}, {}, {}:\n  expected  {}\n  seen      {}",
        outcome.case,
        outcome.family.name(),
        outcome.proxy,
        outcome.expected,
        outcome.seen
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use crate::arguments::{Arguments, Command};
    use crate::lab_arguments::LabPackage;

    #[test]
    fn the_default_time_limit_is_that_of_the_suite() {
        let arguments = Arguments::try_parse_from(["midspan", "conformance"]).unwrap();
        let Command::LabPackage(LabPackage::Conformance(options)) = arguments.command else {
            panic!("another command");
        };
        assert_eq!(Duration::from(options.timeout), midspan_conformance::LIMIT);
    }
}
