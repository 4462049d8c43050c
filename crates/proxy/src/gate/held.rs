//! SYNs that are held in the queue while Midspan connects to their servers, or calls a route of the overlay.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Instant;

use midspan_policy::overlay::Route;
use midspan_policy::{FirstFlight, Request};
use midspan_relay::negotiation::RouteCall;
use midspan_relay::{Arrival, LegSocket, SetAside, SourceSockets};

/// A packet from the queue.
#[derive(Debug)]
pub(super) struct Packet {
    /// Its number, for the verdict.
    pub id: u32,
    /// Its mark.
    pub mark: u32,
    /// The packet from its IP header on, without data.
    pub bytes: Vec<u8>,
    /// Bytes of the packet that the kernel holds.
    pub length: u32,
}

/// A held SYN.
#[derive(Debug)]
pub(super) struct Held {
    /// The SYN.
    pub packet: Packet,
    /// The mark of its listener.
    pub listener: u32,
    /// The connection that it opens.
    pub arrival: Arrival,
    /// The call that its client waits for.
    pub call: Call,
    /// The number of the thread that watches the call.
    pub thread: usize,
    /// By which this thread watches it.
    pub sockets: Option<SourceSockets>,
    /// When Midspan gives the server up.
    pub deadline: Option<Instant>,
    /// Memory of the budget that is set aside for it.
    pub memory: SetAside,
    /// How often the client has repeated the SYN.
    pub repetitions: u32,
}

/// What happens while a SYN is held.
#[derive(Debug)]
pub(super) enum Call {
    /// This socket is connecting to the server.
    Server(LegSocket),
    /// A route of the overlay is called.
    Route(Box<HeldRoute>),
}

/// A call by a route of the overlay.
#[derive(Debug)]
pub(super) struct HeldRoute {
    /// The call.
    pub call: RouteCall,
    /// When the first node has to be connected, if another route may be tried then.
    pub connect_by: Option<Instant>,
    /// How the first flight to the first node is spread.
    pub flight: Option<FirstFlight>,
    /// Memory that is set aside for a large receive window of the leg to the first node.
    pub window: Option<SetAside>,
    /// The routes that have failed before.
    pub tried: Vec<Route>,
}

impl Call {
    /// The socket that is watched.
    pub fn socket(&self) -> &OwnedFd {
        match self {
            Self::Server(server) => server,
            Self::Route(route) => route.call.socket(),
        }
    }

    /// Whether it goes by a route of the overlay.
    pub const fn is_by_route(&self) -> bool {
        matches!(self, Self::Route(_))
    }

    /// Whether the server has answered, although that has not been handled yet. The answer of a route shows
    /// only when it is handled.
    pub fn is_answered(&self) -> bool {
        match self {
            Self::Server(server) => rustix::net::getpeername(server).is_ok(),
            Self::Route(_) => false,
        }
    }
}

impl Held {
    /// When it has to be handled without an event. While it is in the table, this does not change.
    fn due(&self) -> Option<Instant> {
        let connect_by = match &self.call {
            Call::Route(route) if route.call.is_connecting() => route.connect_by,
            Call::Route(_) | Call::Server(_) => None,
        };
        connect_by.into_iter().chain(self.deadline).min()
    }
}

/// All held SYNs, found by token, by connection and by deadline.
#[derive(Debug, Default)]
pub(super) struct HeldSyns {
    held: BTreeMap<u64, Held>,
    tokens: BTreeMap<Request, u64>,
    deadlines: BTreeSet<(Instant, u64)>,
}

impl HeldSyns {
    /// Adds a SYN with a new token.
    pub fn insert(&mut self, token: u64, held: Held) {
        if let Some(due) = held.due() {
            self.deadlines.insert((due, token));
        }
        self.tokens.insert(held.arrival.request, token);
        self.held.insert(token, held);
    }

    /// The held SYN of a connection.
    pub fn of(&mut self, connection: Request) -> Option<(u64, &mut Held)> {
        let token = *self.tokens.get(&connection)?;
        Some((token, self.held.get_mut(&token)?))
    }

    /// The SYNs whose calls this thread watches, with their tokens.
    pub fn of_thread(&mut self, thread: usize) -> impl Iterator<Item = (u64, &mut Held)> {
        let of_thread = self
            .held
            .iter_mut()
            .filter(move |(_, held)| held.thread == thread);
        of_thread.map(|(token, held)| (*token, held))
    }

    /// Removes and returns a SYN.
    pub fn take(&mut self, token: u64) -> Option<Held> {
        let held = self.held.remove(&token)?;
        self.tokens.remove(&held.arrival.request);
        if let Some(due) = held.due() {
            self.deadlines.remove(&(due, token));
        }
        Some(held)
    }

    /// Removes and returns the SYN of a connection.
    pub fn take_of(&mut self, connection: Request) -> Option<Held> {
        self.take_if(connection, |_| true)
    }

    /// Removes and returns the SYN of a connection if it is `wanted`.
    pub fn take_if(
        &mut self,
        connection: Request,
        wanted: impl FnOnce(&Held) -> bool,
    ) -> Option<Held> {
        let (token, held) = self.of(connection)?;
        match wanted(held) {
            true => self.take(token),
            false => None,
        }
    }

    /// Removes and returns a SYN whose deadline has passed, with its token.
    pub fn take_due(&mut self, now: Instant) -> Option<(u64, Held)> {
        let (due, token) = *self.deadlines.first()?;
        if due > now {
            return None;
        }
        self.deadlines.pop_first();
        Some((token, self.take(token)?))
    }

    /// Removes and returns the SYNs of all listeners whose marks are not `known`.
    pub fn take_others(&mut self, known: impl Fn(u32) -> bool) -> Vec<Held> {
        let others: Vec<u64> = (self.held.iter())
            .filter(|(_, held)| !known(held.listener))
            .map(|(token, _)| *token)
            .collect();
        others
            .into_iter()
            .filter_map(|token| self.take(token))
            .collect()
    }

    /// Removes and returns the SYNs of these connections.
    pub fn take_meant(&mut self, is_meant: impl Fn(Request) -> bool) -> Vec<Held> {
        let meant: Vec<u64> = (self.tokens.iter())
            .filter(|(connection, _)| is_meant(**connection))
            .map(|(_, token)| *token)
            .collect();
        meant
            .into_iter()
            .filter_map(|token| self.take(token))
            .collect()
    }

    /// The next deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns all.
    pub fn take_all(&mut self) -> Vec<Held> {
        self.tokens.clear();
        self.deadlines.clear();
        std::mem::take(&mut self.held).into_values().collect()
    }
}
