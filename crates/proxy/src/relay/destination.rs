//! Where an accepted connection goes, and how far it is on its way.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{Handshake, LegStart};
use midspan_units::TimeSpan;
use rustix::io::Errno;

use super::limits::Seat;
use super::settings::Destination;
use super::system;
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

/// What a client wants of a listener.
#[derive(Debug)]
pub struct Wanted {
    /// The server.
    pub server: SocketAddr,
    /// The way there.
    pub way: Way,
    /// How long the client has waited already.
    pub waited: TimeSpan,
    /// How the client's SYN was answered.
    pub handshake: Handshake,
    /// The gate has asked the policy already; give up connecting after this time.
    pub admitted: Option<Option<TimeSpan>>,
    /// Its place among the sessions, if the gate has taken one.
    pub seat: Option<Seat>,
    /// How the client's leg has begun, where the gate has chosen it.
    pub start: Option<LearnedStart>,
}

/// Whether the access rules let a client in, where they are asked before it is spoken with.
pub fn admits(destination: &Destination, client: SocketAddr) -> bool {
    match destination {
        Destination::Negotiated(negotiator) => negotiator.settings.access.admits(client.ip()),
        Destination::Fixed(_) | Destination::Original(_) => true,
    }
}

/// The server that the client on this socket wants, and the way there; `None` where that would
/// be this listener itself.
pub fn find(destination: &Destination, client: &OwnedFd, address: SocketAddr) -> Option<Wanted> {
    let openings = match destination {
        Destination::Fixed(server) => {
            return Some(Wanted {
                server: *server,
                way: Way::New,
                waited: TimeSpan::ZERO,
                handshake: Handshake::Early,
                admitted: None,
                seat: None,
                start: None,
            });
        }
        Destination::Negotiated(negotiator) => {
            // Only where nothing is to be said.
            let server = negotiator.settings.silent()?;
            let access = &negotiator.settings.access;
            let is_allowed = access.admits(address.ip())
                && access.allows(address.ip(), server, crate::machine::is_own);
            return is_allowed.then_some(Wanted {
                server,
                way: Way::New,
                waited: TimeSpan::ZERO,
                handshake: Handshake::Early,
                admitted: None,
                seat: None,
                start: None,
            });
        }
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
    let (way, waited, handshake, admitted, seat, start) = match openings.take(connection) {
        Some(released) => (
            released
                .server
                .map_or(Way::AsClient(released.mark), Way::Connected),
            released.since.elapsed().into(),
            released.handshake,
            Some(released.connect_timeout),
            released.seat,
            released.start,
        ),
        None => {
            let way = Way::AsClient(0);
            (way, TimeSpan::ZERO, Handshake::Early, None, None, None)
        }
    };
    Some(Wanted {
        server,
        way,
        waited,
        handshake,
        admitted,
        seat,
        start,
    })
}

/// Tells the gate, if there is one, that the server of this client has never answered.
pub fn note_unanswered(destination: &Destination, client: &OwnedFd) {
    let Destination::Original(openings) = destination else {
        return;
    };
    let server = rustix::net::getsockname(client).ok();
    // Fails where the client has gone meanwhile, and then nothing is to be learnt.
    let client = rustix::net::getpeername(client).ok().flatten();
    let server = server.and_then(|address| address.try_into().ok());
    let client = client.and_then(|address| address.try_into().ok());
    if let (Some(client), Some(server)) = (client, server) {
        openings.note_unanswered(Connection { client, server });
    }
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
            let server = system::socket(connection.server)?;
            let errors = set_up(&server, &start);
            match system::connect(&server, connection.server) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok((server, errors)),
                Err(error) => Err(error),
            }
        }
    }
}
