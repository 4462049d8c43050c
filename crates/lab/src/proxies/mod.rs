//! What stands at the places where the path file allows a proxy.

pub mod haproxy;
pub mod midspan;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// What is done at the proxies of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// Plain routing: connections run from end to end.
    Direct,
    /// HAProxy at every proxy.
    Haproxy,
    /// Midspan at every proxy.
    Midspan,
}

impl Case {
    /// All cases, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Haproxy, Self::Midspan];
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Haproxy => "haproxy",
            Self::Midspan => "midspan",
        })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|case| case.to_string() == text)
            .ok_or_else(|| format!("unknown case \"{text}\": write direct, haproxy or midspan"))
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
