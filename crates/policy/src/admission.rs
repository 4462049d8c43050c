//! Decisions that are taken before there is a socket.

use std::net::SocketAddr;

use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// A connection that a client tries to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// The address of the host that opens the connection.
    pub client: SocketAddr,
    /// The address of the host that it connects to.
    pub server: SocketAddr,
}

/// How the client's SYN is answered (Maki §II: SYN and FIN are not acknowledged locally).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handshake {
    /// Hold the client's SYN until the server has answered.
    EndToEnd,
    /// Accept the client at once and connect to the server meanwhile.
    #[default]
    Early,
}

/// Whether a connection is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The connection is split.
    Intercept {
        /// How the client's SYN is answered.
        handshake: Handshake,
        /// Give up connecting to the server after this time; `None` leaves it to the kernel.
        connect_timeout: Option<TimeSpan>,
    },
    /// Do not split it, as if there were no proxy.
    Bypass,
    /// Refuse it.
    Refuse,
}
