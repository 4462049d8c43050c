//! Programs that leave no process behind.
//!
//! unshare(1) starts the program in a process namespace of its own (pid_namespaces(7)), in which all
//! processes remain that the program starts, also those in the background. When the program ends or unshare
//! is killed, the kernel kills all processes of the namespace. unshare itself is killed with the process
//! that started it, if it was started by `NetworkNamespace::spawn`.

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
