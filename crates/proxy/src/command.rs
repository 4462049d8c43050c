//! Commands to a running proxy over its control socket: one JSON object on one line in each
//! direction.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use midspan_relay::kick::Kicked;
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{Configuration, ControlSocket};

/// Longest request in bytes, with its line end.
pub const REQUEST_LIMIT: usize = 4096;

/// Longest answer in bytes.
const ANSWER_LIMIT: u64 = 1 << 20;

/// Time limit of a command; a reload waits for the relay.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request to a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Report the proxy's state.
    Status,
    /// Read the configuration file again.
    Reload,
    /// New connections pass untouched from now on.
    BypassOn {
        /// Only connections from or to hosts with this prefix; `None` for all.
        prefix: Option<String>,
    },
    /// New connections are intercepted again.
    BypassOff {
        /// Ends the bypass of exactly this prefix; `None` ends all bypasses.
        prefix: Option<String>,
    },
    /// List the bypassed prefixes.
    BypassList,
    /// Reset live sessions.
    Kick {
        /// The number of a session, or a prefix of clients or servers.
        target: String,
    },
}

impl Request {
    /// The request in the bytes that a client has sent so far, or why it is refused; `None` while
    /// its line is incomplete.
    pub(crate) fn read(received: &[u8]) -> Option<Result<Self, String>> {
        if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let request = serde_json::from_slice(&received[..end]);
            return Some(request.map_err(|error| format!("not a command: {error}")));
        }
        let is_too_long = received.len() >= REQUEST_LIMIT;
        is_too_long.then(|| Err(format!("a command has at most {REQUEST_LIMIT} bytes")))
    }
}

/// The answer of a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Answer {
    /// Whether the request was carried out.
    pub ok: bool,
    /// The reason if it was not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Notes for the operator.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Prefixes whose new connections pass untouched.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bypasses: Option<Vec<String>>,
    /// Numbers of reset connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kicked: Option<Kicked>,
    /// The proxy's state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<Status>,
}

impl Answer {
    pub(crate) fn error(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::default()
        }
    }
}

/// The state of a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// `running`, `draining`, or `passing` while the relay does not answer and new connections
    /// pass untouched.
    pub state: String,
    /// Process id of the helper.
    pub pid: u32,
    /// Process id of the relay.
    pub relay_pid: u32,
    /// Seconds since the proxy was first ready.
    pub uptime_seconds: u64,
    /// The configuration file.
    pub configuration: String,
    /// Reloads that have succeeded.
    pub reloads: u64,
    /// The error of the last reload, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reload_error: Option<String>,
    /// Why all new connections of transparent listeners pass untouched: `firewall` (the host's
    /// firewall would stop them), `relay` (it does not answer), `bypass` (the operator has set one
    /// for all), `draining`, `rules` (they cannot be changed).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub passing: Vec<String>,
    /// Threads of the relay that made no turn although they were woken.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub late_threads: Vec<LateThreadStatus>,
    /// Lines missing in the helper's log.
    #[serde(default)]
    pub log_lines_lost: u64,
    /// Its listeners.
    pub listeners: Vec<ListenerStatus>,
    /// Prefixes whose new connections pass untouched.
    pub bypasses: Vec<String>,
    /// Differences from the configuration, with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notices: Vec<String>,
    /// The address of the admin listener, which has the page and the metrics; `None` if it is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin: Option<String>,
    /// The occupancy of the connection tracking table, if a listener is transparent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection_tracking: Option<TrackingStatus>,
}

/// The table of connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackingStatus {
    /// Entries of the network namespace.
    pub entries: u64,
    /// The limit of entries; `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u64>,
    /// Whether it is so full that new connections pass untouched.
    pub is_nearly_full: bool,
    /// Whether entries expire soon after their sessions; otherwise they stay as long as the host's.
    pub has_timeouts: bool,
}

/// A thread of the relay without a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateThreadStatus {
    /// `relay` and a number, or `gate`.
    pub thread: String,
    /// Milliseconds since its last turn.
    pub still_milliseconds: u64,
    /// Whether it was late for `watchdog_timeout`, so that the relay ends.
    pub stuck: bool,
}

/// A listener of a running proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// `forward` or `transparent`.
    pub mode: String,
    /// The address of a forward listener.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub listen: Option<String>,
    /// The server of a forward listener.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
    /// Interfaces at which clients of a transparent listener arrive.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<String>,
}

/// A command did not reach a proxy, or was refused.
#[derive(Debug, Error, Diagnostic)]
pub enum CommandError {
    /// The place of the control socket is unknown.
    #[error(
        "no control socket is known: name it with --socket, or the configuration file with \
         --config"
    )]
    NoSocket,
    /// The configuration file cannot be used.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Configuration(#[from] midspan_document::Error),
    /// The proxy of this file has no control socket.
    #[error("{0} has control.socket = \"none\": its proxy takes no commands")]
    SwitchedOff(PathBuf),
    /// No program answers.
    #[error("no Midspan answers at {socket}: {source} (is it running, and may you use it?)")]
    NoAnswer {
        /// The control socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The answer cannot be parsed.
    #[error("what answers at {socket} is not a Midspan of this version: {source}")]
    Format {
        /// The control socket.
        socket: PathBuf,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

/// The default control socket, if the configuration sets no other: `control.sock` in
/// `$RUNTIME_DIRECTORY` (systemd's), for root in `/run/midspan`, for others in
/// `$XDG_RUNTIME_DIR/midspan`. `None` if there is no such directory.
#[must_use]
pub fn default_socket() -> Option<PathBuf> {
    let variable = |name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        // systemd names several directories with colons between.
        let first = value.to_str()?.split(':').next()?.to_owned();
        Some(PathBuf::from(first))
    };
    let directory =
        variable("RUNTIME_DIRECTORY").or_else(|| match rustix::process::geteuid().is_root() {
            true => Some(PathBuf::from("/run/midspan")),
            false => variable("XDG_RUNTIME_DIR").map(|directory| directory.join("midspan")),
        })?;
    Some(directory.join("control.sock"))
}

/// The control socket to use: `socket`, or the one of the configuration file `file`, or the
/// default.
///
/// # Errors
/// See [`CommandError`].
pub fn find_socket(socket: Option<&Path>, file: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(socket) = socket {
        return Ok(socket.to_owned());
    }
    let configured = file.map(Configuration::load).transpose()?;
    match configured.map(|configuration| configuration.control) {
        Some(ControlSocket::At(path)) => Ok(path),
        Some(ControlSocket::None) => Err(CommandError::SwitchedOff(
            file.map(Path::to_owned).unwrap_or_default(),
        )),
        Some(ControlSocket::Default) | None => default_socket().ok_or(CommandError::NoSocket),
    }
}

/// Sends a request to the proxy at `socket`; waits for the answer, at most half a minute.
///
/// # Errors
/// There is no answer. If the proxy refuses, the [`Answer`] contains the reason.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, CommandError> {
    let exchange = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut answer)?;
        match answer.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(answer),
        }
    };
    let answer = exchange().map_err(|source| CommandError::NoAnswer {
        socket: socket.to_owned(),
        source,
    })?;
    serde_json::from_str(&answer).map_err(|source| CommandError::Format {
        socket: socket.to_owned(),
        source,
    })
}
