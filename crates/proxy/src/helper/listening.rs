//! Listening sockets, one for each thread of the relay.

use std::io;
use std::os::fd::OwnedFd;

use midspan_linux::tcp::{self, LegError};
use midspan_policy::LegStart;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use crate::configuration::Listener;

/// Connections that wait to be accepted; the kernel takes at most `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Why a listener cannot listen.
#[derive(Debug, Error)]
pub(super) enum ListenError {
    #[error("{0} is in use by another program (ss -tlnp shows which)")]
    InUse(std::net::SocketAddr),
    #[error(
        "port {0} needs root or CAP_NET_BIND_SERVICE: use a port from 1024 on, or give the \
         program the capability (setcap cap_net_bind_service+ep)"
    )]
    PrivilegedPort(u16),
    #[error("{0} is no address of this machine (ip address shows them)")]
    NotLocal(std::net::IpAddr),
    #[error("cannot listen on {address}: {source}")]
    Io {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Leg(#[from] LegError),
}

/// Opens `count` sockets that share the listener's address (`SO_REUSEPORT`): the kernel spreads
/// connections over them. `mark` is inherited by accepted connections.
pub(super) fn open(
    listener: &Listener,
    mark: Option<u32>,
    count: usize,
) -> Result<Vec<OwnedFd>, ListenError> {
    refuse_if_in_use(listener)?;
    (0..count).map(|_| open_one(listener, mark)).collect()
}

/// With `SO_REUSEPORT` alone, two programs of one user would share the connections unnoticed.
fn refuse_if_in_use(listener: &Listener) -> Result<(), ListenError> {
    let probe = socket(listener)?;
    bind(&probe, listener)?;
    probe.listen(1).map_err(failed(listener))
}

fn open_one(listener: &Listener, mark: Option<u32>) -> Result<OwnedFd, ListenError> {
    let socket = socket(listener)?;
    socket.set_reuse_port(true).map_err(failed(listener))?;
    socket.set_nonblocking(true).map_err(failed(listener))?;
    if let Some(mark) = mark {
        tcp::set_mark(&socket, mark).map_err(failed(listener))?;
    }
    tcp::apply_before_listen(&socket, &LegStart::from(&listener.session.client))?;
    bind(&socket, listener)?;
    socket.listen(BACKLOG).map_err(failed(listener))?;
    Ok(socket.into())
}

fn socket(listener: &Listener) -> Result<Socket, ListenError> {
    let address = listener.listen;
    let domain = Domain::for_address(address);
    let socket =
        Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(failed(listener))?;
    if address.is_ipv6() {
        // "[::]" and "0.0.0.0" are two listeners, whatever net.ipv6.bindv6only says.
        socket.set_only_v6(true).map_err(failed(listener))?;
    }
    // Connections of an earlier run that wait out their last minute do not block the address.
    socket.set_reuse_address(true).map_err(failed(listener))?;
    Ok(socket)
}

fn bind(socket: &Socket, listener: &Listener) -> Result<(), ListenError> {
    let address = listener.listen;
    socket
        .bind(&address.into())
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse(address),
            io::ErrorKind::AddrNotAvailable => ListenError::NotLocal(address.ip()),
            io::ErrorKind::PermissionDenied => ListenError::PrivilegedPort(address.port()),
            _ => failed(listener)(error),
        })
}

fn failed(listener: &Listener) -> impl FnOnce(io::Error) -> ListenError {
    let address = listener.listen;
    move |source| match source.kind() {
        // Two sockets may be bound alike before one of them listens.
        io::ErrorKind::AddrInUse => ListenError::InUse(address),
        _ => ListenError::Io { address, source },
    }
}
