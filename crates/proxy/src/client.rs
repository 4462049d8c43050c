//! Requests to a running Midspan, over its control socket or its admin listener.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use midspan_relay::observation::SessionReport;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longest answer that is read, in bytes.
const ANSWER_LIMIT: usize = 64 << 20;
/// Longest wait for a page.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The field `Host` of a request over the control socket, where any name will do.
pub(crate) const HOST_NAME: &str = "midspan";

/// Where a running Midspan answers requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Its admin listener, which answers only GET.
    Admin(SocketAddr),
    /// Its control socket.
    Socket(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin(address) => address.fmt(formatter),
            Self::Socket(path) => path.display().fmt(formatter),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self::Admin(address)
    }
}

/// Why a Midspan did not answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No program answers there.
    #[error("no Midspan answers at {place}: {source}{}", hint(.place, .source))]
    Unreachable {
        /// The place.
        place: Place,
        /// The system's error.
        source: io::Error,
    },
    /// The answer takes too long.
    #[error("{place} does not answer within {} s", .limit.as_secs())]
    TimedOut {
        /// The place.
        place: Place,
        /// How long the answer was awaited.
        limit: Duration,
    },
    /// The answer is not HTTP, or not an answer of Midspan.
    #[error("{place} does not answer as Midspan does: {reason}")]
    Strange {
        /// The place.
        place: Place,
        /// What is wrong with the answer.
        reason: String,
    },
}

fn hint(place: &Place, error: &io::Error) -> &'static str {
    match (place, error.kind()) {
        (Place::Admin(_), _) => {
            " (is [admin] in the configuration of the running Midspan? give its address with \
             --admin)"
        }
        (Place::Socket(_), io::ErrorKind::PermissionDenied) => {
            " (only root and Midspan's own user may use it: try sudo)"
        }
        (Place::Socket(_), _) => {
            " (is it running? --socket or --config name the control socket of another one)"
        }
    }
}

/// Requests a page; returns its status and its text.
///
/// # Errors
/// There is no answer, or it cannot be parsed.
pub fn get(place: impl Into<Place>, target: &str) -> Result<(u16, String), ClientError> {
    request(&place.into(), Method::GET, target, TIMEOUT)
}

/// Sends a request without a body, and waits for the answer at most for `limit`; returns its status
/// and its text. `target` is a path with its query.
///
/// # Errors
/// There is no answer, or it cannot be parsed.
pub fn request(
    place: &Place,
    method: Method,
    target: &str,
    limit: Duration,
) -> Result<(u16, String), ClientError> {
    let unreachable = |source| ClientError::Unreachable {
        place: place.clone(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(unreachable)?;
    let ask = async {
        match place {
            Place::Admin(address) => {
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                Ok(exchange(stream, &address.to_string(), method, target).await)
            }
            Place::Socket(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                Ok(exchange(stream, HOST_NAME, method, target).await)
            }
        }
    };
    let answer = runtime.block_on(async { tokio::time::timeout(limit, ask).await });
    match answer {
        Ok(Ok(Ok(response))) => {
            let status = response.status().as_u16();
            let text = String::from_utf8_lossy(response.body()).into_owned();
            Ok((status, text))
        }
        Ok(Ok(Err(reason))) => Err(ClientError::Strange {
            place: place.clone(),
            reason,
        }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ClientError::TimedOut {
            place: place.clone(),
            limit,
        }),
    }
}

/// A live session; `None` if there is no such session (any more).
///
/// # Errors
/// As [`get`].
pub fn session(place: &Place, id: u64) -> Result<Option<SessionReport>, ClientError> {
    let strange = |reason: String| ClientError::Strange {
        place: place.clone(),
        reason,
    };
    let (status, text) = get(place.clone(), &format!("/sessions/{id}"))?;
    match StatusCode::from_u16(status) {
        Ok(StatusCode::OK) => serde_json::from_slice(text.as_bytes())
            .map(Some)
            .map_err(|error| strange(error.to_string())),
        Ok(StatusCode::NOT_FOUND) => Ok(None),
        _ => Err(strange(format!("status {status}: {}", text.trim()))),
    }
}

/// Sends one request over a connection, and receives the whole answer; otherwise returns a sentence
/// about what is wrong with it.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    method: Method,
    target: &str,
) -> Result<Response<Bytes>, String> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, host)
        .body(Full::default())
        .map_err(|error| error.to_string())?;
    send(stream, request, ANSWER_LIMIT).await
}

/// Sends one request over a connection, and receives the whole answer of at most `limit` bytes; otherwise returns a
/// sentence about what is wrong with it.
pub(crate) async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, String> {
    let wrong = |error: &dyn fmt::Display| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| wrong(&error))?;
    // This task transfers the bytes of the request and of the answer.
    tokio::spawn(connection);
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| wrong(&error))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, limit);
    let body = body.collect().await.map_err(|error| wrong(&error))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}
