//! `midspan compare PATH`: analysis, simulator and lab side by side.

use midspan_lab::{Case, CaseKind, Purpose, flow_records};
use midspan_linux::namespace;
use midspan_path::Path;
use midspan_records::{Record, Records};
use midspan_report::stdout_width;
use midspan_reproduce::comparison::{Comparison, table};
use miette::IntoDiagnostic;

use super::Outcome;
use super::choices::choose_flows;
use super::lab::run_with_progress;
use crate::commands::plan::load;
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
    if options.output.json {
        let records = Records {
            records: rows.iter().flat_map(|row| row.records(&path)).collect(),
        };
        printing::line(records.to_json());
    } else {
        printing::text(table(&path, &rows).to_text(stdout_width()));
    }
    Ok(valid)
}

/// The lab's results, and whether every run was valid.
fn lab(path: &Path, options: &CompareOptions) -> miette::Result<(Vec<Record>, bool)> {
    let kinds = if path.proxies().next().is_some() {
        vec![CaseKind::Direct, CaseKind::Midspan]
    } else {
        vec![CaseKind::Direct]
    };
    let cases = Case::of_kinds(&kinds, path, options.timeout.into());
    namespace::isolate().into_diagnostic()?;
    let measurements = run_with_progress(path, &cases, options.repetitions, Purpose::Measurement)?;
    let valid = measurements.iter().all(|run| run.validity.is_valid());
    Ok((flow_records(path, &measurements), valid))
}
