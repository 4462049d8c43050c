//! What a listener whose clients are spoken with is told.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use midspan_explicit::Credentials;
use midspan_explicit::proxy_protocol::Version;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

use crate::access::{AccessRules, Network};

/// How sessions of a listener are negotiated, and who may have which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negotiation {
    /// How the client names the server.
    pub language: Language,
    /// Who may use it, by name; `None` for anybody.
    pub users: Option<Users>,
    /// Who may use it, by address, and where to.
    pub access: AccessRules,
    /// How long a client may take to say what it wants.
    pub timeout: TimeSpan,
    /// Proxies that begin each connection with a header of the PROXY protocol; `None` where
    /// clients come themselves.
    pub proxies: Option<Vec<Network>>,
    /// The server is told the client by such a header.
    pub header: Option<HeaderVersion>,
}

/// How a client names the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// It does not: it is always this one.
    Fixed(SocketAddr),
    /// RFC 1928 and 1929.
    Socks5,
    /// `CONNECT`, and plain requests for a proxy.
    Http,
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

/// Names with their passwords, which are not printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Users(pub BTreeMap<String, String>);

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Users {
    /// As they are compared with what clients say.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials::new(self.0.clone())
    }
}

impl Negotiation {
    /// The server, where nothing has to be said to anybody before the session.
    #[must_use]
    pub fn silent(&self) -> Option<SocketAddr> {
        match self.language {
            Language::Fixed(server) if self.proxies.is_none() && self.header.is_none() => {
                Some(server)
            }
            _ => None,
        }
    }

    /// Whether this one, who has called, may be heard.
    #[must_use]
    pub fn hears(&self, caller: IpAddr) -> bool {
        match &self.proxies {
            Some(proxies) => proxies.iter().any(|network| network.contains(caller)),
            None => self.access.admits(caller),
        }
    }
}
