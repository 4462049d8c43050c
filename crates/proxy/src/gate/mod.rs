//! The gate: decides what becomes of the SYNs that clients send.
//!
//! The kernel's rules put the SYNs that a transparent listener may take into a queue (see
//! [`midspan_gateway::interception`]). For each one:
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
mod listener;
mod running;
mod settled;
mod statistics;
mod syn;
mod thread;
mod timestamps;
mod tracked;

pub use listener::GateListener;
pub use running::{Gate, GateObserver};
pub use statistics::GateStatistics;
pub use syn::hop_limit;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_relay::{Clock, Limits, OpeningLimits, Openings, Relay, SharedKnowledge};
use midspan_units::TimeSpan;
use serde::{Deserialize, Serialize};

/// What holds for all transparent listeners; the helper sends it to the relay process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateSettings {
    /// Number of the queue.
    pub queue: u16,
    /// Midspan's bits of the packet mark.
    pub mask: u32,
    /// The mark that makes a rule answer a SYN with a RST.
    pub refused_mark: u32,
    /// The mark that makes rules watch what comes of a SYN that passes untouched.
    pub watched_mark: u32,
    /// Conntrack zone in which server legs call.
    pub server_zone: u16,
    /// For how long servers are left alone whose answers do not come back this way.
    pub asymmetric_route_time: TimeSpan,
    /// How many connections may be opened at a time.
    pub opening_limits: OpeningLimits,
}

/// The raw sockets for IPv4 and IPv6 packets; `None` for a family that the kernel lacks.
pub type RawSockets = [Option<OwnedFd>; 2];

/// What a gate and its relay have in common.
pub struct RelaySide {
    /// Where connections are left for the relay's threads.
    pub openings: Arc<Openings>,
    /// Whether the relay has room for one more; `None`: always.
    pub limits: Option<Arc<Limits>>,
    /// What the relay's sessions have taught of the paths to clients.
    pub knowledge: SharedKnowledge,
    /// The relay's clock.
    pub clock: Clock,
}

impl From<&Relay> for RelaySide {
    fn from(relay: &Relay) -> Self {
        let (knowledge, clock) = relay.learned();
        Self {
            openings: relay.openings(),
            limits: Some(relay.limits()),
            knowledge,
            clock,
        }
    }
}
