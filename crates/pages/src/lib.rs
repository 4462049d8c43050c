//! Pages about a running program, over HTTP and within bounds.
//!
//! | what | bound |
//! | --- | --- |
//! | connections at a time | 32; more wait in the kernel's queue |
//! | a request's head | 8 KiB, 32 fields, 2 s |
//! | a request's body | not read |
//! | requests in a connection | 1 |
//! | a connection | 10 s |
//!
//! Only GET and HEAD are answered. Unless other hosts are allowed, the field `Host` must be an
//! address or `localhost`: a web page whose name leads to 127.0.0.1 (DNS rebinding) learns nothing.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
pub use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

const CONNECTION_LIMIT: usize = 32;
const HEAD_LIMIT: usize = 8 << 10;
const FIELD_LIMIT: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of `accept`, which is likely to come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer.
pub type Reply = Response<Full<Bytes>>;

/// What can be asked for.
pub trait Pages: Send + Sync + 'static {
    /// The page at a path, such as "/metrics", with the query behind it.
    fn page(&self, path: &str, query: &str) -> impl Future<Output = Reply> + Send;
}

/// Accepts connections for ever.
///
/// # Errors
/// The listener is none that can be waited on.
pub async fn serve(
    listener: std::net::TcpListener,
    pages: impl Pages,
    allow_remote: bool,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let pages = Arc::new(pages);
    let places = Arc::new(Semaphore::new(CONNECTION_LIMIT));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return Ok(());
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!("the admin listener cannot accept: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let pages = Arc::clone(&pages);
        tokio::spawn(async move {
            let connection = serve_connection(stream, pages, allow_remote);
            // What goes wrong here is the other side's matter.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    pages: Arc<impl Pages>,
    allow_remote: bool,
) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let pages = Arc::clone(&pages);
        async move {
            Ok::<_, Infallible>(match refusal(&request, allow_remote) {
                Some(refusal) => refusal,
                None => {
                    let query = request.uri().query().unwrap_or_default();
                    pages.page(request.uri().path(), query).await
                }
            })
        }
    });
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_LIMIT)
        .max_headers(FIELD_LIMIT)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .await
}

/// The answer to what is not asked as it should be.
fn refusal(request: &Request<Incoming>, allow_remote: bool) -> Option<Reply> {
    if !allow_remote && !names_this_host(request.headers()) {
        let said = "the field Host must be an address or localhost\n";
        return Some(text(StatusCode::FORBIDDEN, said));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return Some(refused);
    }
    None
}

fn names_this_host(fields: &HeaderMap) -> bool {
    // HTTP/1.0 knows no Host, and no browser speaks it.
    let Some(host) = fields.get(HOST) else {
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    host.parse::<SocketAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// A text for people.
#[must_use]
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    reply(status, TEXT, text)
}

/// A value as JSON.
#[must_use]
pub fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_string(value) {
        Ok(text) => reply(StatusCode::OK, JSON, text + "\n"),
        Err(error) => failed(&error),
    }
}

/// Metrics in the OpenMetrics text format.
#[must_use]
pub fn open_metrics(text: String) -> Reply {
    reply(StatusCode::OK, OPEN_METRICS, text)
}

/// That a page could not be made.
#[must_use]
pub fn failed(error: &impl Display) -> Reply {
    let said = format!("cannot answer: {error}\n");
    text(StatusCode::INTERNAL_SERVER_ERROR, said)
}

fn reply(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(text.into()));
    *reply.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_names_learn_nothing() {
        let with = |host: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(HOST, HeaderValue::from_static(host));
            names_this_host(&fields)
        };
        for host in [
            "127.0.0.1:9464",
            "localhost",
            "LOCALHOST:9464",
            "[::1]:9464",
            "[::1]",
        ] {
            assert!(with(host), "{host}");
        }
        for host in [
            "example.org",
            "example.org:9464",
            "127.0.0.1.example.org:80",
            "",
        ] {
            assert!(!with(host), "{host}");
        }
        assert!(names_this_host(&HeaderMap::new()));
    }
}
