//! HTTP on the admin listener, within bounds.
//!
//! | what | bound |
//! | --- | --- |
//! | connections at a time | 32; more wait in the kernel's queue of 64 |
//! | a request's head | 8 KiB, 32 fields, 2 s |
//! | a request's body | not read |
//! | requests in a connection | 1 |
//! | a connection | 10 s |
//! | questions to the relay's threads | one at a time, 10 in a second |
//!
//! Unless other hosts are allowed, the field `Host` must be an address or `localhost`: a web page
//! whose name leads to 127.0.0.1 (DNS rebinding) learns nothing.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST};
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

use super::NarrowObserver;
use super::metrics::{self, Snapshot};
use crate::gate::GateObserver;
use crate::relay::observation::{Observer, Question};

const CONNECTION_LIMIT: usize = 32;
const HEAD_LIMIT: usize = 8 << 10;
const FIELD_LIMIT: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two questions to the relay's threads.
const QUESTION_PAUSE: Duration = Duration::from_millis(100);
/// After an error of `accept`, which is likely to come again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Sessions told of where the request does not say how many.
const DEFAULT_SESSIONS: usize = 100;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Reply = Response<Full<Bytes>>;

/// Answers requests.
#[derive(Debug)]
pub(super) struct Service {
    relay: Observer,
    gate: Option<GateObserver>,
    narrow: NarrowObserver,
    allow_remote: bool,
    /// Held by whoever asks the relay's threads.
    turn: Mutex<()>,
}

/// Accepts connections for ever.
pub(super) async fn serve(listener: std::net::TcpListener, service: Service) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let service = Arc::new(service);
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
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let connection = serve_connection(stream, service);
            // What goes wrong here is the other side's matter.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

async fn serve_connection(stream: TcpStream, service: Arc<Service>) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(&request).await) }
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

impl Service {
    pub fn new(
        relay: Observer,
        gate: Option<GateObserver>,
        narrow: NarrowObserver,
        allow_remote: bool,
    ) -> Self {
        Self {
            relay,
            gate,
            narrow,
            allow_remote,
            turn: Mutex::new(()),
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Reply {
        if !self.allow_remote && !names_this_host(request.headers()) {
            let text = "the field Host must be an address or localhost\n";
            return reply(StatusCode::FORBIDDEN, TEXT, text);
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n");
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match request.uri().path() {
            "/metrics" => self.metrics(),
            "/health" => self.health(),
            "/sessions" => {
                self.sessions(request.uri().query().unwrap_or_default())
                    .await
            }
            "/" => reply(StatusCode::OK, TEXT, "/metrics\n/sessions\n/health\n"),
            path => match path.strip_prefix("/sessions/").map(str::parse) {
                Some(Ok(id)) => self.session(id).await,
                _ => reply(StatusCode::NOT_FOUND, TEXT, "no such page\n"),
            },
        }
    }

    fn metrics(&self) -> Reply {
        let snapshot = Snapshot {
            statistics: self.relay.statistics(),
            memory: self.relay.memory(),
            listeners: self.relay.listeners(),
            gate: self.gate.as_ref().map(GateObserver::statistics),
            verdicts: self.narrow.verdicts.counts(),
            fragments: self.narrow.fragments.now(),
        };
        match metrics::encode(snapshot) {
            Ok(text) => reply(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => failed(&error),
        }
    }

    fn health(&self) -> Reply {
        if self.relay.is_well() {
            return reply(StatusCode::OK, TEXT, "ok\n");
        }
        let text = "a thread of the relay has ended\n";
        reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
    }

    async fn sessions(&self, query: &str) -> Reply {
        let mut question = Question {
            after: 0,
            limit: DEFAULT_SESSIONS,
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let read = match parameter.split_once('=') {
                Some(("after", value)) => value.parse().map(|after| question.after = after),
                Some(("limit", value)) => value.parse().map(|limit| question.limit = limit),
                _ => {
                    let text = "known parameters: after=ID, limit=NUMBER\n";
                    return reply(StatusCode::BAD_REQUEST, TEXT, text);
                }
            };
            if read.is_err() {
                let text = "after and limit are whole numbers\n";
                return reply(StatusCode::BAD_REQUEST, TEXT, text);
            }
        }
        json(&self.ask(question).await)
    }

    async fn session(&self, id: u64) -> Reply {
        let answer = self.ask(Question::one(id)).await;
        let found = answer.sessions.into_iter().find(|session| session.id == id);
        match found {
            Some(session) => json(&session),
            None if answer.complete => reply(
                StatusCode::NOT_FOUND,
                TEXT,
                "no such session, or it has ended\n",
            ),
            None => {
                let text = "a thread of the relay does not answer\n";
                reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
            }
        }
    }

    /// Asks the relay's threads; one at a time, so that nobody keeps them from their work.
    async fn ask(&self, question: Question) -> crate::relay::observation::Answer {
        let turn = self.turn.lock().await;
        let answer = self.relay.sessions(question).await;
        tokio::time::sleep(QUESTION_PAUSE).await;
        drop(turn);
        answer
    }
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

fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_string(value) {
        Ok(text) => reply(StatusCode::OK, JSON, text + "\n"),
        Err(error) => failed(&error),
    }
}

fn failed(error: &impl std::fmt::Display) -> Reply {
    let text = format!("cannot answer: {error}\n");
    reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
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
