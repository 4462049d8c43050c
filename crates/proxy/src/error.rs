//! Errors that prevent the proxy from starting or continuing.

use std::io;
use std::process::ExitStatus;

use midspan_gateway::initial_window::InitialWindowError;
use midspan_gateway::interception::InterceptionError;
use midspan_linux::capability::CapabilityError;
use midspan_units::TimeSpan;
use miette::Diagnostic;
use thiserror::Error;

/// Why the proxy cannot start or continue.
#[derive(Debug, Error, Diagnostic)]
pub enum Error {
    /// The configuration cannot be used: the file, one place in it, or this machine with it.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Configuration(#[from] midspan_document::Error),
    /// Initial windows cannot be set.
    #[error(transparent)]
    InitialWindow(#[from] InitialWindowError),
    /// Transparent listeners cannot work.
    #[error(transparent)]
    Interception(#[from] InterceptionError),
    /// Capabilities cannot be read or given up.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The control socket cannot be opened.
    #[error("control.socket: cannot listen at {path}: {source}")]
    ControlSocket {
        /// The path.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The state directory cannot be used.
    #[error("relay.state_directory: cannot use {path}: {source}")]
    StateDirectory {
        /// The path.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The relay's user does not exist.
    #[error(
        "relay.user = \"{0}\": there is no such user, or it is root (useradd --system makes one)"
    )]
    NoUser(String),
    /// The relay could not carry out a reload; its log contains the reason.
    #[error("the relay process could not take the new listeners over; see the message above")]
    RelayNotReloaded,
    /// Leftovers cannot be removed.
    #[error("removing what is left behind needs CAP_NET_ADMIN: run as root")]
    NoCleanup,
    /// A takeover resets nothing.
    #[error("[interception] has no takeover_reset = true, so a takeover resets no connection")]
    NoTakeoverReset,
    /// No rule would match.
    #[error("no listener is transparent, so there are no connections of another gateway to reset")]
    NothingToTakeOver,
    /// Rules cannot be set.
    #[error("resetting the connections of another gateway needs CAP_NET_ADMIN: run as root")]
    TakeoverNotPermitted,
    /// Leftovers of `midspan thin` cannot be removed.
    #[error(transparent)]
    Thinning(#[from] midspan_gateway::acknowledgement_queue::RulesError),
    /// The relay cannot give up system calls.
    #[error(transparent)]
    Sandbox(#[from] midspan_linux::sandbox::SandboxError),
    /// A message between helper and relay could not be sent or received.
    #[error(transparent)]
    Message(#[from] midspan_service::message::MessageError),
    /// There is no helper, or its message is not the expected one.
    #[error("no helper is connected to this relay: only `midspan run` runs this command")]
    OutOfTurn,
    /// A signal arrived before the proxy was ready, or a check was done.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The relay ended before it was ready; its log contains the reason.
    #[error("the relay process could not start ({0}); see the message above")]
    RelayNotStarted(ExitStatus),
    /// The relay ended without a command of the helper.
    #[error("the relay process ended unexpectedly ({0}); its connections were reset")]
    RelayEnded(ExitStatus),
    /// The relay was stuck for too long.
    #[error(
        "the relay process gave no sign of life for {0} and was ended; its connections were reset"
    )]
    RelayStill(TimeSpan),
    /// A thread of the relay made no turn for too long.
    #[error(
        "thread {thread} of the relay process made no turn for {limit}, so the process was ended; \
         its connections were reset"
    )]
    ThreadStuck {
        /// Its name.
        thread: String,
        /// `interception.watchdog_timeout`.
        limit: TimeSpan,
    },
    /// The relay process cannot be started or ended.
    #[error(transparent)]
    Child(#[from] midspan_service::child::ChildError),
    /// The relay process cannot become its user.
    #[error(transparent)]
    User(#[from] midspan_service::child::UserError),
    /// The relay cannot start.
    #[error(transparent)]
    Relay(#[from] midspan_relay::Error),
    /// Sessions cannot be taken over from another relay.
    #[error("the sessions of the former program cannot be taken over: {0}")]
    Handover(#[from] midspan_relay::HandoverError),
    /// The thread is working on the rules, so they cannot be read or changed now.
    #[error(
        "the rules are being worked on for long (does nft hang, or is the machine overloaded?); \
         see the log, and try again"
    )]
    RulesLate,
    /// The thread that works on rules ended; the rules may not be in force.
    #[error("the thread that works on rules ended unexpectedly; see the message above")]
    RulesLost,
    /// A thread of the relay ended, and its sessions with it.
    #[error("a thread of the relay ended unexpectedly; see the message above")]
    ThreadEnded,
    /// The relay did not report in time that it is ready.
    #[error("the relay process did not get ready within 30 s")]
    RelaySilent,
    /// A call of the system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What the call was for.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
