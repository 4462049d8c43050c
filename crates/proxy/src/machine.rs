//! What only the running machine can tell.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Whether this is an address of this machine.
///
/// Towards an address of its own the kernel sends from that very address; towards 127.0.0.9 from
/// 127.0.0.1. Nothing is sent here.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(SocketAddr::new(address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    address.is_loopback() || source().is_ok_and(|source| source == address)
}
