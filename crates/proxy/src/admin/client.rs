//! Queries to the admin listener of a running Midspan.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use midspan_relay::observation::SessionReport;
use thiserror::Error;
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_LIMIT: usize = 64 << 20;
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Why an admin listener did not answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No program listens at this address.
    #[error(
        "no program answers at {address}: {source} (is [admin] in the configuration of the running \
         Midspan? give its address with --admin, or its file with -c)"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The answer takes too long.
    #[error("{0} does not answer within 5 s")]
    TimedOut(SocketAddr),
    /// The answer is not HTTP, or not an answer of Midspan.
    #[error("{address} does not answer as Midspan does: {reason}")]
    Strange {
        /// The address.
        address: SocketAddr,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// Requests a page; returns its status and its text.
///
/// # Errors
/// There is no answer, or it cannot be parsed.
pub fn get(address: SocketAddr, page: &str) -> Result<(u16, String), ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| ClientError::Unreachable { address, source })?;
    runtime.block_on(async {
        match tokio::time::timeout(TIMEOUT, ask(address, page)).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::TimedOut(address)),
        }
    })
}

/// A live session; `None` if there is no such session (any more).
///
/// # Errors
/// As [`get`].
pub fn session(address: SocketAddr, id: u64) -> Result<Option<SessionReport>, ClientError> {
    let strange = |reason: String| ClientError::Strange { address, reason };
    let (status, text) = get(address, &format!("/sessions/{id}"))?;
    match StatusCode::from_u16(status) {
        Ok(StatusCode::OK) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| strange(error.to_string())),
        Ok(StatusCode::NOT_FOUND) => Ok(None),
        _ => Err(strange(format!("status {status}: {}", text.trim()))),
    }
}

async fn ask(address: SocketAddr, page: &str) -> Result<(u16, String), ClientError> {
    let strange = |error: &dyn std::fmt::Display| ClientError::Strange {
        address,
        reason: error.to_string(),
    };
    let stream = TcpStream::connect(address)
        .await
        .map_err(|source| ClientError::Unreachable { address, source })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| strange(&error))?;
    let request = Request::get(page)
        .header(HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| strange(&error))?;
    // This task transfers the bytes of the request and of the answer.
    tokio::spawn(connection);
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| strange(&error))?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), ANSWER_LIMIT);
    let body = body.collect().await.map_err(|error| strange(&error))?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Ok((status, text))
}
