//! The programs that run at the places where the path file allows a proxy.

pub mod haproxy;
pub mod midspan;
pub mod thin;

use std::net::SocketAddr;

/// One address forwarded to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Where it connects to.
    pub to: SocketAddr,
}
