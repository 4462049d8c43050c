//! Midspan itself, as an operator would run it.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use midspan_linux::namespace::NetworkNamespace;
use midspan_linux::process::RunningProgram;
use midspan_policy::LegSettings;
use serde::Serialize;

use super::Forward;
use crate::LabError;
use crate::error::at;

#[derive(Serialize)]
struct Configuration<'a> {
    listener: Vec<Listener<'a>>,
}

#[derive(Serialize)]
struct Listener<'a> {
    name: String,
    mode: &'static str,
    listen: String,
    to: String,
    client_leg: &'a LegSettings,
    server_leg: &'a LegSettings,
}

/// Starts `midspan run` (the program that runs now) on `node`; returns once it is ready.
pub fn start(
    node: &NetworkNamespace,
    forwards: &[Forward],
    client_leg: &LegSettings,
    server_leg: &LegSettings,
    folder: &Path,
) -> Result<RunningProgram, LabError> {
    let listener = forwards
        .iter()
        .enumerate()
        .map(|(index, forward)| Listener {
            name: format!("l{index}"),
            mode: "forward",
            listen: forward.listen.to_string(),
            to: forward.to.to_string(),
            client_leg,
            server_leg,
        })
        .collect();
    let text =
        toml::to_string(&Configuration { listener }).map_err(|error| failed(error.to_string()))?;
    let configuration = folder.join("midspan.toml");
    fs::write(&configuration, text).map_err(at(&configuration))?;
    let log = folder.join("midspan.log");
    let file = fs::File::create(&log).map_err(at(&log))?;
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(this);
    // Ready is said on standard output: one byte.
    command
        .args(["run", "--ready-fd", "1", "--config"])
        .arg(&configuration)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file);
    let mut child = node.spawn(command)?;
    let ready = child.stdout.take();
    let program = RunningProgram::new(child, Duration::from_secs(2));
    let mut byte = [0];
    match ready.map(|mut ready| ready.read(&mut byte)) {
        Some(Ok(1)) => Ok(program),
        _ => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            Err(failed(format!("it did not become ready: {}", said.trim())))
        }
    }
}

fn failed(reason: String) -> LabError {
    LabError::Program {
        program: "midspan run".into(),
        reason,
    }
}
