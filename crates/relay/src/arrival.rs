//! A connection that is to become a session.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{FirstFlight, Handshake, Request};
use midspan_units::{Dscp, Time, TimeSpan};
use rustix::io::Errno;

use super::limits::{Seat, SetAside};
use super::overlay::OverlayPart;
use super::register::SharedSocket;

/// A connection that has been accepted, and about which nothing has been decided yet.
#[derive(Debug)]
pub struct Accepted {
    /// The client's socket.
    pub client: OwnedFd,
    /// The client's address.
    pub address: SocketAddr,
    /// The service class of the client's SYN.
    pub class: Dscp,
}

/// A connection that will become a session, with all decisions that are made before its legs exist.
///
/// There are three sources: the gate, at the client's SYN; an acceptor, for a connection that
/// passed no gate; and a [negotiation](super::negotiation), when its client has named a server.
/// From there on, the arrival goes unchanged into the session.
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
    /// The policy decided that the connection passes untouched, or such a connection may have caused a
    /// fault, but it has already been accepted: it is relayed without any mechanism, and its legs keep the
    /// kernel's settings.
    pub is_bypassed: bool,
    /// Its place among the sessions; `None` until there is one, which is at the latest when the
    /// connection is accepted.
    pub seat: Option<Seat>,
    /// How the client leg begins, if the gate has selected one of several initial windows.
    pub start: Option<LearnedStart>,
    /// The server has answered and has then reset the connection: the error that the gate has read from the
    /// server leg, which the kernel reports once.
    pub server_reset: Option<Errno>,
    /// How the first flight to the server is spread, if the gate has opened the server leg.
    pub server_flight: Option<FirstFlight>,
    /// Memory that is set aside for a large receive window of the server leg.
    pub window: Option<SetAside>,
    /// The server that the client has requested, if it is not the peer of the server leg.
    pub name: Option<Box<str>>,
    /// What the overlay has to do with it, if a gate has decided about its route.
    pub overlay: Option<Box<OverlayPart>>,
}

impl Arrival {
    /// A connection without special decisions: nothing is limited, reserved or selected.
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
            server_reset: None,
            server_flight: None,
            window: None,
            name: None,
            overlay: None,
        }
    }
}

/// An accepted client with which a negotiation begins, before there is an [`Arrival`].
#[derive(Debug)]
pub struct NewClient {
    /// Its socket.
    pub socket: SharedSocket,
    /// Its address, which may be that of a proxy before this one.
    pub address: SocketAddr,
    /// Its place among the sessions.
    pub seat: Seat,
    /// Its prefix opens connections too fast, so it gets this as the answer to its request.
    pub is_too_fast: bool,
}
