//! What keeps the suite from running. What a program does otherwise through Midspan is no error.

use std::io;
use std::path::{Path, PathBuf};

use midspan_linux::namespace::NamespaceError;
use midspan_testbed::network::NetworkError;
use thiserror::Error;

/// The suite cannot go on.
#[derive(Debug, Error)]
pub enum Error {
    /// The network could not be made, or Midspan could not be run in it.
    #[error(transparent)]
    Network(#[from] midspan_conformance::Error),
    /// A network namespace could not be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The gateway's firewall could not be set.
    #[error("cannot set the firewall of the gateway: {0}")]
    Firewall(#[from] NetworkError),
    /// The gateway guide has no such part any more.
    #[error("docs/gateway.md has no {0}")]
    Guide(&'static str),
    /// A file of a run could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// What a case needs before its first run could not be made.
    #[error("case \"{case}\": its {script} failed: {reason}")]
    Preparation {
        /// The case.
        case: &'static str,
        /// Which script.
        script: &'static str,
        /// What the script wrote to standard error.
        reason: String,
    },
}

impl Error {
    /// Names the file of an I/O error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    /// Names the action of a failed system call.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
