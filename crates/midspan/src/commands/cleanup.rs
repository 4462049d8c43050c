//! `midspan cleanup`: removes what a Midspan that was killed has left behind.

use miette::IntoDiagnostic;

use super::Outcome;
use crate::arguments::Output;

/// Does it, and prints how much there was.
pub fn cleanup(output: &Output) -> Outcome {
    let cleaned = midspan_proxy::cleanup()?;
    if output.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&cleaned).into_diagnostic()?
        );
    } else {
        println!(
            "removed: rules, routes and tables {}, tables of ACK thinning {}, lock files {}",
            cleaned.rules_and_routes, cleaned.thinning_tables, cleaned.lock_files
        );
    }
    Ok(true)
}
