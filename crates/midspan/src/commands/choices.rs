//! What the commands about paths have in common: changed values, chosen flows, threads, Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use midspan_document::{Located, Override, Sweep};
use midspan_path::Path;
use miette::{Context, IntoDiagnostic, miette};
use signal_hook::consts::SIGINT;

/// The values of `--set`.
pub fn overrides(set: &[String]) -> Result<Vec<Override>, Located> {
    set.iter()
        .map(|text| Override::parse("--set", text))
        .collect()
}

/// The values of `--sweep`.
pub fn sweeps(sweep: &[String]) -> Result<Vec<Sweep>, Located> {
    sweep
        .iter()
        .map(|text| Sweep::parse("--sweep", text))
        .collect()
}

/// A flag that the first Ctrl-C sets. The second one ends the command at once.
pub fn interruption() -> miette::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&interrupted))
        .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)))
        .into_diagnostic()
        .wrap_err("cannot catch Ctrl-C")?;
    Ok(interrupted)
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
