//! Rewrites a request to a proxy as a request to the server.

use httparse::Header;

use crate::exchange::body::Body;
use crate::exchange::fields::{self, Ambiguous, Framing};
use crate::exchange::{Asked, Exchange};
use crate::negotiation::{Refusal, Request};
use crate::{Destination, Host};

const SCHEME: &str = "http://";
const PORT: u16 = 80;
/// Bytes that most heads have at most.
const USUAL_LENGTH: usize = 512;

/// The request for the server, and the exchange that begins with it.
///
/// # Errors
/// The request is not for a proxy, is ambiguous, or has another scheme than `http`.
pub(super) fn for_server(request: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(Refusal::Malformed);
    };
    let (destination, path) = split_target(method, target)?;
    let fields = &*request.headers;
    let framing = Framing::of(fields).map_err(|Ambiguous| Refusal::Malformed)?;
    let body = body(&framing, version)?;
    let named = fields::named_by_connection(fields);
    if fields::are_indispensable(&named) {
        return Err(Refusal::Malformed);
    }
    let asked = Asked {
        is_head: method == "HEAD",
        version,
        stays_open: stays_open(fields, version),
        upgrade: version > 0 && body.is_complete() && wants_web_socket(fields),
    };
    let version_digit = if version == 0 { "0" } else { "1" };
    let mut head = Vec::with_capacity(USUAL_LENGTH);
    let line = [method, " ", &path, " HTTP/1.", version_digit, "\r\n"];
    line.iter()
        .for_each(|part| head.extend_from_slice(part.as_bytes()));
    fields::write(&mut head, b"Host", authority(&destination).as_bytes());
    for field in fields {
        if fields::passes(field.name, &named) {
            fields::write(&mut head, field.name.as_bytes(), field.value);
        }
    }
    match (framing.coding, framing.length) {
        (Some(coding), _) => fields::write(&mut head, b"Transfer-Encoding", coding.value),
        (None, Some(length)) => fields::write_length(&mut head, length),
        (None, None) => {}
    }
    let via = ["Via: 1.", version_digit, " midspan\r\n"];
    via.iter()
        .for_each(|part| head.extend_from_slice(part.as_bytes()));
    head.extend_from_slice(match asked.upgrade {
        true => b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n".as_slice(),
        // Each request has its own connection to the server.
        false => b"Connection: close\r\n\r\n",
    });
    Ok(Request {
        destination,
        to_server: head,
        exchange: Some(Exchange::new(asked, body)),
    })
}

/// The end of the body of a request. A length together with chunks, and chunks of HTTP/1.0, could be
/// read in two ways (RFC 9112 §6.1, §6.3).
fn body(framing: &Framing<'_>, version: u8) -> Result<Body, Refusal> {
    match (framing.coding, framing.length) {
        (None, length) => Ok(Body::Length(length.unwrap_or(0))),
        (Some(coding), None) if coding.is_chunked && version > 0 => Ok(Body::chunked()),
        (Some(_), _) => Err(Refusal::Malformed),
    }
}

/// Whether the client keeps its connection open (RFC 9112 §9.3).
fn stays_open(fields: &[Header<'_>], version: u8) -> bool {
    let says = |element| {
        ["connection", "proxy-connection"]
            .iter()
            .any(|name| fields::has_element(fields, name, element))
    };
    !says("close") && (version > 0 || says("keep-alive"))
}

/// Other protocols are not passed on: they could carry requests to other servers (h2c).
fn wants_web_socket(fields: &[Header<'_>]) -> bool {
    let mut protocols = fields::values(fields, "upgrade");
    let is_web_socket = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"websocket");
    protocols.next().is_some_and(is_web_socket)
        && protocols.next().is_none()
        && fields::has_element(fields, "connection", "upgrade")
}

/// Server and path of `http://server/path`.
fn split_target(method: &str, target: &str) -> Result<(Destination, String), Refusal> {
    let rest = match target.split_at_checked(SCHEME.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
        _ if target.contains("://") => return Err(Refusal::Unsupported),
        _ => return Err(Refusal::Malformed),
    };
    if rest.contains('#') {
        return Err(Refusal::Malformed);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let destination = Destination::parse(authority, Some(PORT)).map_err(|_| Refusal::Malformed)?;
    let path = match path {
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    Ok((destination, path))
}

fn authority(destination: &Destination) -> String {
    match (&destination.host, destination.port) {
        (Host::Name(name), PORT) => name.to_string(),
        (Host::Address(std::net::IpAddr::V6(address)), PORT) => format!("[{address}]"),
        (Host::Address(address), PORT) => address.to_string(),
        _ => destination.to_string(),
    }
}
