//! What the commands about paths have in common: changed values, chosen flows, threads.

use midspan_document::{Located, Override};
use midspan_path::Path;
use miette::miette;

/// The values of `--set`.
pub fn overrides(set: &[String]) -> Result<Vec<Override>, Located> {
    set.iter()
        .map(|text| Override::parse("--set", text))
        .collect()
}

/// Keeps only the selected flows.
pub fn choose_flows(path: &mut Path, names: &[String]) -> miette::Result<()> {
    let known: Vec<String> = path.flows.iter().map(|flow| flow.name.clone()).collect();
    for name in names {
        if !known.contains(name) {
            let near = midspan_document::nearest(name, known.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
            return Err(miette!(
                "path \"{}\" has no flow \"{name}\"{hint}; it has {}",
                path.name,
                known.join(", ")
            ));
        }
    }
    if !names.is_empty() {
        path.flows.retain(|flow| names.contains(&flow.name));
    }
    if path.flows.is_empty() {
        return Err(miette!(
            "path \"{}\" has no flow, so there is nothing to run: add a [[flow]]",
            path.name
        ));
    }
    Ok(())
}

/// Default number of threads: one for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
