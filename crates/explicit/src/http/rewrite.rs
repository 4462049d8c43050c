//! A request to a proxy becomes one to the server.

use httparse::Header;

use crate::negotiation::{Refusal, Request};
use crate::{Destination, Host};

const SCHEME: &str = "http://";
const PORT: u16 = 80;

/// Fields for one hop only, which the next must not see (RFC 9110 §7.6.1), and `Host`, which is
/// written anew (RFC 9112 §3.2.2). How the body ends passes on, since the body does.
const DROPPED: [&str; 9] = [
    "host",
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
    "http2-settings",
];

/// Fields without which the server would see another request.
const INDISPENSABLE: [&str; 3] = ["host", "content-length", "transfer-encoding"];

/// What the server is to be told.
///
/// # Errors
/// Not addressed to a proxy, ambiguous, or of another scheme than `http`.
pub(super) fn for_server(request: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(Refusal::Malformed);
    };
    let (destination, path) = split_target(method, target)?;
    check_body(request.headers)?;
    let named = named_by_connection(request.headers)?;
    let mut head = format!(
        "{method} {path} HTTP/1.{version}\r\nHost: {}\r\n",
        authority(&destination)
    )
    .into_bytes();
    for field in request.headers.iter() {
        let is_named = named
            .iter()
            .any(|name| name.eq_ignore_ascii_case(field.name));
        if !is_one_of(field.name, &DROPPED) && !is_named {
            head.extend_from_slice(field.name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(field.value);
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(format!("Via: 1.{version} midspan\r\n").as_bytes());
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(Request {
        destination,
        to_server: head,
    })
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

/// A body whose end two readers could see in different places is refused (RFC 9112 §6.3).
fn check_body(fields: &[Header<'_>]) -> Result<(), Refusal> {
    let values = |name: &'static str| {
        fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value.trim_ascii())
    };
    let mut lengths = values("content-length");
    let first = lengths.next();
    let is_number = |value: &[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let is_plain = first.is_none_or(is_number) && lengths.all(|other| Some(other) == first);
    let codings = values("transfer-encoding").count();
    match is_plain && codings <= 1 && (first.is_none() || codings == 0) {
        true => Ok(()),
        false => Err(Refusal::Malformed),
    }
}

/// The fields that the client calls its connection's own.
fn named_by_connection<'a>(fields: &[Header<'a>]) -> Result<Vec<&'a str>, Refusal> {
    let mut named = Vec::new();
    for field in fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
    {
        let value = std::str::from_utf8(field.value).map_err(|_| Refusal::Malformed)?;
        named.extend(value.split(',').map(str::trim));
    }
    match named.iter().any(|name| is_one_of(name, &INDISPENSABLE)) {
        true => Err(Refusal::Malformed),
        false => Ok(named),
    }
}

fn is_one_of(name: &str, list: &[&str]) -> bool {
    list.iter().any(|one| one.eq_ignore_ascii_case(name))
}
