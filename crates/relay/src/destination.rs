//! Where an accepted connection goes, and how far it is on its way.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::Request;

use super::openings::Released;
use super::settings::Destination;

/// How the server leg of a session comes about.
#[derive(Debug)]
pub enum Way {
    /// It is to be opened, from an address of this machine.
    New,
    /// It is to be opened, from the client's address.
    AsClient,
    /// It is connected already, or being connected.
    Called(OwnedFd),
}

/// What an accepted connection is found to be.
#[derive(Debug)]
pub enum Found {
    /// A connection that nobody has decided about yet: its server, and the way there.
    Undecided(SocketAddr, Way),
    /// A connection that was taken at its SYN.
    Released(Released),
}

/// Whether the access rules let a client in, where they are asked before it is spoken with.
pub fn admits(destination: &Destination, client: SocketAddr) -> bool {
    match destination {
        Destination::Negotiated(negotiator) => negotiator.settings.access.admits(client.ip()),
        Destination::Fixed(_) | Destination::Original(_) => true,
    }
}

/// The server that the client on this socket wants, and the way there; `None` where access rules
/// forbid it, or where that would be this listener itself.
pub fn find(destination: &Destination, client: &OwnedFd, address: SocketAddr) -> Option<Found> {
    let openings = match destination {
        Destination::Fixed(server) => return Some(Found::Undecided(*server, Way::New)),
        Destination::Negotiated(negotiator) => {
            // Only where nothing is to be said.
            let server = negotiator.settings.silent()?;
            let access = &negotiator.settings.access;
            let is_allowed = access.admits(address.ip())
                && access.allows(address.ip(), server, crate::machine::is_own);
            return is_allowed.then_some(Found::Undecided(server, Way::New));
        }
        Destination::Original(openings) => openings,
    };
    // A transparent listener's socket has the address that the client called.
    let server: SocketAddr = rustix::net::getsockname(client).ok()?.try_into().ok()?;
    // Its own address is on loopback, where no rule leads anybody.
    if server.ip().is_loopback() {
        return None;
    }
    let request = Request {
        client: address,
        server,
    };
    Some(match openings.take(request) {
        Some(released) => Found::Released(released),
        None => Found::Undecided(server, Way::AsClient),
    })
}

/// Notes that the server of this client has never answered, for whoever takes SYNs.
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
        openings.note_unanswered(Request { client, server });
    }
}
