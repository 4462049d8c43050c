//! What clients say to explicit proxies, and what servers hear from them before any data.
//!
//! Written from the specifications, and not with the parsers of Midspan: RFC 1928 and 1929,
//! RFC 9110 (9.3.6), HAProxy's `proxy-protocol.txt`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use socket2::Socket;

use super::Unconnected;
use crate::network::Family;

/// Who may use the SOCKS5 proxy, and the password.
pub const USER: (&str, &str) = ("alice", "secret");

/// Longest answer of an HTTP proxy.
const LONGEST_HEAD: usize = 4096;

/// What a header of version 2 begins with.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Asks a SOCKS5 proxy, with name and password, for a connection to this address.
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
        // "TTL expired", which proxies use for a time-out.
        6 => Errno::TIMEDOUT,
        other => return Err(Unconnected::Told(other.into())),
    }))
}

/// Asks an HTTP proxy for a tunnel to this address.
pub fn by_http(mut socket: &Socket, to: SocketAddr) -> Result<(), Unconnected> {
    bound(socket)?;
    socket.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes())?;
    // Byte by byte: what follows the head is the server's.
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
        Some(other) => Err(Unconnected::Told(other)),
        None => Err(wrong("a status of HTTP").into()),
    }
}

/// Tells a proxy whose connection this is, by version 1 of the PROXY protocol.
pub fn tell_whose(mut socket: &Socket, family: Family) -> Result<(), Unconnected> {
    let name = match family {
        Family::V4 => "TCP4",
        Family::V6 => "TCP6",
    };
    let (from, to) = told(family);
    let line = format!(
        "PROXY {name} {} {} {} {}\r\n",
        from.ip(),
        to.ip(),
        from.port(),
        to.port()
    );
    Ok(socket.write_all(line.as_bytes())?)
}

/// Hears, by version 2, whose connection it is: it must be what the proxy was told.
pub fn hear_whose(socket: &Socket, family: Family) -> io::Result<()> {
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
    let heard = (
        SocketAddr::new(addresses.0, ports[0]),
        SocketAddr::new(addresses.1, ports[1]),
    );
    match heard == told(family) {
        true => Ok(()),
        false => Err(wrong("the addresses of the PROXY protocol")),
    }
}

/// Client and server as they are told: nobody's addresses here, so that they can only come from
/// what was told.
fn told(family: Family) -> (SocketAddr, SocketAddr) {
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

/// An answer takes no longer than a connection may where there is no other limit.
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
