//! The server of an accepted connection, and how the leg to it is opened.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_explicit::Credentials;
use midspan_policy::{Network, Request};
use midspan_units::TimeSpan;

use super::access::AccessRules;
use super::leg_socket::LegSocket;
use super::listener::{Destination, Language, Listener, Negotiation};
use super::openings::{Openings, Released};
use super::system;

/// How the server leg of a session is opened.
#[derive(Debug)]
pub enum ServerLegSource {
    /// A new connection from an address of this machine.
    OwnAddress,
    /// A new connection from the client's address.
    ClientAddress,
    /// A socket that is already connected, or connecting.
    Connecting(LegSocket),
}

/// What an acceptor finds out about an accepted connection.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // It is on the stack for a moment, once for each connection.
pub enum Found {
    /// No policy has decided about the connection yet: its server, and how to open the server leg.
    Undecided(SocketAddr, ServerLegSource),
    /// The connection was intercepted at its SYN.
    Released(Released),
}

/// How acceptors look up the destination of a listener's connections.
#[derive(Debug, Clone)]
pub enum Finder {
    /// One fixed server.
    Fixed(SocketAddr),
    /// The server to which the client connected. Connections that were intercepted at their SYN are
    /// found in these openings.
    Original(Arc<Openings>),
    /// The server that the client names in a negotiation.
    Negotiated(Negotiator),
}

/// The settings of a listener's negotiations.
#[derive(Debug, Clone)]
pub struct Negotiator {
    /// The configuration.
    pub settings: Arc<Negotiation>,
    /// The users and passwords, prepared for comparison.
    pub credentials: Option<Arc<Credentials>>,
}

impl Negotiator {
    /// For the clients of a transparent listener that are answered before their route is called; `None` if its sessions do
    /// not go by routes.
    pub fn to_overlay(listener: &Listener) -> Option<Self> {
        let overlay = listener.overlay.as_deref()?;
        let any = [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
        ];
        let all = any.map(|address| Network { address, length: 0 });
        let settings = Negotiation {
            language: Language::Original,
            users: None,
            access: AccessRules::default(),
            // Such a client sends no request to the proxy, so nothing waits for this time.
            timeout: TimeSpan::from_seconds(10),
            proxies: None,
            header: None,
            overlay: Some(overlay.clone()),
            // A session that leaves here after its routes have failed.
            as_clients: Some(all.into()),
        };
        Some(Self {
            settings: Arc::new(settings),
            credentials: None,
        })
    }
}

impl Finder {
    /// A finder for this destination, with the connections that are intercepted at their SYN.
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

    /// The settings of this client's negotiation; `None` if there is no negotiation.
    pub fn negotiator(&self) -> Option<&Negotiator> {
        match self {
            Self::Negotiated(negotiator) => {
                Some(negotiator).filter(|of| of.settings.silent().is_none())
            }
            Self::Fixed(_) | Self::Original(_) => None,
        }
    }

    /// Whether the access rules admit a client, if they apply before a negotiation.
    pub fn admits(&self, client: SocketAddr) -> bool {
        match self {
            Self::Negotiated(negotiator) => negotiator.settings.access.admits(client.ip()),
            Self::Fixed(_) | Self::Original(_) => true,
        }
    }

    /// What an accepted connection is. `None` if the access rules forbid it, or if its server would
    /// be this listener itself.
    pub fn find(&self, client: &OwnedFd, address: SocketAddr) -> Option<Found> {
        let openings = match self {
            Self::Fixed(server) => {
                return Some(Found::Undecided(*server, ServerLegSource::OwnAddress));
            }
            Self::Negotiated(negotiator) => {
                // This case only occurs without a negotiation.
                let server = negotiator.settings.silent()?;
                let access = &negotiator.settings.access;
                let is_allowed = access.admits(address.ip())
                    && access.allows(address.ip(), server, crate::machine::is_own);
                return is_allowed.then_some(Found::Undecided(server, ServerLegSource::OwnAddress));
            }
            Self::Original(openings) => openings,
        };
        // A transparent listener's socket has the address to which the client connected.
        let server = system::own_address(client)?;
        // The listener's own address is on loopback. No rule leads connections of clients to
        // loopback.
        if server.ip().is_loopback() {
            return None;
        }
        let request = Request {
            client: address,
            server,
        };
        Some(match openings.take(request) {
            Some(released) => Found::Released(released),
            None => Found::Undecided(server, ServerLegSource::ClientAddress),
        })
    }

    /// Records that the server of this client has never answered, for the gate.
    pub fn note_unanswered(&self, client: &OwnedFd) {
        let Self::Original(openings) = self else {
            return;
        };
        let server = system::own_address(client);
        // If the client has closed meanwhile, its address is not available, and there is nothing to
        // record.
        let client = system::peer_address(client).ok().flatten();
        if let (Some(client), Some(server)) = (client, server) {
            openings.note_unanswered(Request { client, server });
        }
    }
}
