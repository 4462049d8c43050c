//! `midspan cleanup`: removes the leftovers of a Midspan that was killed.

use super::Outcome;
use crate::output_arguments::Output;
use crate::printing;

/// Removes the leftovers, and prints their number.
pub fn cleanup(output: &Output) -> Outcome {
    let cleaned = midspan_proxy::cleanup()?;
    if output.json {
        printing::json(&cleaned)?;
    } else {
        printing::line(format_args!(
            "removed: rules, routes and tables {}, tables of ACK thinning {}, lock files {}",
            cleaned.rules_and_routes, cleaned.thinning_tables, cleaned.lock_files
        ));
    }
    Ok(true)
}
