//! The PROXY protocol, versions 1 (text) and 2 (binary): a proxy in front names the client of a
//! connection. Specification: HAProxy's `proxy-protocol.txt`.

use std::net::SocketAddr;

use ppp::{PartialResult, v1, v2};

/// Longest header that is read. Version 1 needs at most 107 bytes. Version 2 usually needs far less than this
/// limit; the rest is room for extensions.
pub const LONGEST: usize = 4096;
/// Longest header of version 1, including its line end.
const LONGEST_TEXT: usize = 107;

/// The beginning of a header of version 1.
const TEXT_START: &[u8] = b"PROXY ";

/// The form of the header to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// This client, which had connected to this server.
    Proxied {
        /// The client.
        client: SocketAddr,
        /// The server.
        server: SocketAddr,
    },
    /// The sender itself (a health check), or a connection without such addresses: the connection's
    /// own addresses apply.
    Local,
}

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// More bytes are needed.
    More,
    /// A header of this many bytes.
    Complete(Header, usize),
    /// Not a header, or a broken one.
    Malformed,
}

/// Reads the first bytes of a connection.
#[must_use]
pub fn read(input: &[u8]) -> Reading {
    let complete = if input.first() == TEXT_START.first() {
        let seen = input.get(..LONGEST_TEXT).unwrap_or(input);
        let known = seen.len().min(TEXT_START.len());
        // Only a whole line is parsed: a partial line cannot be checked.
        match seen.windows(2).position(|pair| pair == b"\r\n") {
            Some(end) if seen[..end].iter().all(|byte| (b' '..=b'~').contains(byte)) => {
                let header = v1::Header::try_from(&seen[..end + 2]).ok();
                header.map(|header| (text(&header), end + 2))
            }
            Some(_) => None,
            None if seen.len() < LONGEST_TEXT && seen.starts_with(&TEXT_START[..known]) => {
                return Reading::More;
            }
            None => None,
        }
    } else {
        let seen = input.get(..LONGEST).unwrap_or(input);
        let header = v2::Header::try_from(seen);
        if header.is_incomplete() && seen.len() < LONGEST {
            return Reading::More;
        }
        header.ok().and_then(|header| binary(&header))
    };
    complete.map_or(Reading::Malformed, |(header, length)| {
        Reading::Complete(header, length)
    })
}

fn text(header: &v1::Header<'_>) -> Header {
    match header.addresses {
        v1::Addresses::Tcp4(of) => proxied(
            (of.source_address, of.source_port).into(),
            (of.destination_address, of.destination_port).into(),
        ),
        v1::Addresses::Tcp6(of) => proxied(
            (of.source_address, of.source_port).into(),
            (of.destination_address, of.destination_port).into(),
        ),
        v1::Addresses::Unknown => Header::Local,
    }
}

fn binary(header: &v2::Header<'_>) -> Option<(Header, usize)> {
    let content = match (header.command, header.protocol, header.addresses) {
        (v2::Command::Local, _, _) => Header::Local,
        (_, v2::Protocol::Stream, v2::Addresses::IPv4(of)) => proxied(
            (of.source_address, of.source_port).into(),
            (of.destination_address, of.destination_port).into(),
        ),
        (_, v2::Protocol::Stream, v2::Addresses::IPv6(of)) => proxied(
            (of.source_address, of.source_port).into(),
            (of.destination_address, of.destination_port).into(),
        ),
        (_, _, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => Header::Local,
        (_, v2::Protocol::Unspecified | v2::Protocol::Datagram, _) => return None,
    };
    Some((content, header.len()))
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address, so that access rules have one form only.
fn proxied(client: SocketAddr, server: SocketAddr) -> Header {
    let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port()).into();
    Header::Proxied {
        client: canonical(client),
        server: canonical(server),
    }
}

/// The header that names a connection's client to a server. Addresses of different families are both
/// written as IPv6.
#[must_use]
pub fn write(version: Version, client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let (client, server) = one_family(client, server);
    match version {
        Version::V1 => {
            let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
            let (source, destination) = (client.ip(), server.ip());
            let (from, to) = (client.port(), server.port());
            format!("PROXY {family} {source} {destination} {from} {to}\r\n").into_bytes()
        }
        Version::V2 => v2::Builder::with_addresses(
            v2::Version::Two | v2::Command::Proxy,
            v2::Protocol::Stream,
            (client, server),
        )
        .build()
        // It fails only if the content is above 64 KiB.
        .unwrap_or_default(),
    }
}

fn one_family(client: SocketAddr, server: SocketAddr) -> (SocketAddr, SocketAddr) {
    if client.is_ipv4() == server.is_ipv4() {
        return (client, server);
    }
    let mapped = |address: SocketAddr| match address {
        SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), address.port()).into(),
        SocketAddr::V6(_) => address,
    };
    (mapped(client), mapped(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The examples of the specification (§2.1), and headers that must not pass.
    #[test]
    fn text_is_read() {
        let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET";
        let expected = Header::Proxied {
            client: address("192.168.0.1:56324"),
            server: address("192.168.0.11:443"),
        };
        assert_eq!(read(line), Reading::Complete(expected, line.len() - 3));
        for length in 0..line.len() - 3 {
            assert_eq!(read(&line[..length]), Reading::More, "{length} bytes");
        }
        let unknown = b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n";
        assert_eq!(
            read(unknown),
            Reading::Complete(Header::Local, unknown.len())
        );
        for wrong in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 1.2.3.4 1.2.3.4 99999 1\r\n",
            b"PROXY TCP4 ::1 ::2 1 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n",
            b"PROXY\r\n",
            &[b'P'; LONGEST + 1],
            b"PQ",
            b"PROXY UNKNOWN 1\n\r2\r\n",
        ] {
            let text = String::from_utf8_lossy(wrong);
            assert_eq!(read(wrong), Reading::Malformed, "{text}");
        }
        let mut endless = b"PROXY TCP4 1.2.3.4 ".to_vec();
        endless.resize(LONGEST_TEXT, b' ');
        assert_eq!(read(&endless), Reading::Malformed);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (client, server) in [
            ("192.0.2.1:1024", "198.51.100.1:80"),
            ("[2001:db8::1]:1024", "[2001:db8::2]:80"),
            ("192.0.2.1:1024", "[2001:db8::2]:80"),
        ] {
            for version in [Version::V1, Version::V2] {
                let (client, server) = (address(client), address(server));
                let bytes = write(version, client, server);
                let expected = Header::Proxied { client, server };
                assert_eq!(read(&bytes), Reading::Complete(expected, bytes.len()));
                for length in 0..bytes.len() {
                    assert_eq!(read(&bytes[..length]), Reading::More, "{length} bytes");
                }
            }
        }
    }

    /// The bytes of §2.2, by hand.
    #[test]
    fn binary_is_as_specified() {
        let bytes = write(
            Version::V2,
            address("192.0.2.1:258"),
            address("192.0.2.2:772"),
        );
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        expected.extend([192, 0, 2, 1, 192, 0, 2, 2, 1, 2, 3, 4]);
        assert_eq!(bytes, expected);
        // LOCAL, as a health check sends it.
        let mut local = expected.clone();
        local[12] = 0x20;
        assert_eq!(read(&local), Reading::Complete(Header::Local, 28));
        // The header of a datagram.
        let mut datagram = expected.clone();
        datagram[13] = 0x12;
        assert_eq!(read(&datagram), Reading::Malformed);
        // Longer than the limit.
        let mut long = expected;
        long[14..16].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(read(&long), Reading::More);
        long.resize(LONGEST, 0);
        assert_eq!(read(&long), Reading::Malformed);
    }
}
