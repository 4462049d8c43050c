//! What keeps a case from being run. What a proxy does wrong is no error: it is a difference.

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
    /// A program of others is not there.
    #[error(transparent)]
    Program(#[from] LabError),
    /// A proxy did not start.
    #[error("{proxy} does not start: {reason}")]
    Start {
        /// Its name.
        proxy: String,
        /// What it said.
        reason: String,
    },
    /// A system call on this side of the experiment failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file of a run could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A script does not come to its end without a proxy, so nothing can be expected with one.
    #[error("case \"{case}\" over {family} does not work without a proxy: {transcript}")]
    Baseline {
        /// The case.
        case: &'static str,
        /// IPv4 or IPv6.
        family: String,
        /// What both ends saw.
        transcript: String,
    },
    /// A choice names nothing.
    #[error("{0}")]
    Unknown(String),
}

impl Error {
    /// Says what was to be done when a system call failed.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System {
            action,
            source: error.into(),
        }
    }

    /// Names the file of an I/O error.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Why a script went no further.
#[derive(Debug)]
pub enum Stop {
    /// The transcript says it: a connection failed, or ended before its time.
    Here,
    /// The experiment itself failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// How far a script went.
pub type Played = Result<(), Stop>;
