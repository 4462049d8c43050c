//! Requests to etcd's JSON gateway.
//!
//! etcd is queried again and again for the whole list. A watch would need its own supervision: one that hangs looks like
//! a registry without changes. The list is small, and some seconds do not matter to members.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::answer::{self, Answer, AnswerError};
use crate::client;

/// Longest wait for an answer of one endpoint.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer: 64 entries of 16 KiB in base64 have less.
const ANSWER_LIMIT: usize = 2 << 20;
/// Most bytes of an error message of etcd that are shown.
const MESSAGE_LIMIT: usize = 300;

/// An address of etcd, as in `http://10.0.0.5:2379`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// A text is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidEndpoint {
    /// It is not of this form.
    #[error("an endpoint is http://HOST:PORT, as in http://10.0.0.5:2379")]
    Form,
    /// It needs TLS.
    #[error(
        "https is not supported: use the address of a private network, or a proxy such as \
         `etcd grpc-proxy` on this machine"
    )]
    Https,
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let uri: Uri = text.parse().map_err(|_| InvalidEndpoint::Form)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(InvalidEndpoint::Https),
            _ => return Err(InvalidEndpoint::Form),
        }
        let has_more = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        let authority = uri.authority().ok_or(InvalidEndpoint::Form)?;
        if has_more || authority.as_str().contains('@') {
            return Err(InvalidEndpoint::Form);
        }
        // An IPv6 address has brackets in an URI, which `connect` does not expect.
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(2379);
        if host.is_empty() || port == 0 {
            return Err(InvalidEndpoint::Form);
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(formatter, "http://[{host}]:{port}"),
            false => write!(formatter, "http://{host}:{port}"),
        }
    }
}

/// A user of etcd.
#[derive(Clone)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password. It passes the network as text.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// etcd did not answer a request.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// No thread or no socket could be made.
    #[error("cannot make connections: {0}")]
    System(#[source] io::Error),
    /// No endpoint gave a good answer.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<EndpointError>),
}

/// One endpoint did not answer.
#[derive(Debug, Error)]
#[error("{endpoint}: {reason}")]
pub struct EndpointError {
    endpoint: Endpoint,
    reason: Reason,
}

#[derive(Debug, Error)]
enum Reason {
    #[error("no connection: {0}")]
    Unreachable(#[source] io::Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    #[error("{0}")]
    Strange(String),
    #[error("status {status}: {message}")]
    Status { status: u16, message: String },
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// etcd, at one of its endpoints.
#[derive(Debug)]
pub(super) struct Etcd {
    endpoints: Vec<Endpoint>,
    /// The one that answered last.
    first: usize,
    credentials: Option<Credentials>,
    token: Option<String>,
    runtime: Runtime,
}

impl Etcd {
    pub fn new(endpoints: Vec<Endpoint>, credentials: Option<Credentials>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Self {
            endpoints,
            first: 0,
            credentials,
            token: None,
            runtime,
        })
    }

    /// All entries under a prefix, from the first endpoint that answers.
    pub fn entries(&mut self, prefix: &str) -> Result<Answer, EtcdError> {
        let mut errors = Vec::new();
        for turn in 0..self.endpoints.len() {
            let index = (self.first + turn) % self.endpoints.len();
            let Some(endpoint) = self.endpoints.get(index).cloned() else {
                break;
            };
            match self.entries_of(&endpoint, prefix) {
                Ok(answer) => {
                    self.first = index;
                    return Ok(answer);
                }
                Err(reason) => errors.push(EndpointError { endpoint, reason }),
            }
        }
        Err(EtcdError::All(errors))
    }

    fn entries_of(&mut self, endpoint: &Endpoint, prefix: &str) -> Result<Answer, Reason> {
        if self.token.is_none()
            && let Some(Credentials { user, password }) = &self.credentials
        {
            let body = serde_json::json!({ "name": user, "password": password }).to_string();
            let answer = self.post(endpoint, "/v3/auth/authenticate", body)?;
            self.token = Some(answer::token(&answer)?);
        }
        let result = self.post(endpoint, "/v3/kv/range", answer::range_request(prefix));
        // A token ends after some minutes, and with its server; the next request gets another one.
        if result.is_err() {
            self.token = None;
        }
        Ok(answer::entries(&result?, prefix)?)
    }

    fn post(&self, endpoint: &Endpoint, path: &str, body: String) -> Result<Bytes, Reason> {
        let mut request = Request::post(path)
            .header(HOST, format!("{}:{}", endpoint.host, endpoint.port))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::from(body));
        let request = request.map_err(|error| Reason::Strange(error.to_string()))?;
        let place = (endpoint.host.as_str(), endpoint.port);
        let send = async {
            let stream = TcpStream::connect(place)
                .await
                .map_err(Reason::Unreachable)?;
            let answer = client::send(stream, request, ANSWER_LIMIT).await;
            answer.map_err(Reason::Strange)
        };
        let limited = async { tokio::time::timeout(TIMEOUT, send).await };
        let answer = self.runtime.block_on(limited);
        let answer = answer.map_err(|_| Reason::TimedOut)??;
        match answer.status().as_u16() {
            200 => Ok(answer.into_body()),
            status => Err(Reason::Status {
                status,
                message: message(answer.body()),
            }),
        }
    }
}

/// The text of an error, in one short line.
fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..MESSAGE_LIMIT).unwrap_or(body));
    text.trim().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_plain_and_complete() {
        for (text, shown) in [
            ("http://10.0.0.5:2379", "http://10.0.0.5:2379"),
            ("http://etcd.example/", "http://etcd.example:2379"),
            ("http://[2001:db8::5]:1", "http://[2001:db8::5]:1"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), shown);
        }
        for text in [
            "",
            "10.0.0.5:2379",
            "http://",
            "http://x:0",
            "http://x/v3",
            "http://u:p@x:1",
            "ftp://x:1",
        ] {
            assert_eq!(
                text.parse::<Endpoint>(),
                Err(InvalidEndpoint::Form),
                "{text}"
            );
        }
        let tls: Result<Endpoint, _> = "https://10.0.0.5:2379".parse();
        assert_eq!(tls, Err(InvalidEndpoint::Https));
    }

    #[test]
    fn a_long_message_is_cut_and_has_one_line() {
        assert_eq!(message(b"{\n\"x\"}\n"), "{\\n\\\"x\\\"}");
        assert!(message(&[b'x'; 4000]).len() <= MESSAGE_LIMIT);
        assert!(!message(b"\x1b[2J\xff").contains('\x1b'));
    }

    #[test]
    fn passwords_are_not_shown() {
        let credentials = Credentials {
            user: "midspan".to_owned(),
            password: "secret".to_owned(),
        };
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
