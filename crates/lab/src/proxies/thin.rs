//! `midspan thin` on a client's host.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;
use midspan_units::BitRate;

use crate::LabError;
use crate::error::at;

/// How `midspan thin` is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThinOptions {
    /// Every ACK passes; otherwise they are thinned by the default policy.
    pub pass: bool,
    /// ACKs go before data in the host's queue, for an upstream of this rate.
    pub ack_first: Option<BitRate>,
}

/// Starts `midspan thin` (the program that runs now) on `node` for what leaves by `interface`;
/// returns once ACKs are being thinned.
pub fn start(
    node: &NetworkNamespace,
    interface: &str,
    options: ThinOptions,
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
        .args(
            options
                .pass
                .then_some(["--policy", "pass"])
                .into_iter()
                .flatten(),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    if let Some(rate) = options.ack_first {
        command.args(["--ack-first", "--upstream", &rate.to_string()]);
    }
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
