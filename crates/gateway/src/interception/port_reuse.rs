//! Clients that use a port again while a socket of the port's last connection is in TIME-WAIT on
//! this machine.
//!
//! The statement `tproxy` removes a socket in TIME-WAIT for a SYN with the same addresses, if it
//! finds a listening socket at the port to which it leads (`nf_tproxy_handle_time_wait4` of the
//! kernel). It then gives the SYN to the listening socket only if that socket is transparent. The
//! sockets of this module listen and are not transparent. Therefore the socket in TIME-WAIT is
//! removed, and the SYN continues through the rules as the SYN of every other new connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The ports of the listening sockets, for the rules. A family without socket has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReusePorts {
    /// Port on 127.0.0.1.
    pub ipv4: Option<u16>,
    /// Port on ::1.
    pub ipv6: Option<u16>,
}

/// The listening sockets. No program accepts connections from them, and each has room for one
/// connection; only programs of this machine could open it.
#[derive(Debug, Default)]
pub struct ReuseSockets {
    ipv4: Option<Listening>,
    ipv6: Option<Listening>,
}

#[derive(Debug)]
struct Listening {
    _socket: OwnedFd,
    port: u16,
}

impl ReusePorts {
    /// Invented ports, for rules that are only shown.
    pub const EXAMPLE: Self = Self {
        ipv4: Some(40_001),
        ipv6: Some(40_001),
    };
}

impl ReuseSockets {
    /// Opens the sockets that are not open yet. A family that is switched off has no socket; the
    /// next call tries again.
    pub fn open_missing(&mut self) {
        for (socket, address) in [
            (&mut self.ipv4, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            (&mut self.ipv6, IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ] {
            if socket.is_none() {
                *socket = listen(SocketAddr::new(address, 0)).ok();
            }
        }
    }

    /// The ports of the sockets that are open.
    pub fn ports(&self) -> ReusePorts {
        let port = |socket: &Option<Listening>| socket.as_ref().map(|socket| socket.port);
        ReusePorts {
            ipv4: port(&self.ipv4),
            ipv6: port(&self.ipv6),
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<Listening> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 0)?;
    let own = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok(Listening {
        _socket: socket,
        port: own.port(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_stay_the_same() {
        let mut sockets = ReuseSockets::default();
        assert_eq!(sockets.ports(), ReusePorts::default());
        sockets.open_missing();
        let ports = sockets.ports();
        assert!(ports.ipv4.is_some_and(|port| port > 0));
        sockets.open_missing();
        assert_eq!(sockets.ports(), ports);
    }
}
