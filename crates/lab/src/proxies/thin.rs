//! `midspan thin` on a client's host.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;

use crate::LabError;
use crate::error::at;

/// Starts `midspan thin` (the program that runs now) on `node` for what leaves by `interface`;
/// returns once ACKs are being thinned.
pub fn start(
    node: &NetworkNamespace,
    interface: &str,
    folder: &Path,
) -> Result<RunningProgram, LabError> {
    let log = folder.join("thin.log");
    let file = fs::File::create(&log).map_err(at(&log))?;
    let failed = |reason: String| LabError::Program {
        program: "midspan thin".into(),
        reason,
    };
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(this);
    command
        .args(["thin", "--interface", interface])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    let mut child = node.spawn(command)?;
    let ready = child.stdout.take();
    let program = RunningProgram::new(child, Duration::from_secs(5));
    // One line says that it is ready.
    let mut byte = [0];
    match ready.map(|mut ready| ready.read(&mut byte)) {
        Some(Ok(1)) => Ok(program),
        _ => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            Err(failed(said.trim().to_owned()))
        }
    }
}
