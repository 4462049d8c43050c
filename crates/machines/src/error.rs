//! What can go wrong outside the machines.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use midspan_records::StoreError;

/// Why a step cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read, written or started.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A program of this machine failed.
    #[error("{program} failed: {printed}")]
    Program {
        /// Its name.
        program: String,
        /// The end of its output, or why it cannot be started.
        printed: String,
    },
    /// The configuration of apt names no mirror.
    #[error(
        "/etc/apt/sources.list.d/debian.sources and /etc/apt/sources.list name no mirror of \
         Debian's \"{0}\", the release of this machine"
    )]
    NoMirror(String),
    /// Scenarios install packages.
    #[error("target/debian has no package midspan_*_amd64.deb for the scenarios: make deb")]
    NoPackages,
    /// The patterns fit no job.
    #[error(
        "no job has a name that fits \"{0}\" (* stands for any text, as in \"*passing*\"); --list shows all \
         names"
    )]
    NoJob(String),
    /// Only root can make images.
    #[error("images can be made by root only: run this command as root")]
    NotRoot,
    /// An emulated machine did not do what it was asked to.
    #[error("the machine with {release}: {what}; its console: {}", console.display())]
    Machine {
        /// Its release.
        release: String,
        /// What happened.
        what: String,
        /// The file with all that the kernel and systemd have printed.
        console: PathBuf,
    },
    /// A record of results cannot be read or written.
    #[error("{}: {source}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// What is wrong, and in which line.
        source: csv::Error,
    },
    /// The stored results cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Error {
    /// For `map_err`: a record of results, and what is wrong with it.
    pub fn record(file: &Path) -> impl FnOnce(csv::Error) -> Self + '_ {
        move |source| Self::Record {
            file: file.to_owned(),
            source,
        }
    }

    /// For `map_err`: a file, and what the system answered.
    pub fn file(file: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            file: file.to_owned(),
            source,
        }
    }
}

/// Runs a program to its end and returns what it printed on standard output.
pub fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let failed = |command: &Command, printed: String| Error::Program {
        program: command.get_program().to_string_lossy().into_owned(),
        printed,
    };
    let found = command
        .output()
        .map_err(|error| failed(command, error.to_string()))?;
    if found.status.success() {
        return Ok(found.stdout);
    }
    let text = String::from_utf8_lossy(&found.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(12)..].join("\n");
    Err(failed(command, format!("{}: {last}", found.status)))
}
