//! `midspan merge`: one file of finished runs, made of several.

use midspan_records::merge as merge_stores;
use miette::IntoDiagnostic;
use serde_json::json;

use super::Outcome;
use crate::lab_arguments::MergeOptions;
use crate::printing;

/// Joins files and folders of finished runs.
pub fn merge(options: &MergeOptions) -> Outcome {
    let merged = merge_stores(&options.stores, &options.output).into_diagnostic()?;
    if options.json {
        printing::line(json!({
            "output": options.output,
            "runs": merged.rows,
            "equal": merged.equal,
            "different": merged.different,
            "ignored": merged.ignored,
        }));
    } else {
        let (file, runs) = (options.output.display(), merged.rows);
        printing::line(format_args!(
            "{file}: {runs} runs; {} more are equal to one of these",
            merged.equal
        ));
    }
    if merged.different > 0 {
        printing::warning(format_args!(
            "{} runs had another result in an earlier file; the later one counts",
            merged.different
        ));
    }
    if merged.ignored > 0 {
        printing::warning(format_args!(
            "{} lines are incomplete, damaged or of an earlier version of Midspan, and were left out",
            merged.ignored
        ));
    }
    Ok(true)
}
