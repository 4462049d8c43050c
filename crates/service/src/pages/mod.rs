//! A small HTTP server for metrics, state and commands of a running program, with limits.
//!
//! | limited | limit |
//! | --- | --- |
//! | connections at a time over the network | 32 in all, 8 of one address |
//! | connections at a time of this machine's processes | 16; more wait |
//! | a request's head | 8 KiB, 32 fields, 2 s |
//! | a request's body | not read |
//! | requests in a connection | 1 |
//! | a connection | 10 s over the network, otherwise 30 s |
//!
//! If one address has 8 connections over the network, a new one of this address closes the oldest of them. If
//! there are 32, a new one closes the oldest of the address with the most connections.
//!
//! Only GET and HEAD are answered, unless the pages [change](Pages::change) something. Over the network, the
//! field `Host`, if there is one, must be an address, `localhost` or an allowed name, so that a web page
//! whose name resolves to the address of this machine (DNS rebinding) gets no data.

mod memory;
mod server;

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::HeaderValue;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
pub use hyper::{Method, StatusCode};
use hyper_util::rt::TokioTimer;

pub use memory::answer_to;
pub use server::{Clients, RunningServer, Server};

const HEAD_LIMIT: usize = 8 << 10;
const FIELD_LIMIT: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer.
pub type Reply = Response<Full<Bytes>>;

/// The pages of a program.
pub trait Pages: Send + Sync + 'static {
    /// The page at a path, such as "/metrics", for a query.
    fn page(&self, path: &str, query: &str) -> impl Future<Output = Reply> + Send;

    /// The answer to a request with another method than GET and HEAD. By default, it is refused.
    fn change(
        &self,
        method: &Method,
        path: &str,
        query: &str,
    ) -> impl Future<Output = Reply> + Send {
        let _ = (method, path, query);
        std::future::ready(only("GET, HEAD"))
    }
}

/// The names under which a program may be requested; `None` if any name will do, because no web page
/// can send requests to it.
type Names = Option<Arc<[String]>>;

async fn serve_connection(
    stream: impl Read + Write + Unpin,
    pages: Arc<impl Pages>,
    names: Names,
) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (pages, names) = (Arc::clone(&pages), names.clone());
        async move {
            let (path, query) = (request.uri().path(), request.uri().query());
            let query = query.unwrap_or_default();
            if let Some(names) = names
                && !names_this_host(request.headers(), &names)
            {
                let said = "the field Host must be an address, localhost or a name that is \
                            allowed (admin.names)\n";
                return Ok::<_, Infallible>(text(StatusCode::FORBIDDEN, said));
            }
            Ok(match *request.method() {
                Method::GET | Method::HEAD => pages.page(path, query).await,
                ref method => pages.change(method, path, query).await,
            })
        }
    });
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_LIMIT)
        .max_headers(FIELD_LIMIT)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(stream, answer)
        .await
}

/// The answer to a request with a method that is not one of these, as in "GET, HEAD".
#[must_use]
pub fn only(methods: &'static str) -> Reply {
    let said = format!("only {methods}\n");
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, said);
    let allowed = HeaderValue::from_static(methods);
    refused.headers_mut().insert(ALLOW, allowed);
    refused
}

fn names_this_host(fields: &HeaderMap, names: &[String]) -> bool {
    // HTTP/1.0 has no field Host, and no browser uses HTTP/1.0.
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
        || names
            .iter()
            .any(|allowed| name.eq_ignore_ascii_case(allowed))
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
    json_with(StatusCode::OK, value)
}

/// A value as JSON, with this status.
#[must_use]
pub fn json_with(status: StatusCode, value: &impl serde::Serialize) -> Reply {
    match serde_json::to_string(value) {
        Ok(text) => reply(status, JSON, text + "\n"),
        Err(error) => failed(&error),
    }
}

/// A file of a page for browsers, with its content type, and the page's policy
/// (Content-Security-Policy).
#[must_use]
pub fn file(kind: &'static str, content: &'static str, policy: &'static str) -> Reply {
    let mut reply = reply(StatusCode::OK, kind, content);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // After an upgrade, browsers get the new files.
        (CACHE_CONTROL, "no-cache"),
    ] {
        let value = HeaderValue::from_static(value);
        reply.headers_mut().insert(name, value);
    }
    reply
}

/// Metrics in the OpenMetrics text format.
#[must_use]
pub fn open_metrics(text: String) -> Reply {
    reply(StatusCode::OK, OPEN_METRICS, text)
}

/// The answer if a page could not be made.
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
            names_this_host(&fields, &["gw.example.net".to_owned()])
        };
        for host in [
            "127.0.0.1:9464",
            "localhost",
            "LOCALHOST:9464",
            "[::1]:9464",
            "[::1]",
            "gw.example.net:9464",
            "GW.example.net",
            "192.0.2.1:9464",
        ] {
            assert!(with(host), "{host}");
        }
        for host in [
            "example.org",
            "example.org:9464",
            "example.net",
            "gw.example.net.example.org",
            "127.0.0.1.example.org:80",
            "",
        ] {
            assert!(!with(host), "{host}");
        }
        assert!(names_this_host(&HeaderMap::new(), &[]));
    }
}
