//! Errors that prevent a case from running. A proxy's faults are no errors: they are differences.

use std::io;
use std::path::PathBuf;

use midspan_lab::LabError;
use midspan_linux::namespace::NamespaceError;
use midspan_testbed::network::NetworkError;
use midspan_testbed::program::LaunchError;
use thiserror::Error;

/// A case could not be run.
#[derive(Debug, Error)]
pub enum Error {
    /// A network namespace could not be made or used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The network could not be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Midspan could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A program that a case needs is missing.
    #[error(transparent)]
    Program(#[from] LabError),
    /// A proxy did not start.
    #[error("{proxy} does not start: {reason}")]
    Start {
        /// The proxy's name.
        proxy: String,
        /// The output of the proxy, or another reason.
        reason: String,
    },
    /// A system call of the suite failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What the call was for.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of a run could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A script fails without a proxy, so its run with a proxy cannot be judged.
    #[error("case \"{case}\" over {family} does not work without a proxy: {transcript}")]
    Baseline {
        /// The case.
        case: &'static str,
        /// IPv4 or IPv6.
        family: String,
        /// The events of both ends.
        transcript: String,
    },
    /// A name on the command line fits no case or proxy.
    #[error("{0}")]
    Unknown(String),
}

impl Error {
    /// Adds the purpose of a system call to its error.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System {
            action,
            source: error.into(),
        }
    }

    /// Adds the name of a file to an I/O error.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why a script stopped early.
#[derive(Debug)]
pub enum Stop {
    /// A connection failed, or ended too early; the transcript contains the event.
    Here,
    /// The suite itself failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The result of a script's step.
pub type Played = Result<(), Stop>;
