//! Only one process at a time: a name that exists once per network namespace.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Takes an abstract socket name (unix(7)), which exists once per network namespace, as rules and
/// routing tables do, and goes with the process however that ends. `None` where it is taken.
pub(crate) fn claim(name: &str) -> Result<Option<OwnedFd>> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::ADDRINUSE) => Ok(None),
        Err(error) => Err(error),
    }
}
