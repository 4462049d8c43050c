//! The field `Forwarded` (RFC 7239): the client of a session.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use httparse::Header;

use crate::exchange::fields;

/// The client: the parameter `for` of the first element. `Ok(None)` if there is no such field, or the
/// client is hidden (`unknown`, or a name that begins with an underscore).
///
/// # Errors
/// `Err(())` if the field is malformed.
pub(super) fn client(fields: &[Header<'_>]) -> Result<Option<SocketAddr>, ()> {
    let Some(value) = fields::values(fields, "forwarded").next() else {
        return Ok(None);
    };
    let value = std::str::from_utf8(value).map_err(|_| ())?;
    let mut client = None;
    for pair in first_element(value)?.split(';') {
        let pair = pair.trim_matches([' ', '\t']);
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=').ok_or(())?;
        if name.eq_ignore_ascii_case("for") && client.replace(node(value)?).is_some() {
            return Err(());
        }
    }
    Ok(client.flatten())
}

/// The text up to the first comma outside of quotes. No parameter that is read has a quoted comma or
/// semicolon, so the parts in quotes need not be kept whole.
fn first_element(value: &str) -> Result<&str, ()> {
    let mut is_quoted = false;
    for (place, byte) in value.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            // An escape occurs in no address.
            b'\\' => return Err(()),
            b',' | b';' if is_quoted => return Err(()),
            b',' => return Ok(&value[..place]),
            _ => {}
        }
    }
    match is_quoted {
        true => Err(()),
        false => Ok(value),
    }
}

/// `192.0.2.1`, `"192.0.2.1:80"`, `"[2001:db8::1]"`, `"[2001:db8::1]:80"`, `unknown`, `_hidden`. A
/// client without a port has port 0.
fn node(value: &str) -> Result<Option<SocketAddr>, ()> {
    let value = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').ok_or(())?,
        None => value,
    };
    if let Ok(address) = value.parse::<SocketAddr>() {
        return Ok(Some(super::plain(address)));
    }
    let (host, port) = match value.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (value, None),
    };
    // The port may be hidden, too.
    if port.is_some_and(|port| !is_hidden(port)) {
        return Err(());
    }
    let address = match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or(())?;
            inner.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| ())?
        }
        None if host.eq_ignore_ascii_case("unknown") || is_hidden(host) => return Ok(None),
        None => IpAddr::V4(host.parse().map_err(|_| ())?),
    };
    Ok(Some(super::plain(SocketAddr::new(address, 0))))
}

fn is_hidden(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() > 1 && text.starts_with('_') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Option<String>, ()> {
        let field = Header {
            name: "Forwarded",
            value: value.as_bytes(),
        };
        client(&[field]).map(|client| client.map(|client| client.to_string()))
    }

    #[test]
    fn the_first_client_counts() {
        for (value, expected) in [
            ("for=192.0.2.1", Some("192.0.2.1:0")),
            ("For=\"192.0.2.1:80\"", Some("192.0.2.1:80")),
            ("for=\"[2001:db8::7]\"", Some("[2001:db8::7]:0")),
            (
                "for=\"[2001:db8::7]:1\";proto=http",
                Some("[2001:db8::7]:1"),
            ),
            (
                "by=10.0.0.1; for=192.0.2.1, for=192.0.2.2",
                Some("192.0.2.1:0"),
            ),
            ("for=\"[::ffff:192.0.2.1]:5\"", Some("192.0.2.1:5")),
            ("for=\"192.0.2.1:_port\"", Some("192.0.2.1:0")),
            ("for=unknown", None),
            ("for=_secret", None),
            ("for=\"_secret:_port\"", None),
            ("proto=http", None),
            ("", None),
        ] {
            assert_eq!(read(value), Ok(expected.map(str::to_owned)), "{value}");
        }
        assert_eq!(client(&[]), Ok(None));
    }

    #[test]
    fn malformed_clients_are_errors() {
        for value in [
            "for",
            "for=",
            "for=x",
            "for=\"192.0.2.1",
            "for=192.0.2.1:99999",
            "for=192.0.2.256",
            "for=[2001:db8::7",
            "for=\"2001:db8::7\"",
            "for=192.0.2.1;for=192.0.2.2",
            "for=\"192.0.2.1\\\"\"",
            "for=\"a,b\"",
            "for=_",
        ] {
            assert_eq!(read(value), Err(()), "{value}");
        }
    }
}
