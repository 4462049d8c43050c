//! HTTP/1 between a proxy and its clients: `CONNECT`, and requests whose target is an absolute URI (RFC 9110
//! §9.3.6, RFC 9112 §3.2.2).
//!
//! A plain request and its answer are an [`Exchange`]. The exchange parses both only as far as needed to find
//! their ends, so that the next request on the client's connection can go to another server. Each connection
//! to a server carries one plain request, with `Connection: close`, or `Connection: Upgrade` for WebSocket.

pub(crate) mod request_head;
mod rewrite;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::Header;

use crate::Credentials;
use crate::exchange::head::HeadEnd;
pub use crate::exchange::{
    Exchange, LONGEST_ANSWER_HEAD, Outcome as Progress, Side, Verdict, Wanted,
};
use crate::negotiation::{Failure, Next, Outcome, Refusal, Request, Step};
use request_head::Reading;

/// Longest head of a request.
pub const LONGEST_HEAD: usize = 16 * 1024;

/// The proxy's side of one client's negotiation.
#[derive(Debug, Clone, Default)]
pub struct Http {
    is_tunnel: bool,
    head: HeadEnd,
}

impl Http {
    /// A negotiation with a client that has sent nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles the bytes from the client that are not consumed yet. With `credentials`, only their
    /// users are served. Each byte is read once, and the head is parsed when it is complete.
    pub fn advance(&mut self, input: &[u8], credentials: Option<&Credentials>) -> Step {
        let read = request_head::read(&mut self.head, input, |request, length| {
            let is_tunnel = request.method == Some("CONNECT");
            (is_tunnel, respond(request, length, credentials))
        });
        match read {
            Reading::More(consumed) => Step::more(consumed, Vec::new()),
            Reading::TooLarge => refuse(0, HEAD_TOO_LARGE, Refusal::Malformed),
            Reading::Wrong => refuse(0, BAD_REQUEST, Refusal::Malformed),
            Reading::Whole((is_tunnel, step)) => {
                self.is_tunnel = is_tunnel;
                step
            }
        }
    }

    /// The reply to the client after the attempt to connect to the server.
    #[must_use]
    pub fn answer(&self, outcome: Outcome) -> Vec<u8> {
        let failure = match outcome {
            Outcome::Connected(_) if self.is_tunnel => return ESTABLISHED.as_bytes().to_vec(),
            // The server answers itself.
            Outcome::Connected(_) => return Vec::new(),
            Outcome::Failed(failure) => failure,
        };
        let (status, text) = match failure {
            Failure::Refused => ("502 Bad Gateway", "the server refused the connection"),
            Failure::TimedOut => ("504 Gateway Timeout", "the server did not answer in time"),
            Failure::HostUnreachable => ("502 Bad Gateway", "the server cannot be reached"),
            Failure::NetworkUnreachable => ("502 Bad Gateway", "there is no route to the server"),
            Failure::NameNotFound => ("502 Bad Gateway", "the server's name has no address"),
            Failure::NotAllowed => ("403 Forbidden", "this proxy may not connect there"),
            Failure::Shortage => ("503 Service Unavailable", "the proxy is overloaded"),
            Failure::TooFast => (
                "429 Too Many Requests",
                "connections are opened faster than this proxy permits",
            ),
            Failure::RouteBroken => (
                "502 Bad Gateway",
                "the proxies on the route to the server cannot be reached",
            ),
        };
        response(status, "", text)
    }
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";

type Answer = (&'static str, &'static str, &'static str);
const BAD_REQUEST: Answer = ("400 Bad Request", "", "this is not a request to a proxy");
const HEAD_TOO_LARGE: Answer = (
    "431 Request Header Fields Too Large",
    "",
    "the head of the request is too large",
);
const NOT_IMPLEMENTED: Answer = (
    "501 Not Implemented",
    "",
    "this proxy carries http:// and CONNECT",
);
const UNAUTHENTICATED: Answer = (
    "407 Proxy Authentication Required",
    "Proxy-Authenticate: Basic realm=\"midspan\"\r\n",
    "a name and a password are needed",
);

fn refuse(consumed: usize, (status, field, text): Answer, refusal: Refusal) -> Step {
    Step::refuse(consumed, response(status, field, text), refusal)
}

fn response(status: &str, field: &str, text: &str) -> Vec<u8> {
    let length = text.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\n{field}Content-Type: text/plain\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    )
    .into_bytes()
}

/// The step after a whole head of this many bytes.
fn respond(
    request: &httparse::Request<'_, '_>,
    length: usize,
    credentials: Option<&Credentials>,
) -> Step {
    if let Some(credentials) = credentials
        && !is_authenticated(&*request.headers, credentials)
    {
        let refusal = match request.headers.iter().any(is_authorization) {
            true => Refusal::Unauthenticated,
            false => Refusal::NoCredentials,
        };
        return refuse(length, UNAUTHENTICATED, refusal);
    }
    let wanted = match request.method {
        Some("CONNECT") => tunnel(request),
        _ => rewrite::for_server(request),
    };
    match wanted {
        Ok(wanted) => Step {
            consumed: length,
            reply: Vec::new(),
            next: Next::Connect(wanted),
        },
        Err(Refusal::Unsupported) => refuse(length, NOT_IMPLEMENTED, Refusal::Unsupported),
        Err(refusal) => refuse(length, BAD_REQUEST, refusal),
    }
}

fn tunnel(request: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    Ok(Request {
        destination: request_head::authority(request)?,
        to_server: Vec::new(),
        exchange: None,
    })
}

/// Basic authentication (RFC 7617).
fn is_authorization(field: &Header<'_>) -> bool {
    field.name.eq_ignore_ascii_case("proxy-authorization")
}

fn is_authenticated(fields: &[Header<'_>], credentials: &Credentials) -> bool {
    let mut given = fields.iter().filter(|field| is_authorization(field));
    let (Some(field), None) = (given.next(), given.next()) else {
        return false;
    };
    let Some((scheme, token)) = field.value.split_at_checked(6) else {
        return false;
    };
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return false;
    }
    let Ok(pair) = STANDARD.decode(token.trim_ascii()) else {
        return false;
    };
    let Some(colon) = pair.iter().position(|byte| *byte == b':') else {
        return false;
    };
    let (user, password) = pair.split_at(colon);
    credentials.accept(user, password.get(1..).unwrap_or_default())
}
