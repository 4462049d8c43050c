//! One module for each command.

pub mod capture;
pub mod check;
pub mod cleanup;
pub mod compare;
pub mod conformance;
pub mod control;
pub mod demo;
pub mod init;
pub mod lab;
pub mod paths;
pub mod plan;
pub mod real_paths;
pub mod reproduce;
pub mod run;
pub mod sim;
pub mod thin;
pub mod verify;

use midspan_document::{Located, Override};
use midspan_path::Path;
use miette::miette;

/// `Ok(false)`: the command is complete, but a run was void, a bound was missed, or a requirement is
/// missing.
pub type Outcome = miette::Result<bool>;

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
