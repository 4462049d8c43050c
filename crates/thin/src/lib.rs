//! ACK thinning on the client's side: `midspan thin`.
//!
//! The program runs on a host with a narrow upstream, or on the CPE in front of it, and changes only packets
//! that leave by one interface. Rules put small TCP packets into a queue of the kernel. For each pure ACK,
//! the [`Agent`] carries out the decision of a policy of [`midspan_policy::ack_thinning`]. An ACK that a
//! later one replaces never leaves.
//!
//! ```text
//! helper (root)                         worker (CAP_NET_ADMIN alone, seccomp)
//! claims the interface, sets rules      queue ──► Agent ──► verdicts
//! watches the worker, removes rules     headers of arriving packets ──► rcv_RTT
//! ```
//!
//! If metrics are configured, a third process without any privileges serves them.
//!
//! The program fails open. When the worker has ended, the rules bypass its queue. The helper ends a worker
//! that has sent no sign of life for 0.8 s. A queue that overflows lets packets pass. A packet that may not
//! be safe to hold passes at once.

mod agent;
mod description;
mod flow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod helper;
mod metrics;
mod pages;
mod segment;
mod settings;
mod status;
#[cfg(test)]
mod test_packets;
mod worker;

pub use agent::Agent;
pub use description::describe_rules;
pub use helper::{PagesOptions, ReadyLine, RunOptions, Watcher, run};
pub use pages::pages_main;
pub use segment::{Options, Segment};
pub use settings::{PolicyChoice, PolicyError, QUEUES, Settings};
pub use status::{FlowStatus, Status};
pub use worker::worker_main;

use std::io;
use std::net::SocketAddr;

use midspan_gateway::acknowledgement_queue::RulesError;
use midspan_gateway::acknowledgements_first::AckFirstError;
use midspan_linux::capability::CapabilityError;
use midspan_linux::sandbox::SandboxError;
use midspan_service::child::{ChildError, UserError};
use midspan_service::message::MessageError;
use miette::Diagnostic;
use thiserror::Error;

/// Why ACKs cannot be thinned.
#[derive(Debug, Error, Diagnostic)]
pub enum Error {
    /// The rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The queue in which ACKs go first.
    #[error(transparent)]
    AckFirst(#[from] AckFirstError),
    /// The rate of the upstream must be known.
    #[error("{0} needs the rate of the upstream (--upstream)")]
    NoUpstream(&'static str),
    /// Another process has the queue, or the capability is missing.
    #[error("cannot take packet queue {number}: {source} (another number: --queue; needs root)")]
    Queue {
        /// Its number.
        number: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// The interface is not there, or CAP_NET_RAW is missing.
    #[error("cannot see what arrives at {interface}: {source}")]
    Tap {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Metrics are for this machine only.
    #[error("{0} is no loopback address: other hosts could see who talks to whom")]
    #[diagnostic(help("use 127.0.0.1 or [::1], and let a collector on this machine pass it on"))]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {address} for metrics: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Privileges.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// Privileges.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Privileges.
    #[error(transparent)]
    User(#[from] UserError),
    /// Helper and worker cannot exchange messages.
    #[error("helper and worker cannot speak to each other: {0}")]
    Message(#[from] MessageError),
    /// A process of the helper's cannot be started or ended.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The worker ended before it was ready; its own message contains the reason.
    #[error("the worker of ACK thinning ended before it was ready")]
    NotReady,
    /// It was started by hand, or by another version.
    #[error("this process is started by `midspan thin`, not by hand")]
    NotStartedByHelper,
    /// A system call.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::System {
            action,
            source: error.into(),
        }
    }
}
