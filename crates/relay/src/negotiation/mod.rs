//! The negotiation before a session: with the PROXY protocol, SOCKS5, HTTP or a hop of an overlay, up to
//! the connection to the server.
//!
//! ```text
//! heading ──► speaking ──► resolving ──► connecting ──► hopping ──► a session
//!                │  ▲          │             │             │           │
//!                │  └──────────┼─────────────┼─────────────┼───────────┤ the next request of an HTTP client
//!                └─────────────┴─────────────┴─────────────┴───────────┴──► refusing ──► closed
//! ```
//!
//! | stage | Midspan waits for | until |
//! | --- | --- | --- |
//! | heading | the header of the PROXY protocol | `negotiation_timeout` |
//! | speaking | the request by SOCKS5 or HTTP, or of a hop | `negotiation_timeout`, together with heading |
//! | resolving | the addresses of a name | 15 s |
//! | connecting | the first address that answers (RFC 8305), or one of several servers | `connect_timeout`, or 60 s without one |
//! | hopping | the answer of the next node, if there is one | `connect_timeout`, together with connecting |
//! | refusing | the client's FIN, after the reason for a refusal was sent | `PARTING_TIME` |
//! | refusing | the client's FIN, after the last answer to an HTTP client | `negotiation_timeout` |
//!
//! A client that sends no valid PROXY header, or no request in time, gets no reason: its connection is closed
//! at once.
//!
//! Before a refusal, the relay reads the client's data only while something is left to parse, so later data
//! stays in the kernel. Bytes that were read beyond the request, and bytes for which a socket has no room, go
//! into the session, which sends them first. So every byte that was read is sent on or parsed, or the
//! client's connection is closed. While it refuses, the relay reads the client's data and drops it.
//!
//! After its session, an HTTP client returns to the negotiation and may send another request within
//! `negotiation_timeout`.

mod attempts;
mod choosing;
mod first_data;
mod hop_call;
mod lookups;
mod names;
mod negotiating_client;
pub mod resolver;
mod route_call;
mod routing;
mod serving;
mod shares;
mod tries;

pub use lookups::{LONGEST_LOOK_UP, MOST_OF_ALL};
pub use names::{Names, NamesOfThread};
pub use route_call::{RouteCall, RouteState};
pub(super) use serving::Neighbours;

pub(super) use attempts::is_of_server;
pub(super) use lookups::Asked;
use negotiating_client::{Joined, NegotiatingClient, Step};
use shares::Shares;
pub(super) use tries::Tries;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use midspan_policy::overlay::HopRefusal;
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::leg_socket::LegSocket;
use super::limits::Limits;
use super::poll::Poll;
use super::register::Register;
use super::statistics::Counters;
use super::table::{Key, Table};
use super::timers::Timers;
use midspan_log::LogRate;

/// Most bytes of a client that are stored.
const INPUT_LIMIT: usize = 16 << 10;

/// How long a refused client may take to close, after it got the reason.
const PARTING_TIME: TimeSpan = TimeSpan::from_seconds(2);

/// Most negotiations of one thread; this also limits their memory.
const MOST_TALKS: usize = 8192;

/// Most negotiations of one client in one thread: a quarter of all.
const MOST_OF_CLIENT: u32 = MOST_TALKS as u32 / 4;

/// Most negotiations of one overlay node in one thread, whose hops are those of many clients: half of all.
const MOST_OF_NODE: u32 = MOST_TALKS as u32 / 2;

/// Most connections in one thread over which one overlay node may request rows again and again: one for the exchange of
/// rows, and up to 32 warm ones for each of its listeners; several nodes may have one address.
const MOST_ROWS_OF_NODE: u32 = 128;

/// Log lines about refused clients: this many at once in one thread, and one more each interval.
const REFUSALS_AT_ONCE: u32 = 50;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(100);

/// The negotiations of one thread.
pub(super) struct Negotiations {
    /// The negotiations, by key.
    negotiating_clients: Table<NegotiatingClient>,
    /// Their deadlines.
    timers: Timers,
    /// Number of negotiations.
    count: usize,
    /// Number of the negotiations of each client that connects directly, and of each node.
    callers: Shares,
    /// Number of each node's connections for the exchange of rows.
    rows: Shares,
    /// The look-up of names.
    pub names: Option<NamesOfThread>,
    /// Clients with wrong passwords; shared by all threads.
    pub tries: Arc<Tries>,
    /// Limits the log lines about refused clients.
    refusals: LogRate,
    poll: Arc<Poll>,
    counters: Arc<Counters>,
    limits: Arc<Limits>,
    register: Arc<Register>,
}

impl Negotiations {
    /// No negotiations, and no look-up of names.
    pub fn new(poll: Arc<Poll>, counters: Arc<Counters>, register: Arc<Register>) -> Self {
        Self {
            poll,
            counters,
            limits: Arc::clone(register.limits()),
            register,
            negotiating_clients: Table::new(),
            timers: Timers::default(),
            count: 0,
            callers: Shares::default(),
            rows: Shares::default(),
            names: None,
            tries: Arc::default(),
            refusals: LogRate::new(REFUSALS_AT_ONCE, REFUSAL_INTERVAL),
        }
    }

    /// The first deadline.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Whether there is room for another negotiation of this caller, whose share is this number of negotiations;
    /// `None` for a client that is not yet known.
    pub fn has_room(&self, caller: Option<(IpAddr, u32)>) -> bool {
        let has_share = |(caller, most)| self.callers.has_room(caller, most);
        self.count < MOST_TALKS && caller.is_none_or(has_share)
    }

    /// Resets all clients.
    pub fn abandon(&mut self) {
        self.negotiating_clients.clear();
        self.timers = Timers::default();
        self.count = 0;
        self.callers.clear();
        self.rows.clear();
        self.counters.negotiations_active.set(0);
    }

    /// Counts a new negotiation, or with `false` the end of one.
    pub fn count(&mut self, caller: Option<IpAddr>, is_more: bool) {
        self.count = match is_more {
            true => self.count + 1,
            false => self.count.saturating_sub(1),
        };
        match (caller, is_more) {
            (Some(caller), true) => self.callers.add(caller),
            (Some(caller), false) => self.callers.give_back(caller),
            (None, _) => {}
        }
    }

    /// Requests the addresses of a name for a client.
    pub fn ask(&self, key: Key, client: IpAddr, name: &str) -> Asked {
        let names = self.names.as_ref();
        names.map_or(Asked::Refused, |names| names.ask(key, client, name))
    }
}

/// Sends as much as possible at once; the rest stays in `bytes`.
fn flush(socket: &LegSocket, bytes: &mut Vec<u8>) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match socket.send(bytes) {
            Ok(count) => drop(bytes.drain(..count.min(bytes.len()))),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Why a client was refused, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The access rules do not admit the client, or it is not a known proxy.
    Access,
    /// An operator drains the client.
    Drained,
    /// The access rules do not permit the destination.
    Destination,
    /// The policy.
    Policy,
    /// The client uses another protocol, or breaks the rules of this one.
    Malformed,
    /// The client requests a feature that this proxy does not have.
    Unsupported,
    /// The client has sent no name and password.
    NoCredentials,
    /// Name or password are wrong.
    Unauthenticated,
    /// The client has not sent its request in time.
    Silent,
    /// The client closed its connection before its request was complete.
    Gone,
    /// The requested name has no address.
    Name,
    /// There are too many negotiations, or too many look-ups of names.
    Overload,
    /// The client has as many sessions as one client may have.
    Crowded,
    /// The client's prefix opens connections too fast.
    TooFast,
    /// The hop of an overlay may not pass here.
    Hop(HopRefusal),
}
