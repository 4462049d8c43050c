//! The common types of all negotiations.

use crate::Destination;
use crate::exchange::Exchange;
use crate::row_tag::RowTag;

/// The result of parsing the bytes received so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of bytes, from the first, that are consumed and must not be passed again.
    pub consumed: usize,
    /// Bytes to send to the client now.
    pub reply: Vec<u8>,
    /// The next step.
    pub next: Next,
}

/// The next step of a negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More bytes are needed.
    More,
    /// The caller connects to the server and then reports the [`Outcome`] to the client.
    Connect(Request),
    /// A node of the overlay requests this node's row, unless that is the one that it has; it may send another request
    /// after the answer.
    Row(Option<RowTag>),
    /// The caller sends the reply to the client, if there is one, and closes the connection.
    Refuse(Refusal),
}

/// The client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The requested server.
    pub destination: Destination,
    /// Bytes to send to the server first, before all further bytes from the client.
    pub to_server: Vec<u8>,
    /// The rest of the request, and its answer, if only these pass; `None` if all further bytes pass in
    /// both directions.
    pub exchange: Option<Exchange>,
}

/// Why a client is refused before any connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It uses another protocol, or violates the rules.
    Malformed,
    /// It requests a function that this proxy does not support.
    Unsupported,
    /// It has sent no name and password yet; browsers first try without.
    NoCredentials,
    /// Its name and password are wrong.
    Unauthenticated,
}

/// The result of connecting to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered; the proxy's address on this connection.
    Connected(std::net::SocketAddr),
    /// There is no connection.
    Failed(Failure),
}

/// Why there is no connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The server refused.
    Refused,
    /// The server did not answer in time.
    TimedOut,
    /// The network reports that the host is unreachable.
    HostUnreachable,
    /// There is no route to the server's network.
    NetworkUnreachable,
    /// The server's name has no address.
    NameNotFound,
    /// The access rules forbid the server.
    NotAllowed,
    /// This proxy lacks memory or descriptors.
    Shortage,
    /// The client opens connections faster than it may.
    TooFast,
    /// A node of the overlay on the route to the server cannot be reached, or refuses.
    RouteBroken,
}

impl Step {
    pub(crate) const fn more(consumed: usize, reply: Vec<u8>) -> Self {
        Self {
            consumed,
            reply,
            next: Next::More,
        }
    }

    pub(crate) const fn refuse(consumed: usize, reply: Vec<u8>, refusal: Refusal) -> Self {
        Self {
            consumed,
            reply,
            next: Next::Refuse(refusal),
        }
    }
}
