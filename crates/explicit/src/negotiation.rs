//! What every way of naming the server has in common.

use crate::Destination;
use crate::exchange::Exchange;

/// What follows from the bytes that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How many bytes, from the first, are dealt with and are not to be shown again.
    pub consumed: usize,
    /// What the client is to be told now.
    pub reply: Vec<u8>,
    /// How it goes on.
    pub next: Next,
}

/// How a negotiation goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More bytes are needed.
    More,
    /// The server is to be called, and then the client told the [`Outcome`].
    Connect(Request),
    /// The client is to be told the reply, if any, and closed.
    Refuse(Refusal),
}

/// What the client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it wants to go.
    pub destination: Destination,
    /// What the server is to be told first, before all that follows from the client.
    pub to_server: Vec<u8>,
    /// How the request goes on, and its answer, where only so much passes; `None` where all that
    /// follows passes both ways.
    pub exchange: Option<Exchange>,
}

/// Why a client is sent away before any server is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It speaks another language, or breaks its rules.
    Malformed,
    /// It asks for more than this proxy does.
    Unsupported,
    /// It has given no name and password yet; browsers ask first.
    NoCredentials,
    /// Its name and password are wrong.
    Unauthenticated,
}

/// What became of the call to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has answered; the address that this proxy has towards it.
    Connected(std::net::SocketAddr),
    /// There is no connection.
    Failed(Failure),
}

/// Why there is no connection to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It refused.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// The network says that the host cannot be reached.
    HostUnreachable,
    /// There is no route to its network.
    NetworkUnreachable,
    /// Its name has no address.
    NameNotFound,
    /// The access rules forbid it.
    NotAllowed,
    /// This proxy is out of something.
    Shortage,
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
