//! Errors that prevent the suite from running. A difference between Midspan and plain routing is
//! not an error.

use std::io;
use std::path::{Path, PathBuf};

use midspan_linux::namespace::NamespaceError;
use midspan_testbed::network::NetworkError;
use thiserror::Error;

/// The suite cannot continue.
#[derive(Debug, Error)]
pub enum Error {
    /// The network could not be made, or Midspan could not run in it.
    #[error(transparent)]
    Network(#[from] midspan_conformance::Error),
    /// A network namespace could not be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The gateway's firewall could not be set.
    #[error("cannot set the firewall of the gateway: {0}")]
    Firewall(#[from] NetworkError),
    /// The gateway guide no longer has this part.
    #[error("docs/gateway.md has no {0}")]
    Guide(&'static str),
    /// A file of a run could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What the call was for.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A script that prepares a case failed.
    #[error("case \"{case}\": its {script} failed: {reason}")]
    Preparation {
        /// The case.
        case: &'static str,
        /// The name of the script.
        script: &'static str,
        /// The script's output on standard error.
        reason: String,
    },
}

impl Error {
    /// Adds the name of a file to an I/O error.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }

    /// Adds the purpose of a system call to its error.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
