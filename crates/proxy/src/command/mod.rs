//! Commands to a running proxy over its control socket, by HTTP/1.1
//! (`docs/control-api.md`).

mod status;
mod upgrading;

pub use status::{
    DrainedListener, LateThreadStatus, ListenerStatus, Status, TrackingStatus, UpgradeState,
    UpgradeStatus,
};
pub use upgrading::{UpgradeError, upgrade};

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use midspan_relay::kick::Kicked;
use midspan_service::pages::Method;
use miette::Diagnostic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::client::{self, ClientError, Place};
use crate::configuration::{Configuration, ControlSocket};
use crate::learned::{ForgottenCounts, LeftAloneRow};
use crate::summary::DrainedClients;

/// Time limit of a command; a reload waits for the relay.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A request to a running proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Report the proxy's state.
    Status,
    /// Read the configuration file again.
    Reload,
    /// Execute another program, which takes over the live sessions.
    Upgrade {
        /// Its absolute path; `None` for the file that the running program was started from.
        program: Option<String>,
    },
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
    /// Drain a listener: it gets no new connections, and its sessions continue.
    DrainOn {
        /// Its name.
        listener: String,
        /// Only new connections of clients with these prefixes; empty for all.
        clients: Vec<String>,
    },
    /// A drained listener accepts connections again.
    DrainOff {
        /// Its name; `None` for all.
        listener: Option<String>,
        /// Ends the draining of exactly these prefixes of clients of the listener; empty for all draining of it.
        clients: Vec<String>,
    },
    /// List the drained listeners and clients.
    DrainList,
    /// Reset live sessions.
    Kick {
        /// The number of a session, or a prefix of clients or servers.
        target: String,
    },
    /// List the routes that are left alone because splitting was found not to help.
    LeftAlone,
    /// Forget what earlier sessions have left for later ones.
    Forget {
        /// Only about clients and servers with this prefix; `None` for all.
        prefix: Option<String>,
    },
}

/// Why a request is no command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The path has only these methods.
    Method(&'static str),
    /// The parameters are wrong; a sentence for the client.
    Parameters(String),
}

/// Reads the method and the parameters of a request.
type ReadRequest = fn(&Method, &str) -> Result<Request, Refusal>;

impl Request {
    /// The command of an HTTP request; `None` if its path belongs to no command.
    pub(crate) fn read(method: &Method, path: &str, query: &str) -> Option<Result<Self, Refusal>> {
        let (methods, read): (_, ReadRequest) = match path {
            "/status" => ("GET, HEAD", |_, query| {
                parameter(query, None).map(|_| Self::Status)
            }),
            "/reload" => ("POST", |_, query| {
                parameter(query, None).map(|_| Self::Reload)
            }),
            "/upgrade" => ("POST", |_, query| {
                let program = parameter(query, Some("program"))?;
                Ok(Self::Upgrade { program })
            }),
            "/kick" => ("POST", |_, query| {
                let target = parameter(query, Some("target"))?;
                let missing = || "target=NUMBER or target=PREFIX is missing".to_owned();
                let target = target.ok_or_else(|| Refusal::Parameters(missing()))?;
                Ok(Self::Kick { target })
            }),
            "/drain" => ("GET, HEAD, POST, DELETE", |method, query| {
                if is_get(method) {
                    return parameter(query, None).map(|_| Self::DrainList);
                }
                let (listener, clients) = drain_parameters(query)?;
                let missing = || Refusal::Parameters("listener=NAME is missing".to_owned());
                if *method == Method::POST {
                    let listener = listener.ok_or_else(missing)?;
                    return Ok(Self::DrainOn { listener, clients });
                }
                match listener.is_none() && !clients.is_empty() {
                    true => Err(missing()),
                    false => Ok(Self::DrainOff { listener, clients }),
                }
            }),
            "/left-alone" => ("GET, HEAD", |_, query| {
                parameter(query, None).map(|_| Self::LeftAlone)
            }),
            // The relay answers what was learned.
            "/learned" if is_get(method) => return None,
            "/learned" => ("GET, HEAD, DELETE", |_, query| {
                let prefix = parameter(query, Some("prefix"))?;
                Ok(Self::Forget { prefix })
            }),
            "/bypass" => ("GET, HEAD, POST, DELETE", |method, query| {
                let allowed = (!is_get(method)).then_some("prefix");
                let prefix = parameter(query, allowed)?;
                Ok(match *method {
                    Method::POST => Self::BypassOn { prefix },
                    Method::DELETE => Self::BypassOff { prefix },
                    _ => Self::BypassList,
                })
            }),
            _ => return None,
        };
        let name = if is_get(method) {
            "GET"
        } else {
            method.as_str()
        };
        if !methods.split(", ").any(|allowed| allowed == name) {
            return Some(Err(Refusal::Method(methods)));
        }
        Some(read(method, query))
    }

    /// The method and the target of the HTTP request for this command.
    #[must_use]
    pub fn to_http(&self) -> (Method, String) {
        let with = |path: &str, name: &str, value: Option<&str>| match value {
            None => path.to_owned(),
            Some(value) => {
                let mut query = form_urlencoded::Serializer::new(format!("{path}?"));
                query.append_pair(name, value).finish()
            }
        };
        match self {
            Self::Status => (Method::GET, "/status".to_owned()),
            Self::Reload => (Method::POST, "/reload".to_owned()),
            Self::Upgrade { program } => (
                Method::POST,
                with("/upgrade", "program", program.as_deref()),
            ),
            Self::BypassList => (Method::GET, "/bypass".to_owned()),
            Self::BypassOn { prefix } => {
                (Method::POST, with("/bypass", "prefix", prefix.as_deref()))
            }
            Self::BypassOff { prefix } => {
                (Method::DELETE, with("/bypass", "prefix", prefix.as_deref()))
            }
            Self::DrainList => (Method::GET, "/drain".to_owned()),
            Self::DrainOn { listener, clients } => {
                (Method::POST, drain_target(Some(listener), clients))
            }
            Self::DrainOff { listener, clients } => {
                (Method::DELETE, drain_target(listener.as_deref(), clients))
            }
            Self::Kick { target } => (Method::POST, with("/kick", "target", Some(target))),
            Self::LeftAlone => (Method::GET, "/left-alone".to_owned()),
            Self::Forget { prefix } => (
                Method::DELETE,
                with("/learned", "prefix", prefix.as_deref()),
            ),
        }
    }
}

fn is_get(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

/// The value of the one parameter that a query may have; `None` if the query does not have it.
fn parameter(query: &str, allowed: Option<&str>) -> Result<Option<String>, Refusal> {
    let mut found = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if Some(&*name) != allowed {
            let known = allowed.unwrap_or("none");
            let said = format!("unknown parameter (known: {known})");
            return Err(Refusal::Parameters(said));
        }
        if found.replace(value.into_owned()).is_some() {
            return Err(Refusal::Parameters(format!("{name} is given twice")));
        }
    }
    Ok(found)
}

/// The parameters of a command that begins or ends draining: the listener, and the prefixes of clients.
fn drain_parameters(query: &str) -> Result<(Option<String>, Vec<String>), Refusal> {
    let (mut listener, mut clients) = (None, Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "listener" if listener.is_none() => listener = Some(value.into_owned()),
            "clients" => clients.push(value.into_owned()),
            "listener" => {
                return Err(Refusal::Parameters("listener is given twice".to_owned()));
            }
            _ => {
                let known = "unknown parameter (known: listener, clients)".to_owned();
                return Err(Refusal::Parameters(known));
            }
        }
    }
    Ok((listener, clients))
}

/// The target of the request for such a command.
fn drain_target(listener: Option<&str>, clients: &[String]) -> String {
    if listener.is_none() && clients.is_empty() {
        return "/drain".to_owned();
    }
    let path = "/drain?";
    let mut query = form_urlencoded::Serializer::for_suffix(path.to_owned(), path.len());
    query.extend_pairs(listener.map(|listener| ("listener", listener)));
    query.extend_pairs(clients.iter().map(|prefix| ("clients", prefix)));
    query.finish()
}

/// The answer of a running proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
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
    /// Drained listeners.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drained: Option<Vec<DrainedListener>>,
    /// Drained clients of listeners.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drained_clients: Option<Vec<DrainedClients>>,
    /// Numbers of reset connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kicked: Option<Kicked>,
    /// Routes that are left alone because splitting was found not to help.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub left_alone: Option<Vec<LeftAloneRow>>,
    /// Numbers of forgotten entries.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forgotten: Option<ForgottenCounts>,
    /// An upgrade that has begun.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub upgrade: Option<UpgradeStatus>,
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
    #[error(transparent)]
    Client(#[from] ClientError),
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
    let place = Place::Socket(socket.to_owned());
    let (method, target) = request.to_http();
    let (_, text) = client::request(&place, method, &target, ANSWER_TIMEOUT)?;
    serde_json::from_slice(text.as_bytes()).map_err(|source| CommandError::Format {
        socket: socket.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str) -> Option<Result<Request, Refusal>> {
        let method = method.parse().unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request::read(&method, path, query)
    }

    #[test]
    fn a_command_is_read_as_it_was_written() {
        let prefix = Some("2001:db8::/32".to_owned());
        let strange = "a&b=c%20 +/?#\u{e9}".to_owned();
        for request in [
            Request::Status,
            Request::Reload,
            Request::BypassList,
            Request::BypassOn { prefix: None },
            Request::BypassOn {
                prefix: prefix.clone(),
            },
            Request::BypassOff { prefix: None },
            Request::BypassOff { prefix },
            Request::DrainList,
            Request::DrainOn {
                listener: "web & mail".to_owned(),
                clients: Vec::new(),
            },
            Request::DrainOn {
                listener: "web & mail".to_owned(),
                clients: vec!["192.0.2.0/24".to_owned(), "2001:db8::/32".to_owned()],
            },
            Request::DrainOff {
                listener: None,
                clients: Vec::new(),
            },
            Request::DrainOff {
                listener: Some("web".to_owned()),
                clients: vec!["192.0.2.0/24".to_owned()],
            },
            Request::DrainOff {
                listener: Some("web".to_owned()),
                clients: Vec::new(),
            },
            Request::Kick {
                target: String::new(),
            },
            Request::Kick { target: strange },
            Request::LeftAlone,
            Request::Forget { prefix: None },
            Request::Forget {
                prefix: Some("2001:db8::/32".to_owned()),
            },
        ] {
            let (method, target) = request.to_http();
            assert_eq!(read(method.as_str(), &target), Some(Ok(request)));
        }
        // As a person writes it.
        assert_eq!(
            read("POST", "/bypass?prefix=2001:db8::/32"),
            Some(Ok(Request::BypassOn {
                prefix: Some("2001:db8::/32".to_owned())
            }))
        );
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for (method, target) in [
            ("GET", "/kick?target=1"),
            ("GET", "/reload"),
            ("POST", "/status"),
            ("DELETE", "/kick?target=1"),
            ("POST", "/learned"),
            ("DELETE", "/left-alone"),
            ("OPTIONS", "/bypass"),
        ] {
            let read = read(method, target);
            assert!(matches!(read, Some(Err(Refusal::Method(_)))), "{target}");
        }
        for (method, target) in [
            ("POST", "/kick"),
            ("POST", "/drain"),
            ("POST", "/drain?clients=192.0.2.0/24"),
            ("DELETE", "/drain?clients=192.0.2.0/24"),
            ("POST", "/drain?listener=web&listener=mail"),
            ("POST", "/drain?listener=web&client=192.0.2.0/24"),
            ("GET", "/drain?listener=web"),
            ("POST", "/kick?prefix=1"),
            ("POST", "/kick?target=1&target=2"),
            ("POST", "/reload?now"),
            ("GET", "/bypass?prefix=1"),
        ] {
            let read = read(method, target);
            assert!(
                matches!(read, Some(Err(Refusal::Parameters(_)))),
                "{target}"
            );
        }
        assert_eq!(read("GET", "/sessions"), None);
        assert_eq!(read("GET", "/learned?limit=3"), None);
        assert_eq!(read("HEAD", "/learned"), None);
        assert_eq!(read("POST", "/"), None);
    }
}
