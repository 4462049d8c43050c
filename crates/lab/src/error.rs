//! What can go wrong in the lab.

use std::io;
use std::path::PathBuf;

use midspan_linux::namespace::NamespaceError;
use midspan_linux::netlink::NetlinkError;
use midspan_testbed::network::NetworkError;
use midspan_testbed::program::LaunchError;
use thiserror::Error;

/// A lab run failed. A run that finished but could not keep up is no error: it is void
/// ([`Validity`](crate::Validity)).
#[derive(Debug, Error)]
pub enum LabError {
    /// A namespace could not be made or used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The network of a namespace could not be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The network of a path could not be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A proxy could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A program of others is not there.
    #[error("{name} is not installed: apt-get install {package}")]
    MissingProgram {
        /// The executable.
        name: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// A program of others failed.
    #[error("{program} failed: {reason}")]
    Program {
        /// The program.
        program: String,
        /// What it said.
        reason: String,
    },
    /// Midspan cannot intercept connections on this machine.
    #[error(
        "midspan run cannot intercept connections on this machine: {reason}\n\
         (it needs the program nft, and a kernel with nftables, TPROXY and NFQUEUE; `midspan lab \
         --cases midspan-forward` and `midspan demo --forward` do without: there, clients call the \
         proxy's address)"
    )]
    NoInterception {
        /// What it said.
        reason: String,
    },
    /// What a program printed could not be read.
    #[error("cannot read what {program} printed: {reason}")]
    Output {
        /// The program.
        program: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// The bytes that arrived are not those that were sent.
    #[error("{flow}: the file received differs from the file served ({detail})")]
    Corrupted {
        /// Which flow.
        flow: String,
        /// Where it differs.
        detail: String,
    },
    /// A system call of the emulator failed.
    #[error("link \"{link}\": cannot {action}: {source}")]
    Emulator {
        /// The link's name.
        link: String,
        /// What was to be done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The emulator of a link has ended.
    #[error("the emulator of link \"{0}\" has ended")]
    EmulatorEnded(String),
    /// A file of the run could not be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The path file asks for what the lab cannot do.
    #[error("{0}")]
    Unsupported(String),
}

/// Adds the file's name to an I/O error.
pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(io::Error) -> LabError + '_ {
    move |source| LabError::File {
        path: path.to_owned(),
        source,
    }
}
