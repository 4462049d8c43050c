//! The server of an accepted connection, and how the leg to it is opened.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_explicit::Credentials;
use midspan_policy::Request;

use super::listener::Destination;
use super::listener::Negotiation;
use super::openings::{Openings, Released};

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
    /// A connection about which no policy has decided yet: its server, and the way there.
    Undecided(SocketAddr, Way),
    /// A connection that was intercepted at its SYN.
    Released(Released),
}

/// Where the connections of a listener go, as its acceptors look it up.
#[derive(Debug, Clone)]
pub enum Finder {
    /// To one server.
    Fixed(SocketAddr),
    /// To the server that the client called; connections intercepted at their SYN are found here.
    Original(Arc<Openings>),
    /// To the server that the client names.
    Negotiated(Negotiator),
}

/// How clients are spoken with before there is a session.
#[derive(Debug, Clone)]
pub struct Negotiator {
    /// What was configured.
    pub settings: Arc<Negotiation>,
    /// Its users, as they are compared.
    pub credentials: Option<Arc<Credentials>>,
}

impl Finder {
    /// For this destination, and these connections that are intercepted at their SYN.
    pub fn new(destination: &Destination, openings: &Arc<Openings>) -> Self {
        match destination {
            Destination::Fixed(server) => Self::Fixed(*server),
            Destination::Original => Self::Original(Arc::clone(openings)),
            Destination::Negotiated(settings) => {
                let users = settings.users.as_ref();
                Self::Negotiated(Negotiator {
                    settings: Arc::new(Negotiation::clone(settings)),
                    credentials: users.map(|users| Arc::new(users.credentials())),
                })
            }
        }
    }

    /// How this client is spoken with before there is a session; `None` where it is not.
    pub fn negotiator(&self) -> Option<&Negotiator> {
        match self {
            Self::Negotiated(negotiator) => {
                Some(negotiator).filter(|of| of.settings.silent().is_none())
            }
            Self::Fixed(_) | Self::Original(_) => None,
        }
    }

    /// Whether the access rules let a client in, where they are asked before it is spoken with.
    pub fn admits(&self, client: SocketAddr) -> bool {
        match self {
            Self::Negotiated(negotiator) => negotiator.settings.access.admits(client.ip()),
            Self::Fixed(_) | Self::Original(_) => true,
        }
    }

    /// What the connection from this client on this socket is; `None` where access rules forbid it,
    /// or where its server would be this listener itself.
    pub fn find(&self, client: &OwnedFd, address: SocketAddr) -> Option<Found> {
        let openings = match self {
            Self::Fixed(server) => return Some(Found::Undecided(*server, Way::New)),
            Self::Negotiated(negotiator) => {
                // Only without a negotiation.
                let server = negotiator.settings.silent()?;
                let access = &negotiator.settings.access;
                let is_allowed = access.admits(address.ip())
                    && access.allows(address.ip(), server, crate::machine::is_own);
                return is_allowed.then_some(Found::Undecided(server, Way::New));
            }
            Self::Original(openings) => openings,
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
    pub fn note_unanswered(&self, client: &OwnedFd) {
        let Self::Original(openings) = self else {
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
}
