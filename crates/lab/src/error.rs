//! Errors of the lab.

use std::io;
use std::path::PathBuf;

use midspan_linux::namespace::NamespaceError;
use midspan_linux::netlink::NetlinkError;
use midspan_testbed::network::NetworkError;
use midspan_testbed::program::LaunchError;
use thiserror::Error;

/// The name of the command of a flow, as a program that can fail.
pub(crate) const COMMAND: &str = "command";

/// A lab run failed. A run that finished but could not keep up is not an error: it is void
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
    /// A program that the lab needs is missing.
    #[error("{name} is not installed: {remedy}")]
    MissingProgram {
        /// The executable.
        name: &'static str,
        /// How to install it.
        remedy: String,
    },
    /// A program that the lab started failed.
    #[error("{program} failed: {reason}")]
    Program {
        /// The program.
        program: String,
        /// The program's output, or another reason.
        reason: String,
    },
    /// Midspan cannot intercept connections on this machine.
    #[error(
        "midspan run cannot intercept connections on this machine: {reason}\n\
         (it needs the program nft, and a kernel with nftables, TPROXY and NFQUEUE; `midspan lab \
         --against midspan-forward` and `midspan demo --forward` need none of them: with these, \
         clients connect to the proxy's address)"
    )]
    NoInterception {
        /// Midspan's log.
        reason: String,
    },
    /// The output of a program could not be read.
    #[error("cannot read what {program} printed: {reason}")]
    Output {
        /// The program.
        program: &'static str,
        /// The fault in the output.
        reason: String,
    },
    /// The bytes that arrived are not those that were sent.
    #[error("{flow}: the file received differs from the file served ({detail})")]
    Corrupted {
        /// The flow.
        flow: String,
        /// Where the bytes differ.
        detail: String,
    },
    /// A system call of the emulator failed.
    #[error("link \"{link}\": cannot {action}: {source}")]
    Emulator {
        /// The link's name.
        link: String,
        /// What the call was for.
        action: &'static str,
        /// The kernel's error.
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
        /// The system's error.
        source: io::Error,
    },
    /// The path file contains something that the lab cannot build.
    #[error("{0}")]
    Unsupported(String),
    /// The path file does not have the overlay route of a case.
    #[error(transparent)]
    Route(#[from] midspan_path::OverlayRouteError),
}

impl LabError {
    /// Whether a transfer has failed, and not the lab: another run may succeed.
    #[must_use]
    pub fn is_of_transfer(&self) -> bool {
        let transfers = ["curl", "iperf3", COMMAND];
        matches!(self, Self::Program { program, .. } if transfers.contains(&program.as_str()))
    }
}

/// Adds the file's name to an I/O error.
pub(crate) fn at(path: &std::path::Path) -> impl FnOnce(io::Error) -> LabError + '_ {
    move |source| LabError::File {
        path: path.to_owned(),
        source,
    }
}
