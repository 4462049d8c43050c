//! The cases: which program runs at the places where the path file allows a proxy.

pub mod haproxy;
pub mod midspan;
pub mod thin;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A case: what the proxies of the path do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// Plain routing: connections run from end to end.
    Direct,
    /// HAProxy at every proxy.
    Haproxy,
    /// Midspan with transparent listeners at every proxy: clients connect to the server.
    Midspan,
    /// As [`Self::Midspan`], with the handshake early.
    MidspanEarly,
    /// Midspan with forward listeners at every proxy: clients connect to the first proxy, as they
    /// do with HAProxy.
    MidspanForward,
    /// Plain routing, with `midspan thin` on each client's host.
    Thin,
}

impl Case {
    /// All cases, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::Haproxy,
        Self::Midspan,
        Self::MidspanEarly,
        Self::MidspanForward,
        Self::Thin,
    ];

    /// Whether clients connect to the first proxy; otherwise they connect to the server.
    #[must_use]
    pub const fn is_forward(self) -> bool {
        matches!(self, Self::Haproxy | Self::MidspanForward)
    }

    /// A sentence for reports: what runs at the proxies, and which address each end sees.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Direct => {
                "direct: plain routing; each connection runs from the client to the server."
            }
            Self::Haproxy => {
                "haproxy: clients connect to HAProxy at the first proxy; the server sees the last \
                 proxy's address."
            }
            Self::Midspan => {
                "midspan: clients connect to the server, and Midspan intercepts their connections \
                 at each proxy; client and server see each other's own address and port."
            }
            Self::MidspanEarly => {
                "midspan-early: as midspan, but each proxy accepts connections at once, and \
                 connects to the server meanwhile."
            }
            Self::MidspanForward => {
                "midspan-forward: clients connect to Midspan at the first proxy; the server sees \
                 the last proxy's address."
            }
            Self::Thin => {
                "thin: plain routing, and `midspan thin` thins the ACKs that leave the client's \
                 host; each connection runs from the client to the server."
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Haproxy => "haproxy",
            Self::Midspan => "midspan",
            Self::MidspanEarly => "midspan-early",
            Self::MidspanForward => "midspan-forward",
            Self::Thin => "thin",
        })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|case| case.to_string() == text)
            .ok_or_else(|| {
                format!(
                    "unknown case \"{text}\": write direct, haproxy, midspan, midspan-early, \
                     midspan-forward or thin"
                )
            })
    }
}

/// One address forwarded to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Where it connects to.
    pub to: SocketAddr,
}
