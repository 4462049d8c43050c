//! The negotiation with one client.

mod hopping;
mod joining;
mod listening;
mod refusing;
mod registered;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use midspan_explicit::hop::{Hop, HopFailure, RowTag};
use midspan_explicit::http::{Exchange, Http};
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Destination, Failure, Host, HostName};
use midspan_policy::memory_share::EACH_SESSION;
use midspan_policy::overlay::{NextHop, NodeName, Route, Row};
use midspan_policy::servers::Server;
use midspan_policy::{Handshake, Request};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::attempts::{ConnectAttempts, ConnectState};
use super::hop_call::HopCall;
use super::lookups::LONGEST_LOOK_UP;
use super::{Reason, flush};
use crate::arrival::{Arrival, NewClient};
use crate::exchange::Kept;
use crate::limits::{Limits, Seat, SetAside, Spare};
use crate::listener::{Language, Listener, Negotiation};
use crate::observation::LastReading;
use crate::register::{Registration, SharedSocket};
use crate::server_pool::ServerChoice;
use crate::system;
pub use hopping::CallLimits;
use hopping::NextNode;
pub use joining::Joined;

/// Most bytes of a refused client that are dropped.
const PARTING_BYTES: usize = 1 << 20;

/// The same for a client that got an answer, perhaps before the end of its request: as much as the
/// kernels of both hosts hold.
const PARTING_BYTES_AFTER_ANSWER: usize = 16 << 20;

/// Time limit of connecting to a server, if the policy sets none.
const LONGEST_CONNECT: TimeSpan = TimeSpan::from_seconds(60);

/// A client, and the state of its negotiation.
pub struct NegotiatingClient {
    /// Index of its acceptor.
    pub listener: usize,
    /// When the client was accepted.
    pub begin: Time,
    /// How the listener negotiates.
    pub settings: Arc<Negotiation>,
    credentials: Option<Arc<Credentials>>,
    client: SharedSocket,
    /// The address at the other end of the client's connection.
    peer: SocketAddr,
    /// The client's address, perhaps from a PROXY header, or from another node of the overlay.
    client_address: SocketAddr,
    /// The address to which the client connected: this proxy's, or the one in a PROXY header.
    original_destination: Option<SocketAddr>,
    language: Speaker,
    stage: Stage,
    /// Bytes that were read and not yet parsed.
    input: Vec<u8>,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    destination: Option<Destination>,
    /// The next node, if the session goes through the overlay.
    next_node: Option<Box<NextNode>>,
    /// The route has been decided: the session leaves the overlay here.
    pub leaves_here: bool,
    /// The server's address, if it has decided about the route.
    pub chosen_address: Option<SocketAddr>,
    /// Routes that have failed for this request.
    pub tried: Vec<Route>,
    /// The connection is one of those over which its node may request rows again and again.
    pub is_for_rows: bool,
    /// The row of the last answer over it.
    pub reported: Option<Box<Row>>,
    /// The leg to a node to which a warm connection was dead. From then on, new ones are used.
    pub dead_warm: Option<NodeName>,
    /// Bytes of the client that the next node has passed on before its answer.
    first_data: u64,
    /// When Midspan began to connect, and how long it took.
    connect_begin: Time,
    connect_time: TimeSpan,
    /// The HTTP request and answer that the session will carry, if it carries nothing else.
    exchange: Option<Exchange>,
    /// The session is relayed without any mechanism.
    pub is_plain: bool,
    /// The client has had an answer, and has not begun another request.
    is_idle: bool,
    /// The kernel may hold data of the client: it was not read to the end, or there was an event
    /// since.
    may_have_more: bool,
    /// The client has reset its connection.
    is_reset: bool,
    /// The counters of the client's connection that have already been added to the statistics.
    reading: LastReading,
    deadline: Time,
    /// Its place among the sessions.
    seat: Arc<Seat>,
    /// Its part of the memory budget.
    memory: SetAside,
    /// The listener and the limits, if the first bytes name the client; `None` once they have been read.
    named_at: Option<(Arc<Listener>, Arc<Limits>)>,
    /// The client's prefix opens connections too fast: its request is refused.
    is_too_fast: bool,
    /// Its entry in the register of its thread, once the thread has it.
    registration: Option<Registration>,
}

enum Speaker {
    /// The server is this one, or one that is chosen.
    Nobody(Option<SocketAddr>),
    Socks5(Socks5),
    Http(Http),
    Hop(Box<Hop>),
}

enum Stage {
    /// Waits for the PROXY header, which contains the client.
    Heading,
    /// Waits for the client's request.
    Speaking,
    /// The server's addresses are looked up; then access rules and policy decide about them.
    Resolving,
    /// Midspan connects to the server, or to the next node.
    Connecting(ConnectAttempts),
    /// The next node is connected, and has not answered yet.
    Hopping(Box<HopCall>),
    /// The server has accepted the connection.
    Connected(SocketAddr, SharedSocket),
    /// The client gets the reason why there is no session.
    Refusing {
        reason: Option<Reason>,
        /// How many bytes of the client may still be dropped.
        left: usize,
        is_shut: bool,
    },
    Over,
}

/// What the thread has to do for a negotiation.
pub enum Step {
    /// Wait for an event or the deadline.
    Wait,
    /// Look this name up.
    Resolve(HostName),
    /// Choose one of the listener's servers, for [`NegotiatingClient::connect_to`] or
    /// [`NegotiatingClient::fail`].
    Choose,
    /// Decide which of these addresses are permitted, by [`NegotiatingClient::connect`],
    /// [`NegotiatingClient::pass_to`] or [`NegotiatingClient::fail`].
    Decide(Vec<SocketAddr>),
    /// Decide whether to connect to this node, by [`NegotiatingClient::pass_to`] or
    /// [`NegotiatingClient::fail`].
    Pass(Box<NextHop>),
    /// Answer a node that may have the row of this tag with what this node reports, by [`NegotiatingClient::report`].
    Report(Option<RowTag>),
    /// The route has failed, and the server is not the reason: perhaps there is another one, for
    /// [`NegotiatingClient::pass_to`], otherwise [`NegotiatingClient::give_up`].
    Again(HopFailure, Errno),
    /// Both legs are connected: [`NegotiatingClient::into_joined`].
    Join,
    /// No server has answered; the client is being informed.
    Unconnected(SocketAddr, Errno),
    /// The negotiation has ended without a session.
    End(Option<Reason>),
}

impl NegotiatingClient {
    /// A negotiation with an accepted client.
    pub fn new(
        client: NewClient,
        memory: SetAside,
        listener: usize,
        settings: Arc<Negotiation>,
        credentials: Option<Arc<Credentials>>,
        now: Time,
    ) -> Self {
        // Only a PROXY header contains it.
        let original_destination =
            (settings.header).and_then(|_| system::own_address(&client.socket));
        Self {
            original_destination: original_destination.map(canonical),
            ..Self::begin(client, memory, listener, (settings, credentials), now)
        }
    }

    /// The first bytes name the client, to which the limits apply, and which this listener may drain.
    pub fn named_at(mut self, listener: Arc<Listener>, limits: Arc<Limits>) -> Self {
        self.named_at = Some((listener, limits));
        self
    }

    /// The first bytes have named the client: whether an operator drains it. Otherwise its connection counts.
    fn is_drained(&mut self, now: Time) -> bool {
        let Some((listener, limits)) = self.named_at.take() else {
            return false;
        };
        let client = self.client_address.ip();
        if listener.drains(client) {
            return true;
        }
        self.is_too_fast = limits.admit(client, now).is_err();
        false
    }

    /// A client that returns from an exchange: for its next request, or to be closed after the
    /// answer `last`.
    pub fn again(
        client: NewClient,
        memory: SetAside,
        listener: usize,
        kept: Kept,
        last: Option<&str>,
        now: Time,
    ) -> Self {
        let Kept {
            settings,
            credentials,
            original_destination,
            leftover,
            reading,
        } = kept;
        let stage = match last {
            Some(_) => Stage::Refusing {
                reason: None,
                left: PARTING_BYTES_AFTER_ANSWER,
                is_shut: false,
            },
            None => Stage::Speaking,
        };
        Self {
            original_destination,
            stage,
            is_idle: leftover.is_empty(),
            input: leftover,
            to_client: last.unwrap_or_default().into(),
            reading,
            ..Self::begin(client, memory, listener, (settings, credentials), now)
        }
    }

    /// A client of which nothing has been read.
    fn begin(
        client: NewClient,
        memory: SetAside,
        listener: usize,
        (settings, credentials): (Arc<Negotiation>, Option<Arc<Credentials>>),
        now: Time,
    ) -> Self {
        Self {
            seat: Arc::new(client.seat),
            registration: None,
            memory,
            named_at: None,
            is_too_fast: client.is_too_fast,
            listener,
            begin: now,
            credentials,
            peer: canonical(client.address),
            client_address: canonical(client.address),
            original_destination: None,
            next_node: None,
            leaves_here: false,
            chosen_address: None,
            tried: Vec::new(),
            is_for_rows: false,
            reported: None,
            dead_warm: None,
            first_data: 0,
            connect_begin: now,
            connect_time: TimeSpan::ZERO,
            language: match settings.language {
                Language::Fixed(server) => Speaker::Nobody(Some(server)),
                Language::Original => {
                    Speaker::Nobody(system::own_address(&client.socket).map(canonical))
                }
                Language::Servers => Speaker::Nobody(None),
                Language::Socks5 => Speaker::Socks5(Socks5::new()),
                Language::Http => Speaker::Http(Http::new()),
                Language::Hop => match &settings.overlay {
                    Some(overlay) => Speaker::Hop(Box::new(Hop::new(overlay.own.clone()))),
                    // Such a listener admits no client.
                    None => Speaker::Http(Http::new()),
                },
            },
            stage: match settings.proxies {
                Some(_) => Stage::Heading,
                None => Stage::Speaking,
            },
            client: client.socket,
            input: Vec::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
            destination: None,
            exchange: None,
            is_plain: false,
            is_idle: false,
            may_have_more: true,
            is_reset: false,
            reading: LastReading::default(),
            deadline: now + settings.timeout,
            settings,
        }
    }

    /// Whether the client has had an answer and has not begun another request.
    pub const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Makes the close of the client's socket a FIN instead of a reset.
    pub fn close_in_order(&self) {
        if self.client.is_encrypted() {
            let _ = self.client.end_writing();
        }
        // If this fails, the close is a reset, which does not look like a complete answer.
        let _ = system::set_reset_on_close(&self.client, false);
    }

    /// The socket towards the client.
    pub const fn client(&self) -> &SharedSocket {
        &self.client
    }

    /// How often the client sent a wrong name or password.
    pub fn wrong_passwords(&self) -> u32 {
        self.credentials.as_ref().map_or(0, |known| known.wrong())
    }

    /// The address of the connection, if it comes directly from the client, or from a node.
    pub fn caller(&self) -> Option<IpAddr> {
        let has_share = self.settings.peer_has_share();
        has_share.then(|| self.peer.ip())
    }

    /// The address at the other end of the client's connection: the client's, a proxy's or a node's.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The client's address.
    pub const fn client_address(&self) -> SocketAddr {
        self.client_address
    }

    /// Updates the memory in use: its buffers, the two sockets, and data in the kernel.
    pub fn note_memory(&mut self) {
        let buffers = [&self.input, &self.to_client, &self.to_server];
        let buffers: usize = buffers.map(Vec::capacity).iter().sum();
        let queued = match self.may_have_more {
            true => system::memory(&self.client).map_or(0, |memory| memory.receive.bytes()),
            false => 0,
        };
        self.memory.change(EACH_SESSION + buffers as u64 + queued);
    }

    /// Counts the large receive window of an attempt to connect until the session begins. Failed attempts count
    /// until then, too.
    pub fn take_window(&mut self, attempt: &SetAside) {
        self.memory.take_window(attempt);
    }

    /// Continues the negotiation and returns what to do next. `call` begins to connect to an
    /// address; `spare` gets a descriptor in addition to those of a session.
    pub fn advance(
        &mut self,
        now: Time,
        spare: impl FnMut() -> Option<Spare>,
        call: impl FnMut(SocketAddr) -> rustix::io::Result<SharedSocket>,
    ) -> Step {
        if now >= self.deadline
            && let Some(step) = self.expire(now)
        {
            return step;
        }
        match &mut self.stage {
            Stage::Heading | Stage::Speaking => self.listen(now),
            Stage::Resolving => self.watch_client(),
            Stage::Connecting(attempts) => {
                let call = registered::adding(self.registration.as_ref(), call);
                match (attempts.has_begun(), attempts.advance(now, spare, call)) {
                    // The client has just been read.
                    (false, ConnectState::Waiting) => self.answer_now(),
                    (true, ConnectState::Waiting) => self.watch_client(),
                    (_, ConnectState::Connected(address, server)) => {
                        if let Some(chosen) = attempts.end(now, Some(address)) {
                            self.destination = chosen.server().as_ref().and_then(name_of);
                            self.seat.set_server(chosen);
                        }
                        self.reached(address, server, now)
                    }
                    (_, ConnectState::Failed(error)) => {
                        let tried = attempts.tried().unwrap_or_else(|| self.wanted());
                        self.fail_to_connect(tried, error, now)
                    }
                }
            }
            Stage::Hopping(_) => self.await_answer(now),
            Stage::Connected(..) => Step::Join,
            Stage::Refusing { .. } => self.part(),
            Stage::Over => Step::End(None),
        }
    }

    /// When to continue without an event.
    pub fn next(&self) -> Time {
        match &self.stage {
            Stage::Connecting(attempts) => attempts
                .next()
                .map_or(self.deadline, |next| next.min(self.deadline)),
            _ => self.deadline,
        }
    }

    /// Handles the addresses of the name.
    pub fn handle_addresses(&mut self, addresses: Option<Vec<IpAddr>>, now: Time) -> Step {
        if !matches!(self.stage, Stage::Resolving) {
            return Step::Wait;
        }
        let port = self.destination.as_ref().map_or(0, |wanted| wanted.port);
        match addresses {
            None => self.fail(Failure::Shortage, Some(Reason::Overload), now),
            Some(addresses) if addresses.is_empty() => {
                self.fail(Failure::NameNotFound, Some(Reason::Name), now)
            }
            Some(addresses) => {
                let with_port = |address: IpAddr| SocketAddr::new(address.to_canonical(), port);
                Step::Decide(addresses.into_iter().map(with_port).collect())
            }
        }
    }

    /// Connects to the server at these addresses; [`Self::advance`] has to follow.
    pub fn connect(&mut self, addresses: Vec<SocketAddr>, timeout: Option<TimeSpan>, now: Time) {
        self.deadline = now + timeout.unwrap_or(LONGEST_CONNECT);
        self.connect_begin = now;
        self.stage = Stage::Connecting(ConnectAttempts::new(addresses, now));
    }

    /// Connects to one of these servers. The first has half of the time, because the second must not be
    /// without any.
    pub fn connect_to(&mut self, servers: ServerChoice, timeout: Option<TimeSpan>, now: Time) {
        let limit = timeout.unwrap_or(LONGEST_CONNECT);
        self.deadline = now + limit;
        self.connect_begin = now;
        let attempts = ConnectAttempts::to_servers(servers, limit / 2, now);
        self.stage = Stage::Connecting(attempts);
    }

    fn expire(&mut self, now: Time) -> Option<Step> {
        if let Stage::Connecting(attempts) = &mut self.stage {
            attempts.end(now, None);
        }
        Some(match &self.stage {
            Stage::Heading | Stage::Speaking if self.is_idle => {
                self.close_in_order();
                Step::End(None)
            }
            Stage::Heading | Stage::Speaking => Step::End(Some(Reason::Silent)),
            Stage::Resolving => self.fail(Failure::TimedOut, Some(Reason::Name), now),
            Stage::Connecting(attempts) => {
                let tried = attempts.tried().unwrap_or_else(|| self.wanted());
                self.fail_to_connect(tried, Errno::TIMEDOUT, now)
            }
            Stage::Hopping(_) => return self.expire_hop(now),
            // From here on, the session's time limits apply.
            Stage::Connected(..) => return None,
            Stage::Refusing { reason, .. } if self.to_client.is_empty() => {
                // The client had enough time: the close is a reset only if it still sends.
                self.close_in_order();
                Step::End(*reason)
            }
            // The client did not get the complete answer, so the close must not look like its end.
            Stage::Refusing { reason, .. } => Step::End(*reason),
            Stage::Over => Step::End(None),
        })
    }

    /// Sends an answer that the client needs before its next message. It is short, so the socket
    /// has room.
    fn answer_now(&mut self) -> Step {
        match flush(&self.client, &mut self.to_client) {
            Ok(()) => Step::Wait,
            Err(_) => Step::End(Some(Reason::Gone)),
        }
    }

    /// The client's request is complete, or its session takes another route.
    pub fn begin_resolving(&mut self, now: Time) {
        self.stage = Stage::Resolving;
        self.deadline = now + LONGEST_LOOK_UP;
    }

    /// If the client has reset its connection, it needs no server; but what it has sent over an overlay before still
    /// arrives there. A FIN alone is no reason to stop: the client may still wait for the answer.
    fn watch_client(&mut self) -> Step {
        self.may_have_more = true;
        if let Ok(Err(_)) | Err(_) = system::socket_error(&self.client) {
            self.is_reset = true;
        }
        match self.is_reset {
            true if self.has_data_of_client() => Step::Wait,
            true => Step::End(Some(Reason::Gone)),
            false => self.answer_now(),
        }
    }

    /// The arrival for a server that has not answered yet. The client gets the success when the
    /// server has answered.
    pub const fn arrival(&self, server: SocketAddr) -> Arrival {
        let request = Request {
            client: self.client_address,
            server,
        };
        Arrival::new(request, Handshake::EndToEnd, self.begin)
    }

    /// The requested server, as far as its address is known; the next node if there is one.
    fn wanted(&self) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        if let Some(node) = &self.next_node {
            return node.next.address;
        }
        match &self.language {
            Speaker::Nobody(Some(server)) => *server,
            _ => self.destination.as_ref().map_or(nowhere, |wanted| {
                wanted
                    .address()
                    .unwrap_or_else(|| SocketAddr::new(nowhere.ip(), wanted.port))
            }),
        }
    }

    /// The requested server, if it is not the peer of the server leg: the client gave a name, or the
    /// session goes through the overlay.
    pub fn name(&self) -> Option<Box<str>> {
        let requested = self.requested()?;
        let is_named = matches!(requested.host, Host::Name(_)) || self.next_node.is_some();
        is_named.then(|| requested.to_string().into())
    }
}

/// The name of a server, if it has one.
pub fn name_of(server: &Server) -> Option<Destination> {
    match server {
        Server::Address(_) => None,
        Server::Name(name, port) => {
            let name = HostName::new(name).ok()?;
            Destination::new(Host::Name(name), *port).ok()
        }
    }
}

/// Replaces an IPv4 address inside an IPv6 address by the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
