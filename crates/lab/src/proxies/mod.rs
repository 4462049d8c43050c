//! The programs that run at the places where the path file allows a proxy.

pub mod haproxy;
pub mod midspan;
pub mod pepsal;
pub mod thin;

use std::net::SocketAddr;

use midspan_testbed::program::Program;

/// One address forwarded to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// Where it connects to.
    pub to: SocketAddr,
}

/// What runs in a case, until it is dropped.
pub enum Running<'a> {
    /// A program.
    Program(Program),
    /// `PEPsal`, with its rules.
    Pepsal(pepsal::Pepsal<'a>),
}
