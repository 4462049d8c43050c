//! Programs that leave nothing behind.
//!
//! Such a program and all that it starts are in a process namespace of their own (pid_namespaces(7)), made
//! by unshare(1). When the program ends, when the caller kills it, or when the caller is killed, the kernel
//! kills all of them, also those that run in the background.

use std::ffi::OsStr;
use std::process::Command;

use crate::LabError;
use crate::programs::Program;

/// The first process of the namespace: it starts the program and waits for all that end. As the first
/// process, the program itself would not be ended by signals that it does not handle.
const FIRST_PROCESS: &str = "\"$@\"; exit $?";

/// A command that runs a program with its arguments so. It ends with the exit status of the program.
pub(crate) fn contained(
    command: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<Command, LabError> {
    let mut contained = Command::new(Program::Unshare.find()?);
    contained
        .args([
            "--pid",
            "--kill-child",
            "--",
            "sh",
            "-c",
            FIRST_PROCESS,
            "sh",
        ])
        .args(command);
    Ok(contained)
}
