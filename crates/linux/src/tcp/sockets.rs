//! All TCP connections of a network namespace, each with its `TCP_INFO`, by sock_diag(7).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use super::Information;
use crate::nfnetlink::attributes;
use crate::socket_lists::{FAMILIES, Identity, NUMBERS, Question, find, list, open};

/// Bits of the states in which a connection may still send data: ESTABLISHED, FIN-WAIT-1,
/// CLOSE-WAIT, LAST-ACK, CLOSING (<net/tcp_states.h>).
const SENDING: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;
/// `INET_DIAG_INFO`: the attribute with `struct tcp_info`.
const INFORMATION: u16 = 2;

/// A connection.
#[derive(Debug, Clone, Copy)]
pub struct TcpSocket {
    /// Its own address and port.
    pub local: SocketAddr,
    /// Its peer's.
    pub remote: SocketAddr,
    /// The kernel's number of this socket, which no later socket has again.
    pub cookie: u64,
    /// The name by which it can be read again.
    pub name: SocketName,
    /// Its state.
    pub information: Information,
}

/// The kernel's name of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketName {
    family: u8,
    identity: Identity,
}

/// Lists the connections of one network namespace.
#[derive(Debug)]
pub struct TcpSockets(OwnedFd);

impl TcpSockets {
    /// For the network namespace of the calling thread. Needs no capability.
    ///
    /// # Errors
    /// Those of netlink(7).
    pub fn open() -> io::Result<Self> {
        open().map(Self)
    }

    /// Passes each connection that may still send data to `take`. May be called from any thread. The kernel
    /// goes through its whole table of connections twice, once for each family; the table also contains the
    /// connections of other namespaces. This takes a fraction of a millisecond, and about a microsecond more
    /// for each connection of this namespace, while the kernel holds the socket's lock.
    ///
    /// # Errors
    /// Those of netlink(7), also if the kernel has no `inet_diag`.
    pub fn each(&self, mut take: impl FnMut(TcpSocket)) -> io::Result<()> {
        for family in FAMILIES {
            list(&self.0, question(family), |identity, rest| {
                if let Some(socket) = read(family, identity, rest) {
                    take(socket);
                }
            })?;
        }
        Ok(())
    }

    /// Reads one connection, from any thread: some microseconds. `None` if it has ended.
    ///
    /// # Errors
    /// Those of netlink(7).
    pub fn read(&self, name: &SocketName) -> io::Result<Option<TcpSocket>> {
        let SocketName { family, identity } = name;
        find(&self.0, question(*family), identity, |rest| {
            read(*family, identity, rest)
        })
    }
}

const fn question(family: u8) -> Question {
    Question {
        family,
        states: SENDING,
        attributes: 1 << (INFORMATION - 1),
    }
}

/// `None` if the kernel gives no state, as for a connection whose handshake is incomplete.
fn read(family: u8, identity: &Identity, rest: &[u8]) -> Option<TcpSocket> {
    let (_, information) =
        attributes(rest.get(NUMBERS..)?).find(|(kind, _)| *kind == INFORMATION)?;
    let port = |at: usize| {
        Some(u16::from_be_bytes(
            identity.get(at..at + 2)?.try_into().ok()?,
        ))
    };
    let address = |at: usize| {
        let bytes: [u8; 16] = identity.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = bytes;
        Some(match family {
            2 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            // A socket for both versions has an IPv4 peer as a mapped address.
            _ => Ipv6Addr::from(bytes).to_canonical(),
        })
    };
    Some(TcpSocket {
        local: SocketAddr::new(address(4)?, port(0)?),
        remote: SocketAddr::new(address(20)?, port(2)?),
        cookie: u64::from_ne_bytes(identity.get(40..48)?.try_into().ok()?),
        name: SocketName {
            family,
            identity: *identity,
        },
        information: Information::from_bytes(information),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(local: [u8; 16], remote: [u8; 16]) -> Identity {
        let mut identity = [0; 48];
        identity[..4].copy_from_slice(&[0, 80, 0x9c, 0x40]);
        identity[4..20].copy_from_slice(&local);
        identity[20..36].copy_from_slice(&remote);
        identity[40..].copy_from_slice(&77_u64.to_ne_bytes());
        identity
    }

    fn rest() -> Vec<u8> {
        let mut rest = vec![0; NUMBERS];
        rest.extend([4 + 100, 0]);
        rest.extend(INFORMATION.to_ne_bytes());
        let mut information = [0; 100];
        information[80] = 42;
        rest.extend(information);
        rest
    }

    #[test]
    fn addresses_ports_and_state_are_read() {
        let four = |last| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&[10, 0, 0, last]);
            bytes
        };
        let socket = read(2, &identity(four(1), four(2)), &rest()).unwrap();
        assert_eq!(socket.local, "10.0.0.1:80".parse().unwrap());
        assert_eq!(socket.remote, "10.0.0.2:40000".parse().unwrap());
        assert_eq!(socket.cookie, 77);
        assert_eq!(socket.information.congestion_window(), 42);
        let mapped: Ipv6Addr = "::ffff:10.0.0.9".parse().unwrap();
        let six: Ipv6Addr = "fd77::1".parse().unwrap();
        let socket = read(10, &identity(mapped.octets(), six.octets()), &rest()).unwrap();
        assert_eq!(socket.local, "10.0.0.9:80".parse().unwrap());
        assert_eq!(socket.remote, "[fd77::1]:40000".parse().unwrap());
    }

    #[test]
    fn a_cut_message_is_no_socket() {
        let rest = rest();
        let identity = identity([0; 16], [0; 16]);
        for length in 0..rest.len() {
            assert!(read(2, &identity, &rest[..length]).is_none(), "{length}");
        }
    }
}
