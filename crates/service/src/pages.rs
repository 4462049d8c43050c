//! A small HTTP server for metrics and state of a running program, with limits.
//!
//! | what | limit |
//! | --- | --- |
//! | connections at a time | 32, of one address 8; a new connection closes the oldest one of its
//! | | address, or of the address with the most connections |
//! | a request's head | 8 KiB, 32 fields, 2 s |
//! | a request's body | not read |
//! | requests in a connection | 1 |
//! | a connection | 10 s |
//!
//! Only GET and HEAD are answered. The field `Host` must be an address, `localhost` or an allowed
//! name, so that a web page whose name resolves to the address of this machine (DNS rebinding) gets
//! no data.

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
use tokio::task::JoinHandle;

const CONNECTION_LIMIT: usize = 32;
const CLIENT_LIMIT: usize = 8;
const HEAD_LIMIT: usize = 8 << 10;
const FIELD_LIMIT: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an error of `accept`, which is likely to occur again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer.
pub type Reply = Response<Full<Bytes>>;

/// The pages of a program.
pub trait Pages: Send + Sync + 'static {
    /// The page at a path, such as "/metrics", for a query.
    fn page(&self, path: &str, query: &str) -> impl Future<Output = Reply> + Send;
}

/// Accepts connections and never returns without an error. The `Host` of a request may be one of
/// `names`, an address, or `localhost`.
///
/// # Errors
/// The listener cannot be registered with the event loop.
pub async fn serve(
    listener: std::net::TcpListener,
    pages: impl Pages,
    names: Vec<String>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let pages = Arc::new(pages);
    let names: Arc<[String]> = names.into();
    let mut places = Places::default();
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("the admin listener cannot accept: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        places.make_room(client.ip());
        let (pages, names) = (Arc::clone(&pages), Arc::clone(&names));
        let task = tokio::spawn(async move {
            let connection = serve_connection(stream, pages, names);
            // An error concerns this client only.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
        places.0.push((client.ip(), task));
    }
}

/// [Serves](serve) pages in a thread of this name, which ends with the process. `failed` gets the
/// error if they can no longer be served.
///
/// # Errors
/// The thread or its event loop cannot be created.
pub fn serve_in_thread(
    name: &str,
    listener: std::net::TcpListener,
    pages: impl Pages,
    names: Vec<String>,
    failed: impl FnOnce(io::Error) + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let serve = move || {
        if let Err(error) = runtime.block_on(serve(listener, pages, names)) {
            failed(error);
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(serve).map(|_| ())
}

/// Connections that are being served, the oldest first.
#[derive(Debug, Default)]
struct Places(Vec<(IpAddr, JoinHandle<()>)>);

impl Places {
    /// Closes the oldest connection of a client that has reached its limit, or of the client with the
    /// most connections. Otherwise a client with idle connections could block the others for 10 s.
    fn make_room(&mut self, client: IpAddr) {
        self.0.retain(|(_, task)| !task.is_finished());
        let count = |of: IpAddr| self.0.iter().filter(|(other, _)| *other == of).count();
        let most = || self.0.iter().map(|(of, _)| *of).max_by_key(|of| count(*of));
        let from = match count(client) >= CLIENT_LIMIT {
            true => Some(client),
            false if self.0.len() >= CONNECTION_LIMIT => most(),
            false => None,
        };
        let oldest = from.and_then(|from| self.0.iter().position(|(of, _)| *of == from));
        if let Some(oldest) = oldest {
            self.0.remove(oldest).1.abort();
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    pages: Arc<impl Pages>,
    names: Arc<[String]>,
) -> Result<(), hyper::Error> {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (pages, names) = (Arc::clone(&pages), Arc::clone(&names));
        async move {
            Ok::<_, Infallible>(match refusal(&request, &names) {
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

/// The answer to a request that is refused; `None` if the request is allowed.
fn refusal(request: &Request<Incoming>, names: &[String]) -> Option<Reply> {
    if !names_this_host(request.headers(), names) {
        let said = "the field Host must be an address, localhost or a name that is allowed \
                    (admin.names)\n";
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

    struct Hello;
    impl Pages for Hello {
        async fn page(&self, _: &str, _: &str) -> Reply {
            text(StatusCode::OK, "hello\n")
        }
    }

    /// Clients that send nothing, or half a request, on all connections do not block other clients.
    #[test]
    fn silent_connections_keep_nobody_from_asking() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        serve_in_thread("pages", listener, Hello, Vec::new(), |error| {
            panic!("{error}")
        })
        .unwrap();
        let connect = || std::net::TcpStream::connect(address).unwrap();
        let mut silent: Vec<_> = (0..3 * CONNECTION_LIMIT).map(|_| connect()).collect();
        for stream in &mut silent {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: lo");
        }
        let start = std::time::Instant::now();
        let mut asking = connect();
        asking
            .write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\n"),
            "{answer}"
        );
        // The answer came before the first silent connection timed out.
        assert!(start.elapsed() < HEAD_TIMEOUT, "{:?}", start.elapsed());
        drop(silent);
    }

    #[test]
    fn room_is_made_by_whoever_has_most() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let of = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut places = Places::default();
        let add = |places: &mut Places, client| {
            places.make_room(client);
            let task = runtime.spawn(std::future::pending::<()>());
            places.0.push((client, task));
        };
        let count =
            |places: &Places, client| places.0.iter().filter(|(of, _)| *of == client).count();
        for _ in 0..20 {
            add(&mut places, of(1));
        }
        assert_eq!(count(&places, of(1)), CLIENT_LIMIT);
        for client in 2..200 {
            add(&mut places, of(client));
            assert!(places.0.len() <= CONNECTION_LIMIT);
            assert_eq!(count(&places, of(client)), 1);
        }
        assert_eq!(count(&places, of(1)), 1);
    }
}
