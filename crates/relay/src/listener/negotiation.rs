//! Settings of the negotiation between a client and a listener.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use midspan_explicit::Credentials;
use midspan_explicit::proxy_protocol::Version;
use midspan_policy::overlay::{Overlay, RoutePolicy};
use midspan_tls::Codec;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::access::{AccessRules, Network};
use crate::leg_socket::LegSocket;

/// What happens on a listener before a session begins: how the client names its server, which
/// users and clients are admitted, and which PROXY headers are read and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negotiation {
    /// How the client names the server.
    pub language: Language,
    /// Users that may use it; `None` for everyone.
    pub users: Option<Users>,
    /// Clients that may use it, and servers that they may reach.
    pub access: AccessRules,
    /// Time limit of the client's request.
    pub timeout: TimeSpan,
    /// Proxies that begin each connection with a header of the PROXY protocol; `None` if clients
    /// connect directly.
    pub proxies: Option<Vec<Network>>,
    /// The version of the PROXY header that the server gets; `None` for no header.
    pub header: Option<HeaderVersion>,
    /// The overlay by whose routes its sessions go, or whose hops it accepts.
    pub overlay: Option<Overlay>,
    /// The clients from whose own addresses server legs connect, for hops that leave here; `None` if server legs
    /// have an address of this machine.
    pub as_clients: Option<Vec<Network>>,
}

/// How a client names the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// The client does not name it: it is always this server.
    Fixed(SocketAddr),
    /// The client does not name it: it is the address to which a client of a transparent listener has connected.
    Original,
    /// The client does not name it: it is one of the [listener's servers](crate::Listener::servers).
    Servers,
    /// RFC 1928 and 1929.
    Socks5,
    /// `CONNECT`, and plain requests for a proxy.
    Http,
    /// Hops of an overlay: `CONNECT` from its other nodes.
    Hop,
}

/// `send_proxy_protocol`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeaderVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl From<HeaderVersion> for Version {
    fn from(version: HeaderVersion) -> Self {
        match version {
            HeaderVersion::V1 => Self::V1,
            HeaderVersion::V2 => Self::V2,
        }
    }
}

/// Users with their passwords, which are never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Users(pub BTreeMap<String, String>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Users {
    /// Users and passwords, prepared for comparison.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials::new(self.0.clone())
    }
}

impl Negotiation {
    /// The server, if no negotiation is necessary before the session.
    #[must_use]
    pub fn silent(&self) -> Option<SocketAddr> {
        match self.language {
            Language::Fixed(server)
                if self.proxies.is_none() && self.header.is_none() && self.overlay.is_none() =>
            {
                Some(server)
            }
            _ => None,
        }
    }

    /// Whether a connection from this address may begin a negotiation.
    #[must_use]
    pub fn hears(&self, caller: IpAddr) -> bool {
        match (self.language, &self.proxies) {
            (Language::Hop, _) => {
                let overlay = self.overlay.as_ref();
                overlay.is_some_and(|overlay| overlay.has_sender(caller))
            }
            (_, Some(proxies)) => proxies.iter().any(|network| network.contains(caller)),
            (_, None) => self.access.admits(caller),
        }
    }

    /// The connection of a node with a key is encrypted from now on. `false` if the private key cannot be used.
    #[must_use]
    pub fn expect_encryption(&self, caller: IpAddr, socket: &LegSocket) -> bool {
        let overlay = self.overlay.as_ref();
        let Some(overlay) = overlay.filter(|_| self.language == Language::Hop) else {
            return true;
        };
        let expected = overlay.keys_from(caller);
        let (Some(secret), false) = (&overlay.secret, expected.is_empty()) else {
            return true;
        };
        let expected = expected.iter().map(|key| *key.bytes()).collect();
        let codec = Codec::server(secret.bytes(), expected);
        codec.is_ok_and(|codec| socket.set(codec).is_ok())
    }

    /// Whether the host that connects is the client; otherwise its first bytes name the client.
    #[must_use]
    pub fn client_is_peer(&self) -> bool {
        self.proxies.is_none() && self.language != Language::Hop
    }

    /// Whether the host that connects has a share of its own among all that connect: a client, or a node of the
    /// overlay. A proxy has none, because its first bytes name the client.
    #[must_use]
    pub fn peer_has_share(&self) -> bool {
        self.proxies.is_none()
    }

    /// Whether the server leg of a session for this client may have the address that it would have.
    #[must_use]
    pub fn may_connect_for(&self, client: IpAddr) -> bool {
        let Some(clients) = &self.as_clients else {
            return true;
        };
        let is_host = !(client.is_loopback() || client.is_multicast() || client.is_unspecified());
        is_host && clients.iter().any(|network| network.contains(client))
    }

    /// Whether a server leg to this server may have the address that it would have: a client's address has an IP
    /// version.
    #[must_use]
    pub const fn fits(&self, client: IpAddr, server: SocketAddr) -> bool {
        self.as_clients.is_none() || client.is_ipv4() == server.is_ipv4()
    }

    /// Whether this node may connect to a server for other nodes. Other clients are not restricted
    /// here.
    #[must_use]
    pub fn serves(&self, server: SocketAddr) -> bool {
        let own = || self.overlay.as_ref()?.own_node();
        self.language != Language::Hop || own().is_some_and(|own| own.serves(server))
    }

    /// The routes of sessions that enter an overlay here.
    #[must_use]
    pub fn routes(&self) -> Option<Box<dyn RoutePolicy + Send>> {
        let overlay = self.overlay.as_ref();
        let overlay = overlay.filter(|_| self.language != Language::Hop)?;
        Some(overlay.route_policy())
    }
}
