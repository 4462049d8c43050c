//! What is said before a session: by whom, who is wanted, and what became of the call.
//!
//! ```text
//! heading ──► speaking ──► resolving ──► calling ──► a session
//!    │          │  ▲          │            │           │
//!    │          │  └──────────┼────────────┼───────────┤ the next request of an HTTP client
//!    └──────────┴─────────────┴────────────┴───────────┴──► refusing ──► closed
//! ```
//!
//! | stage | what is awaited | until |
//! | --- | --- | --- |
//! | heading | the header of the PROXY protocol | `negotiation_timeout` |
//! | speaking | SOCKS5 or HTTP | the same |
//! | resolving | the addresses of a name | 15 s |
//! | calling | the first of them that answers (RFC 8305) | `connect_timeout` |
//! | refusing | the client's end, after it was told why | `PARTING_TIME`; `negotiation_timeout` after an answer |
//!
//! The client is read only while something is to be understood, so whatever follows stays in the
//! kernel. What was read too much, and what a socket has no room for, goes into the session, which
//! sends it first. So each byte that was read is sent on or understood, or the client is closed.
//!
//! A client of HTTP comes back from its session and may send another request, within
//! `negotiation_timeout`.

mod calling;
mod lookups;
mod names;
pub mod resolver;
mod serving;
mod talk;
mod tries;

pub use lookups::MOST_OF_ALL;
pub use names::Names;
pub(super) use serving::Neighbours;

use calling::failure;
use lookups::Asked;
use talk::{Joined, Step, Talk};
pub(super) use tries::Tries;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use midspan_units::{Time, TimeSpan};

use super::limits::{Client, Limits};
use super::poll::Poll;
use super::statistics::Counters;
use super::table::{Key, Table};
use super::timers::Timers;
use midspan_log::LogRate;

/// Most bytes of a client that are kept.
const INPUT_LIMIT: usize = 16 << 10;

/// How long a client that was told why may take to close.
const PARTING_TIME: TimeSpan = TimeSpan::from_seconds(2);

/// Most of them in one thread: what they keep is bounded by this.
const MOST_TALKS: usize = 8192;

/// Most of one client in one thread: a quarter of all.
const MOST_OF_CLIENT: u32 = MOST_TALKS as u32 / 4;

/// Lines of the log about clients that were sent away: so many at once in one thread, and one more
/// each interval.
const REFUSALS_AT_ONCE: u32 = 50;
const REFUSAL_INTERVAL: Duration = Duration::from_millis(100);

/// The negotiations of one thread.
pub(super) struct Negotiations {
    /// By key.
    talks: Table<Talk>,
    /// Their deadlines.
    timers: Timers,
    /// How many there are.
    count: usize,
    /// Of which clients, where these call themselves.
    clients: BTreeMap<Client, u32>,
    /// Where names are looked up.
    pub names: Option<Arc<Names>>,
    /// The number of this thread there.
    pub thread: usize,
    /// Who gave wrong passwords; all threads have the same.
    pub tries: Arc<Tries>,
    /// How many clients that were sent away are logged.
    refusals: LogRate,
    poll: Arc<Poll>,
    counters: Arc<Counters>,
    limits: Arc<Limits>,
}

impl Negotiations {
    /// None, and nobody to ask for names.
    pub fn new(poll: Arc<Poll>, counters: Arc<Counters>, limits: Arc<Limits>) -> Self {
        Self {
            poll,
            counters,
            limits,
            talks: Table::new(),
            timers: Timers::default(),
            count: 0,
            clients: BTreeMap::new(),
            names: None,
            thread: 0,
            tries: Arc::default(),
            refusals: LogRate::new(REFUSALS_AT_ONCE, REFUSAL_INTERVAL),
        }
    }

    /// The first deadline of one.
    pub fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Whether there is room for one more; `None` for a client that is not known yet.
    pub fn has_room(&self, client: Option<IpAddr>) -> bool {
        let of_client = client.and_then(|client| self.clients.get(&Client::of(client)));
        self.count < MOST_TALKS && of_client.is_none_or(|count| *count < MOST_OF_CLIENT)
    }

    /// One more, or with `false` one less.
    pub fn count(&mut self, client: Option<IpAddr>, is_more: bool) {
        let change = |count: usize| match is_more {
            true => count + 1,
            false => count.saturating_sub(1),
        };
        self.count = change(self.count);
        if let Some(client) = client.map(Client::of) {
            let count = self.clients.entry(client).or_insert(0);
            *count = u32::try_from(change(*count as usize)).unwrap_or(u32::MAX);
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// Asks for a name on behalf of a client.
    pub fn ask(&self, key: Key, client: IpAddr, name: &str) -> Asked {
        let names = self.names.as_ref();
        names.map_or(Asked::Refused, |names| {
            names.ask((self.thread, key), client, name)
        })
    }
}

/// Why a client was sent away, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Access rules do not let the client in, or it is no known proxy.
    Access,
    /// Access rules do not let it to where it wants to go.
    Destination,
    /// The policy.
    Policy,
    /// It speaks another language, or breaks its rules.
    Malformed,
    /// It asks for more than this proxy does.
    Unsupported,
    /// It has given no name and password.
    NoCredentials,
    /// They are wrong.
    Unauthenticated,
    /// It has not said in time what it wants.
    Silent,
    /// It went away before it had said so.
    Gone,
    /// The name it wants has no address.
    Name,
    /// Too many negotiate, or too many names are being looked up.
    Overload,
    /// It has as many sessions as one client may have.
    Crowded,
}
