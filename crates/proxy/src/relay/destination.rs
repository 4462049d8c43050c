//! Where an accepted connection goes, and how far it is on its way.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::LegStart;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::settings::Destination;
use crate::gate::{self, Connection, ServerLeg};

/// How the server leg of a session comes about.
#[derive(Debug)]
pub enum Way {
    /// It is to be opened, from an address of this machine.
    New,
    /// It is to be opened, from the client's address; with the host's part of the mark.
    AsClient(u32),
    /// It is connected already.
    Connected(OwnedFd),
}

/// The server that the client on this socket wants, and the way there; `None` where that would
/// be this listener itself.
pub fn find(
    destination: &Destination,
    client: &OwnedFd,
    address: SocketAddr,
) -> Option<(SocketAddr, Way)> {
    let openings = match destination {
        Destination::Fixed(server) => return Some((*server, Way::New)),
        Destination::Original(openings) => openings,
    };
    // A transparent listener's socket has the address that the client called.
    let server: SocketAddr = rustix::net::getsockname(client).ok()?.try_into().ok()?;
    // Its own address is on loopback, where no rule leads anybody.
    if server.ip().is_loopback() {
        return None;
    }
    let connection = Connection {
        client: address,
        server,
    };
    let way = match openings.take(connection) {
        Some(released) => released
            .server
            .map_or(Way::AsClient(released.mark), Way::Connected),
        None => Way::AsClient(0),
    };
    Some((server, way))
}

/// A server leg that has been called, or is connected. `start` is what it is set to if it is
/// new.
///
/// # Errors
/// Those of `socket(2)`, `bind(2)`, `connect(2)`.
pub fn call(
    way: Way,
    connection: Connection,
    mark: u32,
    start: LegStart,
    set_up: impl FnOnce(&OwnedFd, &LegStart) -> u64,
) -> rustix::io::Result<(OwnedFd, u64)> {
    match way {
        Way::Connected(server) => Ok((server, 0)),
        Way::AsClient(host_mark) => {
            let leg = ServerLeg { mark, start };
            let calling = gate::call(connection, host_mark, &leg)?;
            Ok((calling.socket, calling.option_errors))
        }
        Way::New => {
            let family = match connection.server {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let flags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
            let server = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            let errors = set_up(&server, &start);
            match rustix::net::connect(&server, &connection.server) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok((server, errors)),
                Err(error) => Err(error),
            }
        }
    }
}
