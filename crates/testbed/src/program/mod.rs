//! Starts programs, waits until they are ready, and ends them.
//!
//! ```no_run
//! use midspan_testbed::program::Launch;
//!
//! # fn main() -> Result<(), midspan_testbed::program::LaunchError> {
//! let text = "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:8080\"\nto = \"127.0.0.1:80\"\n";
//! let midspan = Launch::midspan("target/release/midspan").configuration(text).ready()?;
//! let log = midspan.end()?;
//! # Ok(())
//! # }
//! ```

mod launch;
mod node_key;
mod running;

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use midspan_linux::namespace::NamespaceError;
use thiserror::Error;

pub use launch::Launch;
pub use node_key::new_node_key;
pub use running::{Finished, Program};

/// The first argument of a test program or bench that is to be one of its own commands; the
/// command's name follows ([`Launch::this_program`]).
pub const AS: &str = "--as";

/// What [`wait_until`] and all waits of a [`Program`] allow at most. A wait ends with its event, so
/// only a failure takes this long. Emulated machines are about 15 times slower than real ones.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A program could not be started, or did not do what was asked of it.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// A step before the start, or a signal, failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file of the program could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The namespace could not start it.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// It ended, or did nothing, before it was ready.
    #[error("{program} did not become ready: {log}")]
    NotReady {
        /// The program.
        program: String,
        /// What it logged.
        log: String,
    },
    /// It did not end in time.
    #[error("{program} still runs {} s after it was asked to end: {log}", limit.as_secs())]
    StillRuns {
        /// The program.
        program: String,
        /// How long it had.
        limit: Duration,
        /// What it logged.
        log: String,
    },
    /// It ended with a failure.
    #[error("{program} failed ({status}): {log}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// What it logged.
        log: String,
    },
    /// Something that was waited for did not come.
    #[error("{program}: not within {} s: {what}; its log: {log}", LIMIT.as_secs())]
    Missing {
        /// The program.
        program: String,
        /// What was waited for.
        what: String,
        /// What it logged.
        log: String,
    },
}

impl LaunchError {
    fn io<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Io {
            action,
            source: error.into(),
        }
    }

    fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Waits until a condition holds; whether it did within `limit`.
#[must_use]
pub fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    while !condition() {
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
