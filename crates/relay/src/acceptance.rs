//! The results of accepting a connection.

use std::net::SocketAddr;

use rustix::io::Errno;

use super::arrival::{Arrival, NewClient};
use super::destination::Negotiator;
use super::legs::Legs;
use super::limits::Shortage;

/// The result of accepting a connection.
pub enum Acceptance {
    /// A session can begin; the server may not have answered yet.
    Session(Arrival, Legs),
    /// There is no room: the connection has been reset.
    Shed(Shortage),
    /// A negotiation with the client has to begin.
    Negotiation(NewClient, Negotiator),
    /// The policy refused the connection.
    Refused,
    /// Such a connection may have caused a fault, also when it was relayed plainly.
    Suspect,
    /// The access rules do not admit this client.
    Denied(SocketAddr),
    /// An operator drains this client.
    Drained,
    /// The server cannot be reached; the kernel reported this at once.
    Unconnected(Arrival, Errno),
    /// The client closed the connection before it was accepted.
    Gone,
    /// No connection waits.
    Nothing,
    /// The connection still waits, because there are no descriptors or no memory for it.
    Exhausted(Errno),
}

/// The result for a waiting connection that `accept4(2)` did not return.
pub const fn not_accepted(error: Errno) -> Acceptance {
    match error {
        Errno::AGAIN => Acceptance::Nothing,
        // Linux reports network errors of the new connection here: accept(2).
        Errno::CONNABORTED
        | Errno::INTR
        | Errno::PROTO
        | Errno::NETDOWN
        | Errno::NOPROTOOPT
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::OPNOTSUPP
        | Errno::PERM => Acceptance::Gone,
        error => Acceptance::Exhausted(error),
    }
}

/// Whether the machine is short of a resource (otherwise the server cannot be reached).
pub const fn is_shortage(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
