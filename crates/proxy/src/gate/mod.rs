//! The gate: decides about clients' SYNs.
//!
//! The kernel's rules put the SYNs that a transparent listener may intercept into a queue (see
//! [`midspan_gateway::interception`]). The gate intercepts a connection in one of two ways, or does not
//! intercept it:
//!
//! - *Handshake end to end*: the gate connects to the server from the client's own address and port
//!   while the SYN is held. When the server answers, the gate sends the SYN on to the listener, and
//!   the acceptor of the connection finds the connected server leg in [`midspan_relay::Openings`].
//!   If the server refuses, a mark on the SYN leads to a rule that refuses too. If the server cannot
//!   be reached, the SYN passes untouched, so that the network itself reports this to the client.
//!   While there is no answer, the client's further SYNs are dropped, as on a path without an answer,
//!   unless the policy lets one of them pass to find an asymmetric route.
//! - *Handshake early*: the gate sends the SYN on to the listener at once, and connects to the server
//!   meanwhile.
//! - *Untouched*: the SYN passes if too many connections are being opened or there is no room for a session,
//!   if it is signed (TCP-MD5, TCP-AO), or if it adds a subflow to an MPTCP connection. It also passes if the
//!   table of connection tracking is nearly full, if such a connection may have caused a panic, if the
//!   connection belongs to the control group, if the policy decides so, or if the server's answers do not
//!   come back through this machine ([`midspan_policy::leave_alone::AsymmetricRoutes`]).
//! - *Refused*, by the policy: the same rule answers the SYN with an RST.
//!
//! The queue also gets two other kinds of packets: ACKs of clients that prove an asymmetric route, which
//! pass, and packets of QUIC that a listener rejects.
//!
//! To send a SYN on, the gate drops it in the queue, which is behind the host's filter, and sends it again
//! with the listener's mark, which leads it through `lo` to the listener.
//!
//! The gate has a part on each thread of the relay (`worker`), and no thread of its own. All parts read one
//! queue: the kernel wakes a thread that sleeps, so a thread that is busy or hangs does not delay SYNs that
//! others can read. The thread that has decided about a SYN also accepts the connection, unless it has more
//! sessions than the others: a number in the SYN that is sent again chooses the listening socket
//! ([`midspan_linux::packet_filter::choose_listening_socket`]).

mod control_group;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod held;
mod in_hand;
mod listener;
mod locking;
mod running;
mod settled;
mod shared;
mod statistics;
mod syn;
mod timestamps;
mod tracked;
mod worker;

pub use listener::GateListener;
pub use running::{Gate, GateObserver};
pub use statistics::GateStatistics;
pub use syn::hop_limit;

use std::os::fd::OwnedFd;

use midspan_policy::opening_bound::OpeningLimits;
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// Settings of all transparent listeners; the helper sends them to the relay process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSettings {
    /// Number of the queue.
    pub queue: u16,
    /// Midspan's bits of the packet mark.
    pub mask: u32,
    /// The mark that makes a rule answer a SYN with a RST.
    pub refused_mark: u32,
    /// The mark with which rules watch the result of a SYN that passes untouched.
    pub watched_mark: u32,
    /// The conntrack zone of server legs.
    pub server_zone: u16,
    /// How long connections pass untouched to servers whose answers do not come back through this
    /// machine.
    pub asymmetric_route_time: TimeSpan,
    /// Limits of connections that are being opened.
    pub opening_limits: OpeningLimits,
}

/// The raw sockets for IPv4 and IPv6 packets, which all threads share; `None` for a family that the
/// kernel lacks.
pub type RawSockets = [Option<OwnedFd>; 2];
