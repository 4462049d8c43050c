//! The gate: decides what becomes of the SYNs that clients send.
//!
//! The kernel's rules put the SYNs that a transparent listener may take into a queue (see
//! [`midspan_linux::interception`]). For each one:
//!
//! - *Handshake end to end*: the gate calls the server from the client's own address and port
//!   while the SYN waits. When the server answers, the SYN is sent on to the listener, and whoever
//!   accepts the connection finds the connected server leg in [`Openings`]. When the server
//!   refuses, so does the rule that a mark on the SYN leads to. When it cannot be reached, the SYN
//!   goes on untouched, so that the network itself tells the client. While nothing is heard, the
//!   client's further SYNs are dropped, as on a path without an answer.
//! - *Early*: the server is called, and the SYN is sent on to the listener at once.
//! - Too many at a time, signed (TCP-MD5, TCP-AO), or a further path of an MPTCP connection: the SYN
//!   goes on untouched. So it does where the table of connection tracking is nearly full, the policy
//!   says so, or the server's answers do not come back this way
//!   ([`midspan_policy::leave_alone::AsymmetricRoutes`]).
//!
//! "Sent on" is: dropped where it is, behind the host's filter, and sent again with the listener's
//! mark, which leads it through `lo` to the listener.

mod control_group;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod headers;
mod held;
mod openings;
mod running;
mod settled;
mod statistics;
mod syn;
mod thread;
mod timestamps;
mod tracked;

pub use openings::{Arrival, Connection, OpeningLimits, Openings, Released};
pub use running::{Decided, Gate, GateObserver};
pub use statistics::GateStatistics;
pub use syn::hop_limit;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use midspan_linux::tcp;
use midspan_policy::{Knowledge, LegStart, Request};
use midspan_units::{Probability, TimeSpan};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::profile::AccessProfile;
use crate::relay::{Clock, Limits};

/// What a gate is started with.
pub struct GateSettings {
    /// Number of the queue.
    pub queue: u16,
    /// Bits of the packet mark that are ours.
    pub mask: u32,
    /// The mark that makes a rule answer a SYN with a RST.
    pub refused_mark: u32,
    /// The mark that makes rules watch what comes of a SYN that passes untouched.
    pub watched_mark: u32,
    /// Conntrack zone in which server legs call.
    pub server_zone: u16,
    /// For how long servers are left alone whose answers do not come back this way.
    pub asymmetric_route_time: TimeSpan,
    /// Transparent listeners, each with who decides about its connections.
    pub listeners: Vec<Decided>,
    /// Where released connections are found.
    pub openings: Arc<Openings<OwnedFd>>,
    /// Whether the relay has room for one more; `None`: always.
    pub limits: Option<Arc<Limits>>,
    /// A raw socket for IPv4 packets, one for IPv6; `None` for a family that the kernel lacks.
    pub raw: [Option<OwnedFd>; 2],
    /// What the relay's sessions have taught of the paths to clients, and its clock.
    pub learned: (Knowledge, Clock),
}

/// A transparent listener, as the gate needs to know it.
#[derive(Debug, Clone)]
pub struct GateListener {
    /// Name for logs.
    pub name: String,
    /// The mark of SYNs for it.
    pub mark: u32,
    /// How server legs are set up.
    pub server: ServerLeg,
    /// The initial windows that its clients may get besides the usual one; empty where none is
    /// chosen.
    pub windows: Vec<u32>,
    /// What is known of clients' access links.
    pub profiles: Arc<[AccessProfile]>,
    /// Part of the connections that pass untouched, to compare with.
    pub control_group: Probability,
}

/// How a server leg with the client's address is set up.
#[derive(Debug, Clone, Default)]
pub struct ServerLeg {
    /// Its mark, in our bits.
    pub mark: u32,
    /// Its options.
    pub start: LegStart,
}

/// A server leg that is being connected.
#[derive(Debug)]
pub struct Calling {
    /// The socket.
    pub socket: OwnedFd,
    /// Options that the kernel refused.
    pub option_errors: u64,
}

/// Calls the server from the client's own address and port. `mark` is the host's part of the
/// mark: what chose the way of the client's packets chooses that of ours.
///
/// # Errors
/// Those of `socket(2)`, `bind(2)` and `connect(2)`.
pub fn call(connection: Connection, mark: u32, leg: &ServerLeg) -> rustix::io::Result<Calling> {
    let family = match connection.server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    set_common_options(&socket).map_err(errno)?;
    tcp::set_transparent(&socket, connection.server).map_err(errno)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    tcp::set_mark(&socket, mark | leg.mark).map_err(errno)?;
    let mut option_errors = 0;
    if leg.start != LegStart::default() {
        option_errors += u64::from(tcp::apply(&socket, &leg.start).is_err());
    }
    rustix::net::bind(&socket, &connection.client)?;
    match rustix::net::connect(&socket, &connection.server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Calling {
            socket,
            option_errors,
        }),
        Err(error) => Err(error),
    }
}

/// What holds for every socket of a session: small writes leave at once, urgent data stays in its
/// place in the stream, and a crash resets instead of ending in good order.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_common_options(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_oobinline(socket, true)?;
    tcp::set_reset_on_close(socket, true)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A connection as policies see it.
const fn request(connection: Connection) -> Request {
    Request {
        client: connection.client,
        server: connection.server,
    }
}
