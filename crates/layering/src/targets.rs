//! The crates of a workspace, as Cargo lists them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::Error;

/// One crate: a library, a program, a test program, a benchmark or an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The package's name for a library; else with kind and name of the target,
    /// as in `midspan-proxy/test/transparent`.
    pub name: String,
    /// The file of its root module.
    pub root: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
    name: String,
    src_path: PathBuf,
}

/// All crates of the workspace with this manifest, in the order of their names.
///
/// # Errors
///
/// `cargo metadata` cannot be run, or fails.
pub fn targets(manifest: &Path) -> Result<Vec<Target>, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .map_err(|error| Error::Cargo(error.to_string()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Cargo(message));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Cargo(error.to_string()))?;
    let mut targets = Vec::new();
    for package in metadata.packages {
        for target in package.targets {
            let kind = target.kind.first().map_or("lib", String::as_str);
            let name = match kind {
                "bin" | "test" | "bench" | "example" | "custom-build" => {
                    format!("{}/{kind}/{}", package.name, target.name)
                }
                _ => package.name.clone(),
            };
            targets.push(Target {
                name,
                root: target.src_path,
            });
        }
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}
