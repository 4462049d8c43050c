//! The server that a client requests.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Longest name of a host (RFC 1035 §2.3.4), without the dot at its end.
const LONGEST_NAME: usize = 253;
/// Longest label of a name.
const LONGEST_LABEL: usize = 63;

/// A name that may be looked up: letters, digits, hyphens, underscores and dots, in lower case,
/// without a dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// A server's host: a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name to be looked up.
    Name(HostName),
    /// An address.
    Address(IpAddr),
}

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// TCP port, 1 to 65535.
    pub port: u16,
}

/// A text is not a valid destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidDestination {
    /// The host is neither an address nor a name that can be looked up.
    #[error("neither an address nor a host name")]
    Host,
    /// There is no port, or it is 0 or above 65535.
    #[error("a port between 1 and 65535 is missing")]
    Port,
}

impl HostName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`InvalidDestination::Host`] if the name has other characters, has an empty or too long label,
    /// is too long, or has only digits and dots (a mistyped address).
    pub fn new(text: &str) -> Result<Self, InvalidDestination> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=LONGEST_LABEL).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        // As for URLs (WHATWG URL, "ends in a number"): such a text was meant as an address.
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || last.starts_with("0x") && last.bytes().skip(2).all(|byte| byte.is_ascii_hexdigit());
        if name.len() > LONGEST_NAME || is_number || !name.split('.').all(is_label) {
            return Err(InvalidDestination::Host);
        }
        Ok(Self(name.to_ascii_lowercase()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Host {
    /// Reads an address, an address in brackets, or a name.
    ///
    /// # Errors
    /// [`InvalidDestination::Host`].
    pub fn new(text: &str) -> Result<Self, InvalidDestination> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(InvalidDestination::Host)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| InvalidDestination::Host)?;
            return Ok(Self::from(IpAddr::V6(address)));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        HostName::new(text).map(Self::Name)
    }
}

impl From<IpAddr> for Host {
    /// An IPv4-mapped IPv6 address becomes the IPv4 address, so that access rules have one form only.
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl Destination {
    /// A destination with this host and port.
    ///
    /// # Errors
    /// [`InvalidDestination::Port`] for port 0.
    pub fn new(host: Host, port: u16) -> Result<Self, InvalidDestination> {
        match port {
            0 => Err(InvalidDestination::Port),
            port => Ok(Self { host, port }),
        }
    }

    /// Reads `host:port`, as in HTTP's authority; without a port, `default_port`.
    ///
    /// # Errors
    /// No host, or no valid port and no default.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, InvalidDestination> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| InvalidDestination::Port)?
            }
            Some(_) => return Err(InvalidDestination::Port),
            None => default_port.ok_or(InvalidDestination::Port)?,
        };
        Self::new(Host::new(host)?, port)
    }

    /// The address, if it was given as one.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Address(address) => Some(SocketAddr::new(address, self.port)),
            Host::Name(_) => None,
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str, default_port: Option<u16>) -> Result<String, InvalidDestination> {
        Destination::parse(text, default_port).map(|destination| destination.to_string())
    }

    #[test]
    fn names_and_addresses_are_told_apart() {
        for (text, expected) in [
            ("Example.org:443", "example.org:443"),
            ("example.org.:443", "example.org:443"),
            ("a_b.example:1", "a_b.example:1"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
        ] {
            assert_eq!(printed(text, None).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(printed("[::1]", Some(80)).as_deref(), Ok("[::1]:80"));
        assert_eq!(printed("host", Some(80)).as_deref(), Ok("host:80"));
    }

    #[test]
    fn what_is_neither_is_refused() {
        use InvalidDestination as Invalid;
        for (text, expected) in [
            ("example.org", Invalid::Port),
            ("example.org:0", Invalid::Port),
            ("example.org:65536", Invalid::Port),
            ("example.org:+80", Invalid::Port),
            ("example.org:", Invalid::Port),
            (":80", Invalid::Host),
            ("2001:db8::1:80", Invalid::Host),
            ("[192.0.2.1]:80", Invalid::Host),
            ("[fe80::1%eth0]:80", Invalid::Host),
            ("192.0.2.256:80", Invalid::Host),
            ("0x7f000001:80", Invalid::Host),
            ("127.1:80", Invalid::Host),
            ("a..b:80", Invalid::Host),
            ("-a.b:80", Invalid::Host),
            ("user@host:80", Invalid::Host),
            ("a b:80", Invalid::Host),
            ("ä.example:80", Invalid::Host),
        ] {
            assert_eq!(printed(text, None), Err(expected), "{text}");
        }
        assert!(HostName::new(&"a".repeat(64)).is_err());
        assert!(HostName::new(&"a.".repeat(128)).is_err());
        assert!(HostName::new("").is_err());
    }
}
