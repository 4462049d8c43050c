//! Sockets with addresses of other hosts (`IP_TRANSPARENT` of ip(7)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::SockRef;

/// Lets the socket be bound to addresses of other hosts, of the family of `address`, and be given
/// their connections by a `tproxy` rule; accepted sockets inherit it.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN` (or `CAP_NET_RAW`) of the network namespace.
pub fn set_transparent(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    let socket = socket.as_fd();
    let socket = SockRef::from(&socket);
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    }
}
