//! A connection that is to become a session.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{Handshake, Request};
use midspan_units::{Time, TimeSpan};

use super::limits::Seat;

/// A connection that is to become a session, with all that is decided before its legs are there.
///
/// Three sources make one: the gate at the client's SYN, an acceptor for a
/// connection that no gate has seen, and a [negotiation](super::negotiation) when its client
/// has named a server. From then on it goes unchanged into the session.
#[derive(Debug)]
pub struct Arrival {
    /// Both ends of the connection.
    pub request: Request,
    /// When the client is answered.
    pub handshake: Handshake,
    /// When the first segment of the client was seen: its SYN at the gate, or its accepted connection.
    pub since: Time,
    /// Longest time for connecting to the server; `None`: as long as the kernel tries.
    pub connect_timeout: Option<TimeSpan>,
    /// The policy bypasses it, but it has been accepted already: its legs stay as the kernel makes
    /// them.
    pub is_bypassed: bool,
    /// Its place among the sessions; `None` until one is taken, on accepting at the latest.
    pub seat: Option<Seat>,
    /// How the client's leg begins, where the gate has chosen among several initial windows.
    pub start: Option<LearnedStart>,
}

impl Arrival {
    /// A connection that a policy takes as it takes most: nothing is limited, reserved or chosen.
    #[must_use]
    pub const fn new(request: Request, handshake: Handshake, since: Time) -> Self {
        Self {
            request,
            handshake,
            since,
            connect_timeout: None,
            is_bypassed: false,
            seat: None,
            start: None,
        }
    }
}

/// A client that has been accepted and is spoken with before there is an [`Arrival`].
#[derive(Debug)]
pub struct NewClient {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its address, which may be that of a proxy before this one.
    pub address: SocketAddr,
    /// Its place among the sessions.
    pub seat: Seat,
}
