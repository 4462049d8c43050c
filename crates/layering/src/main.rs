//! `layering`: finds sibling modules that use each other in a circle.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use midspan_layering::allowed::Allowed;
use midspan_layering::targets::targets;
use midspan_layering::{Error, Report, check};

/// Finds sibling modules that use each other in a circle, in every crate of a workspace.
///
/// A module uses a sibling if anything in it, or in a module below it, names anything in the
/// sibling or below it. Parent and child may use each other; tests do not count.
#[derive(Parser)]
#[command(after_help = "\
Exit status: 0 if there is no circle but allowed ones, 1 if there is one or the list allows an
arrow that lies on no circle any more, 2 if the check cannot be made.

Example:
  layering --allowed crates/layering/allowed.txt
  midspan-proxy: gate -> relay -> gate
      gate -> relay  crates/proxy/src/gate/held.rs:10: crate::relay::Clock
      relay -> gate  crates/proxy/src/relay/opening.rs:26: crate::gate::ServerLeg")]
struct Arguments {
    /// Manifest of the workspace
    #[arg(long, value_name = "FILE", default_value = "Cargo.toml")]
    manifest: PathBuf,
    /// List of arrows that may lie on a circle, each as `package: parent::from -> parent::to`
    #[arg(long, value_name = "FILE")]
    allowed: Option<PathBuf>,
    /// Take arrows that lie on no circle any more out of the list
    #[arg(long, requires = "allowed")]
    prune: bool,
    /// Print allowed circles too
    #[arg(long)]
    all: bool,
    /// Print everything found as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "layering: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Error> {
    let allowed = match &arguments.allowed {
        Some(file) => Allowed::read(file)?,
        None => Allowed::default(),
    };
    let manifest = std::path::absolute(&arguments.manifest).map_err(|source| Error::File {
        file: arguments.manifest.clone(),
        source,
    })?;
    let base = manifest.parent().unwrap_or(Path::new("/"));
    let mut report = check(&targets(&manifest)?, &allowed, base)?;
    if arguments.prune {
        let stale: BTreeSet<_> = allowed
            .entries()
            .filter(|entry| report.stale.contains(&entry.to_string()))
            .cloned()
            .collect();
        allowed.write_without(&stale)?;
        report.stale.clear();
    }
    print(arguments, &report);
    Ok(report.is_clean())
}

fn print(arguments: &Arguments, report: &Report) {
    let mut text = String::new();
    if arguments.json {
        text = serde_json::to_string_pretty(report).unwrap_or_default();
        text.push('\n');
    } else {
        for circle in &report.circles {
            if arguments.all || !circle.allowed {
                text.push_str(&circle.to_string());
            }
        }
        let list = arguments.allowed.as_deref().unwrap_or(Path::new(""));
        for entry in &report.stale {
            text.push_str(&format!(
                "{}: `{entry}` lies on no circle any more; take the line out (--prune does)\n",
                list.display()
            ));
        }
    }
    // The reader of the output may have gone; the exit status has the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
