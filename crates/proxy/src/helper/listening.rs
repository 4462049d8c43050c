//! Listening sockets, one for each thread of the relay.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use midspan_linux::tcp::{self, LegError};
use midspan_policy::LegStart;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::configuration::{Listener, Mode};

/// Connections that wait to be accepted; the kernel takes at most `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Why a listener cannot listen.
#[derive(Debug, Error)]
pub(super) enum ListenError {
    #[error("{0} is in use by another program (ss -tlnp shows which)")]
    InUse(SocketAddr),
    #[error(
        "port {0} needs root or CAP_NET_BIND_SERVICE: use a port from 1024 on, or give the \
         program the capability (setcap cap_net_bind_service+ep)"
    )]
    PrivilegedPort(u16),
    #[error("{0} is no address of this machine (ip address shows them)")]
    NotLocal(IpAddr),
    #[error(
        "a transparent listener needs CAP_NET_ADMIN: run as root, or give the program the \
         capability (setcap cap_net_admin,cap_net_raw+ep)"
    )]
    NotTransparent,
    #[error("cannot listen on {address}: {source}")]
    Io {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Leg(#[from] LegError),
}

/// The sockets of a listener, of one address.
#[derive(Debug)]
pub(super) struct Listening<'a> {
    /// The listener.
    pub listener: &'a Listener,
    /// Where its sockets listen.
    pub address: SocketAddr,
    /// One for each thread.
    pub sockets: Vec<OwnedFd>,
}

/// Opens all sockets of a listener, `count` for each address. They share the address
/// (`SO_REUSEPORT`): the kernel spreads connections over them. `mark` is inherited by accepted
/// connections.
pub(super) fn open(
    listener: &Listener,
    mark: Option<u32>,
    count: usize,
) -> Result<Vec<Listening<'_>>, ListenError> {
    match &listener.mode {
        Mode::Forward(forward) => {
            let place = Place {
                listener,
                address: forward.listen,
                is_transparent: false,
            };
            place.refuse_if_in_use()?;
            Ok(vec![place.open(mark, count)?])
        }
        Mode::Transparent(transparent) => {
            // Only rules lead here; whoever else calls these addresses is refused.
            let four = transparent.ipv4.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let six = transparent.ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
            let open = |address| {
                let place = Place {
                    listener,
                    address: SocketAddr::new(address, 0),
                    is_transparent: true,
                };
                place.open(mark, count)
            };
            four.into_iter().chain(six).map(open).collect()
        }
    }
}

/// An address to listen at.
struct Place<'a> {
    listener: &'a Listener,
    /// With port 0, the kernel chooses one.
    address: SocketAddr,
    is_transparent: bool,
}

impl<'a> Place<'a> {
    /// With `SO_REUSEPORT` alone, two programs of one user would share the connections unnoticed.
    fn refuse_if_in_use(&self) -> Result<(), ListenError> {
        let probe = self.socket()?;
        self.bind(&probe)?;
        probe.listen(1).map_err(self.failed())
    }

    fn open(mut self, mark: Option<u32>, count: usize) -> Result<Listening<'a>, ListenError> {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = self.open_one(mark)?;
            let address = socket.local_addr().map_err(self.failed())?;
            // The first has chosen the port for all.
            self.address = address.as_socket().unwrap_or(self.address);
            sockets.push(socket.into());
        }
        Ok(Listening {
            listener: self.listener,
            address: self.address,
            sockets,
        })
    }

    fn open_one(&self, mark: Option<u32>) -> Result<Socket, ListenError> {
        let socket = self.socket()?;
        socket.set_reuse_port(true).map_err(self.failed())?;
        socket.set_nonblocking(true).map_err(self.failed())?;
        if self.is_transparent {
            tcp::set_transparent(&socket, self.address).map_err(self.failed())?;
        }
        if let Some(mark) = mark {
            tcp::set_mark(&socket, mark).map_err(self.failed())?;
        }
        tcp::apply_before_listen(&socket, &LegStart::from(&self.listener.session.client))?;
        self.bind(&socket)?;
        socket.listen(BACKLOG).map_err(self.failed())?;
        Ok(socket)
    }

    fn socket(&self) -> Result<Socket, ListenError> {
        let domain = Domain::for_address(self.address);
        let socket =
            Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(self.failed())?;
        if self.address.is_ipv6() {
            // "[::]" and "0.0.0.0" are two listeners, whatever net.ipv6.bindv6only says.
            socket.set_only_v6(true).map_err(self.failed())?;
        }
        // Connections of an earlier run that wait out their last minute do not block the address.
        socket.set_reuse_address(true).map_err(self.failed())?;
        Ok(socket)
    }

    fn bind(&self, socket: &Socket) -> Result<(), ListenError> {
        let address = self.address;
        socket
            .bind(&address.into())
            .map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => ListenError::InUse(address),
                io::ErrorKind::AddrNotAvailable => ListenError::NotLocal(address.ip()),
                io::ErrorKind::PermissionDenied => ListenError::PrivilegedPort(address.port()),
                _ => self.failed()(error),
            })
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> ListenError + use<> {
        let address = self.address;
        let is_transparent = self.is_transparent;
        move |source| match source.kind() {
            // Two sockets may be bound alike before one of them listens.
            io::ErrorKind::AddrInUse => ListenError::InUse(address),
            io::ErrorKind::PermissionDenied if is_transparent => ListenError::NotTransparent,
            _ => ListenError::Io { address, source },
        }
    }
}
