//! The negotiation with one client.

mod hopping;
mod listening;
mod refusing;
mod registered;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use midspan_explicit::hop::{Hop, HopAnswer, HopFailure};
use midspan_explicit::http::{Exchange, Http};
use midspan_explicit::proxy_protocol;
use midspan_explicit::socks5::Socks5;
use midspan_explicit::{Credentials, Destination, Failure, Host, HostName, Outcome};
use midspan_policy::memory_share::EACH_SESSION;
use midspan_policy::overlay::{NextHop, NodeName, Route};
use midspan_policy::{Handshake, Request};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::attempts::{ConnectAttempts, ConnectState};
use super::hop_call::HopCall;
use super::lookups::LONGEST_LOOK_UP;
use super::{Reason, flush};
use crate::arrival::{Arrival, NewClient};
use crate::exchange::{Framed, Kept};
use crate::limits::{Seat, SetAside, Spare};
use crate::listener::{Language, Negotiation};
use crate::observation::LastReading;
use crate::register::{Registration, SharedSocket};
use crate::system;
pub use hopping::CallLimits;
use hopping::NextNode;

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
    /// Its deadline among the timers.
    pub timer: Option<Time>,
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
    /// The leg to a node to which a warm connection was dead. From then on, new ones are used.
    pub dead_warm: Option<NodeName>,
    /// When Midspan began to connect, and how long it took.
    connect_begin: Time,
    connect_time: TimeSpan,
    /// The HTTP request and answer that the session will carry, if it carries nothing else.
    exchange: Option<Exchange>,
    /// The client has had an answer, and has not begun another request.
    is_idle: bool,
    /// The kernel may hold data of the client: it was not read to the end, or there was an event
    /// since.
    may_have_more: bool,
    /// The counters of the client's connection that have already been added to the statistics.
    reading: LastReading,
    deadline: Time,
    /// Its place among the sessions.
    seat: Seat,
    /// Its part of the memory budget.
    memory: SetAside,
    /// Its entry in the register of its thread, once the thread has it.
    registration: Option<Registration>,
}

enum Speaker {
    Nobody(SocketAddr),
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
    /// Decide which of these addresses are permitted, by [`NegotiatingClient::connect`],
    /// [`NegotiatingClient::pass_to`] or [`NegotiatingClient::fail`].
    Decide(Vec<SocketAddr>),
    /// Decide whether to connect to this node, by [`NegotiatingClient::pass_to`] or
    /// [`NegotiatingClient::fail`].
    Pass(Box<NextHop>),
    /// Answer a node with what this node reports, by [`NegotiatingClient::report`].
    Report,
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

/// The start of a session.
pub struct Joined {
    pub arrival: Arrival,
    pub client: SharedSocket,
    pub server: SharedSocket,
    pub listener: usize,
    /// The server's name, if the client gave one.
    pub name: Option<Box<str>>,
    /// The first bytes for the server and for the client.
    pub first: [Vec<u8>; 2],
    /// The HTTP exchange that the session carries, if it carries nothing else.
    pub framed: Option<Framed>,
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
            seat: client.seat,
            registration: None,
            memory,
            listener,
            timer: None,
            begin: now,
            credentials,
            peer: canonical(client.address),
            client_address: canonical(client.address),
            original_destination: None,
            next_node: None,
            leaves_here: false,
            chosen_address: None,
            tried: Vec::new(),
            dead_warm: None,
            connect_begin: now,
            connect_time: TimeSpan::ZERO,
            language: match settings.language {
                Language::Fixed(server) => Speaker::Nobody(server),
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
            is_idle: false,
            may_have_more: true,
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

    /// The address of the connection, if it comes directly from the client.
    pub fn caller(&self) -> Option<IpAddr> {
        let is_client = self.settings.client_is_peer();
        is_client.then(|| self.client_address.ip())
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
                        self.reached(address, server, now)
                    }
                    (_, ConnectState::Failed(error)) => {
                        let tried = self.wanted();
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

    fn expire(&mut self, now: Time) -> Option<Step> {
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

    /// If the client has reset its connection, it needs no server. A FIN alone is no reason to
    /// stop: the client may still wait for the answer.
    fn watch_client(&mut self) -> Step {
        self.may_have_more = true;
        if let Ok(Err(_)) | Err(_) = system::socket_error(&self.client) {
            return Step::End(Some(Reason::Gone));
        }
        self.answer_now()
    }

    /// The server is connected, over further nodes with `answer`. The first bytes for both ends are sent
    /// as far as there is room; the rest goes into the session. If a socket fails, the session handles
    /// the error.
    fn connected(
        &mut self,
        address: SocketAddr,
        server: SharedSocket,
        answer: Option<&HopAnswer>,
    ) -> Step {
        match &self.language {
            Speaker::Nobody(_) => {}
            Speaker::Socks5(socks) => {
                let own = system::own_address(&server).unwrap_or(address);
                let outcome = Outcome::Connected(canonical(own));
                self.to_client.extend(socks.answer(outcome));
            }
            Speaker::Http(http) => {
                let outcome = Outcome::Connected(address);
                self.to_client.extend(http.answer(outcome));
            }
            Speaker::Hop(hop) => self.to_client.extend(match answer {
                Some(answer) => hop.pass_on(answer, self.connect_time),
                None => hop.answer(Outcome::Connected(address), self.connect_time),
            }),
        }
        let mut first = match self.settings.header {
            Some(version) => {
                let original_destination = self.original_destination.unwrap_or(address);
                proxy_protocol::write(version.into(), self.client_address, original_destination)
            }
            None => Vec::new(),
        };
        first.append(&mut self.to_server);
        if self.exchange.is_none() {
            first.append(&mut self.input);
        }
        self.to_server = first;
        let _ = flush(&self.client, &mut self.to_client);
        let _ = flush(&server, &mut self.to_server);
        self.stage = Stage::Connected(address, server);
        Step::Join
    }

    /// The start of the session; `None` before [`Step::Join`].
    pub fn into_joined(self) -> Option<Joined> {
        let name = self.name();
        let Stage::Connected(address, server) = self.stage else {
            return None;
        };
        let request = Request {
            client: self.client_address,
            server: address,
        };
        let arrival = Arrival {
            seat: Some(self.seat),
            ..Arrival::new(request, Handshake::EndToEnd, self.begin)
        };
        let kept = Kept {
            settings: self.settings,
            credentials: self.credentials,
            original_destination: self.original_destination,
            leftover: self.input,
            reading: self.reading,
        };
        Some(Joined {
            arrival,
            client: self.client,
            server,
            listener: self.listener,
            name,
            first: [self.to_server, self.to_client],
            framed: self.exchange.map(|exchange| Framed::new(exchange, kept)),
        })
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
            Speaker::Nobody(server) => *server,
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

/// Replaces an IPv4 address inside an IPv6 address by the IPv4 address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
