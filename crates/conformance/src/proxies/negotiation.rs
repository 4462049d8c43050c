//! What clients send to explicit proxies, and what servers receive from a proxy before any data.
//!
//! Written from the specifications, without Midspan's parsers: RFC 1928 and 1929, RFC 9110 (9.3.6),
//! HAProxy's `proxy-protocol.txt`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::Socket;

use super::Unconnected;
use crate::network::Family;

/// Name and password of the SOCKS5 proxy's user.
pub const USER: (&str, &str) = ("alice", "secret");

/// Longest accepted answer of an HTTP proxy, in bytes.
const LONGEST_HEAD: usize = 4096;

/// The first bytes of a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Requests a connection to this address from a SOCKS5 proxy, with name and password.
pub fn by_socks5(mut socket: &Socket, to: SocketAddr) -> Result<(), Unconnected> {
    bound(socket)?;
    socket.write_all(&[5, 1, 2])?;
    expect(socket, [5, 2])?;
    let mut login = vec![1];
    for text in [USER.0, USER.1] {
        login.push(u8::try_from(text.len()).map_err(|_| wrong("a name too long"))?);
        login.extend(text.as_bytes());
    }
    socket.write_all(&login)?;
    expect(socket, [1, 0])?;
    let mut request = vec![5, 1, 0];
    match to.ip() {
        IpAddr::V4(four) => {
            request.push(1);
            request.extend(four.octets());
        }
        IpAddr::V6(six) => {
            request.push(4);
            request.extend(six.octets());
        }
    }
    request.extend(to.port().to_be_bytes());
    socket.write_all(&request)?;
    let [_, reply, _, kind] = take::<4>(socket)?;
    match kind {
        1 => drop(take::<6>(socket)?),
        4 => drop(take::<18>(socket)?),
        _ => return Err(wrong("a reply of SOCKS5").into()),
    }
    Err(Unconnected::Error(match reply {
        0 => return Ok(()),
        2 => Errno::ACCESS,
        3 => Errno::NETUNREACH,
        4 => Errno::HOSTUNREACH,
        5 => Errno::CONNREFUSED,
        // "TTL expired": proxies use this code for a time-out.
        6 => Errno::TIMEDOUT,
        other => return Err(Unconnected::Status(other.into())),
    }))
}

/// Requests a tunnel to this address from an HTTP proxy.
pub fn by_http(mut socket: &Socket, to: SocketAddr) -> Result<(), Unconnected> {
    bound(socket)?;
    socket.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())?;
    // Read byte by byte, because the bytes behind the head come from the server.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > LONGEST_HEAD {
            return Err(wrong("an answer of HTTP").into());
        }
        head.extend(take::<1>(socket)?);
    }
    let head = String::from_utf8_lossy(&head);
    let status = head
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    match status.and_then(|status| status.parse().ok()) {
        Some(200) => Ok(()),
        Some(403) => Err(Unconnected::Error(Errno::ACCESS)),
        Some(504) => Err(Unconnected::Error(Errno::TIMEDOUT)),
        Some(other) => Err(Unconnected::Status(other)),
        None => Err(wrong("a status of HTTP").into()),
    }
}

/// Sends a header of version 1 of the PROXY protocol, with the addresses of a client and a server.
pub fn send_header(mut socket: &Socket, family: Family) -> Result<(), Unconnected> {
    let name = match family {
        Family::V4 => "TCP4",
        Family::V6 => "TCP6",
    };
    let (from, to) = header_addresses(family);
    let line = format!(
        "PROXY {name} {} {} {} {}\r\n",
        from.ip(),
        to.ip(),
        from.port(),
        to.port()
    );
    Ok(socket.write_all(line.as_bytes())?)
}

/// Reads a header of version 2. Its addresses must be those that the proxy received by
/// [`send_header`].
pub fn read_header(socket: &Socket, family: Family) -> io::Result<()> {
    let start = take::<16>(socket)?;
    let length = u16::from_be_bytes([start[14], start[15]]);
    // Version 2, `PROXY`; TCP over IPv4 or IPv6.
    let is_known = match family {
        Family::V4 => start[12..14] == [0x21, 0x11] && length == 12,
        Family::V6 => start[12..14] == [0x21, 0x21] && length == 36,
    };
    if !start.starts_with(SIGNATURE) || !is_known {
        return Err(wrong("a header of the PROXY protocol"));
    }
    let addresses: (IpAddr, IpAddr) = match family {
        Family::V4 => (take::<4>(socket)?.into(), take::<4>(socket)?.into()),
        Family::V6 => (take::<16>(socket)?.into(), take::<16>(socket)?.into()),
    };
    let ports = [take::<2>(socket)?, take::<2>(socket)?].map(u16::from_be_bytes);
    let received = (
        SocketAddr::new(addresses.0, ports[0]),
        SocketAddr::new(addresses.1, ports[1]),
    );
    match received == header_addresses(family) {
        true => Ok(()),
        false => Err(wrong("the addresses of the PROXY protocol")),
    }
}

/// The client's and the server's address in the headers. No host has these addresses, so the proxy
/// can only have them from the header.
fn header_addresses(family: Family) -> (SocketAddr, SocketAddr) {
    let (client, server): (IpAddr, IpAddr) = match family {
        Family::V4 => (
            Ipv4Addr::new(192, 0, 2, 77).into(),
            Ipv4Addr::new(198, 51, 100, 77).into(),
        ),
        Family::V6 => (
            Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x77).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0x77).into(),
        ),
    };
    (SocketAddr::new(client, 4242), SocketAddr::new(server, 443))
}

/// If the socket has no time limit for reading, sets the limit for connecting.
fn bound(socket: &Socket) -> io::Result<()> {
    match socket.read_timeout()? {
        Some(_) => Ok(()),
        None => socket.set_read_timeout(socket.write_timeout()?),
    }
}

fn take<const N: usize>(mut socket: &Socket) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn expect<const N: usize>(socket: &Socket, expected: [u8; N]) -> io::Result<()> {
    match take::<N>(socket)? == expected {
        true => Ok(()),
        false => Err(wrong("an answer of SOCKS5")),
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is wrong"))
}
