//! The own address of a socket: that of another host (`IP_TRANSPARENT` of ip(7)), or one of this
//! machine without a port (`IP_BIND_ADDRESS_NO_PORT`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::SockRef;

use super::raw;

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

/// Lets `bind(2)` to an address with port 0 choose no port: `connect(2)` chooses one that is free for
/// the server, so that each server has all ports of the address. The option is the same for IPv6.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    raw::set_option(
        socket.as_fd(),
        libc::IPPROTO_IP,
        libc::IP_BIND_ADDRESS_NO_PORT,
        &1_i32.to_ne_bytes(),
    )
}
