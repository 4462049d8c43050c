//! Keys of overlay nodes.

use std::path::Path;
use std::process::{Command, Stdio};

use super::LaunchError;

/// Makes Midspan's executable `program` write a new private key to this file; returns the line for the list of members.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn new_node_key(program: &Path, file: &Path) -> Result<String, LaunchError> {
    let mut command = Command::new(program);
    let output = command
        .args(["overlay", "key", "--generate"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| LaunchError::Io {
            action: "make the key of a node",
            source,
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(LaunchError::Failed {
            program: program.display().to_string(),
            status: output.status,
            log: text(&output.stderr),
        }),
    }
}
