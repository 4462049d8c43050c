//! From a waiting connection to a session: accept, call the policy, set both sockets up, connect to
//! the server.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_linux::tcp;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::overlay::{RouteDecision, RoutePolicy, Wanted};
use midspan_policy::{Admission, Handshake, LegStart, Policy, Request, Start};
use midspan_units::{Dscp, Time, TimeSpan};
use rustix::io::Errno;

use super::arrival::{Arrival, NewClient};
use super::crowd::Crowd;
use super::destination::{Finder, Found, Negotiator, ServerLegSource};
use super::knowledge::SharedKnowledge;
use super::leg_options::{self, LegError};
use super::legs::{self, Connecting, InputStart, Legs};
use super::limits::{Limits, Places, Shortage};
use super::listener::{Listener, Negotiation};
use super::narrow::{NarrowLeg, Profiles};
use super::observation::ListenerCounters;
use super::openings::Released;
use super::overlay::SharedOverlay;
use super::register::{Register, SharedSocket};
use super::remembered::Remembered;
use super::server_pool::ServerPool;
use super::session::{Buffers, Session};
use super::settings::Error;
use super::sharing::ListeningSocket;
use super::suspects::SharedSuspects;
use super::system;

/// One listening socket of one thread, and the policy for its connections.
pub struct Acceptor {
    /// The listener to which it belongs.
    pub id: ListenerId,
    /// Sessions that were accepted here and still exist; they have this acceptor's policy.
    pub sessions: usize,
    /// When the socket is closed, after the connections that wait have been accepted.
    pub retire_at: Option<Time>,
    /// The listener.
    pub listener: Arc<Listener>,
    /// The listening socket, while accepting.
    pub socket: Option<SharedSocket>,
    /// The threads that accept from the same socket, if there are several.
    pub sharing: Option<Range<usize>>,
    /// The socket is not watched, because the other threads have fewer sessions.
    pub is_left_to_others: bool,
    /// Decides about the sessions.
    pub policy: Box<dyn Policy + Send>,
    /// What sessions have left for later ones, of all listeners.
    pub knowledge: SharedKnowledge,
    /// Connections that may have caused a panic.
    pub suspects: SharedSuspects,
    /// What is known of the overlay.
    pub overlay: SharedOverlay,
    /// The servers of its sessions, if the listener has several.
    pub servers: Option<Arc<ServerPool>>,
    /// Counts its sessions.
    pub counters: Arc<ListenerCounters>,
    /// Its sessions' buffers while memory is not short.
    pub buffers: Buffers,
    pub places: Arc<Places>,
    /// Accepting is paused until then.
    pub paused_until: Option<Time>,
    /// Bytes of a session that has just begun here, as measured at the last one, and until when
    /// this measurement is used.
    pub fresh: Option<(Time, u64)>,
    /// An estimate of how many connections wait at a time.
    pub crowd: Crowd,
    finder: Finder,
    /// Chooses the routes of its sessions, if they may go through an overlay.
    routes: Option<Box<dyn RoutePolicy + Send>>,
    profiles: Profiles,
    /// Connections to servers that were begun; chooses the address of the next.
    connected: usize,
    /// Whether the log already contains that the kernel refused an option.
    warned: bool,
}

/// The number of a listener of one relay, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(super) u64);

/// The parts of an acceptor, some of which are shared by the listener's acceptors.
pub struct AcceptorParts {
    /// The listener to which it belongs.
    pub id: ListenerId,
    /// The listener.
    pub listener: Arc<Listener>,
    /// The destination of its connections.
    pub finder: Finder,
    /// Decides about the sessions of this acceptor alone.
    pub policy: Box<dyn Policy + Send>,
    /// Counts the sessions of the listener.
    pub counters: Arc<ListenerCounters>,
    /// The places of its sessions.
    pub places: Arc<Places>,
    /// Verdicts about clients.
    pub verdicts: Remembered,
    /// What sessions have left for later ones, of all listeners.
    pub knowledge: SharedKnowledge,
    /// Connections that may have caused a panic.
    pub suspects: SharedSuspects,
    /// What is known of the overlay.
    pub overlay: SharedOverlay,
    /// The servers of the listener, if it has several.
    pub servers: Option<Arc<ServerPool>>,
}

/// The result of accepting a connection.
pub enum Acceptance {
    /// A session can begin; the server may not have answered yet.
    Session(Arrival, Legs),
    /// There is no room: the connection has been reset.
    Shed(Shortage),
    /// A negotiation with the client has to begin.
    Negotiation(NewClient, Negotiator),
    /// The policy refused the connection.
    Refused,
    /// Such a connection may have caused a panic.
    Suspect,
    /// The access rules do not admit this client.
    Denied(SocketAddr),
    /// The server cannot be reached; the kernel reported this at once.
    Unconnected(Arrival, Errno),
    /// The client closed the connection before it was accepted.
    Gone,
    /// No connection waits.
    Nothing,
    /// The connection still waits, because there are no descriptors or no memory for it.
    Exhausted(Errno),
}

/// The policy's decision about a client that has named a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Admitted {
    /// Longest time for connecting to the server.
    pub connect_timeout: Option<TimeSpan>,
    /// Options of the client's leg that the kernel refused.
    pub option_errors: u64,
}

/// Sets the options on a listening socket that accepted connections inherit.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn prepare_listener(socket: &OwnedFd, listener: &Listener) -> Result<(), Error> {
    let action = || format!("set up the socket of listener \"{}\"", listener.name);
    legs::set_common_options(socket).map_err(Error::kernel(action()))?;
    listener
        .set_up_listening(socket)
        .map_err(std::io::Error::other)
        .map_err(Error::kernel(action()))
}

impl Acceptor {
    /// An acceptor for one socket of a listener; the socket may be set later.
    pub fn new(socket: Option<ListeningSocket>, parts: AcceptorParts) -> Self {
        let (socket, sharing) = match socket {
            Some(ListeningSocket { socket, sharing }) => (Some(socket), sharing),
            None => (None, None),
        };
        let AcceptorParts {
            id,
            listener,
            finder,
            policy,
            counters,
            places,
            verdicts,
            knowledge,
            suspects,
            overlay,
            servers,
        } = parts;
        Self {
            id,
            sessions: 0,
            retire_at: None,
            socket,
            sharing,
            is_left_to_others: false,
            policy,
            knowledge,
            suspects,
            overlay,
            servers,
            counters,
            buffers: Buffers::from(&listener.session),
            places,
            paused_until: None,
            fresh: None,
            crowd: Crowd::default(),
            finder,
            routes: listener.negotiation().and_then(Negotiation::routes),
            profiles: Profiles {
                listener: Arc::clone(&listener),
                verdicts,
            },
            connected: 0,
            warned: false,
            listener,
        }
    }

    /// Sets the options that connections inherit on a socket that already listens.
    ///
    /// # Errors
    /// An option that the kernel refuses.
    pub fn set_up_again(&self) -> Result<(), LegError> {
        match &self.socket {
            Some(socket) => self.listener.change_listening(socket),
            None => Ok(()),
        }
    }

    /// When a session ends if it is still until then.
    pub fn still_after(&self, session: &Session) -> Option<Time> {
        let limits = &self.listener.limits;
        let timeout = match session.is_half_closed() {
            true => limits.half_closed_timeout,
            false => limits.idle_timeout,
        };
        timeout.map(|timeout| session.upkeep.still_after(timeout))
    }

    /// Accepts one waiting connection and connects to its server.
    pub fn open(&mut self, now: Time, register: &Register) -> Acceptance {
        let limits = register.limits();
        let (client, address, class) = match self.accept() {
            Ok(accepted) => accepted,
            Err(error) => return not_accepted(error),
        };
        // The listener's server has become the listener itself: each connection would open another
        // one, without end.
        if crate::machine::is_looping(&self.listener.name) {
            return Acceptance::Refused;
        }
        if let Some(negotiator) = self.finder.negotiator() {
            let negotiator = negotiator.clone();
            // Otherwise the first bytes will contain the client.
            let known = negotiator.settings.client_is_peer();
            let known = known.then(|| address.ip());
            return match limits.take_of(&self.places, known) {
                Ok(seat) => {
                    // Before the client gets the first byte of the negotiation.
                    let class = self
                        .listener
                        .set_up_leg(&client, &LegStart::default(), class);
                    self.note(class);
                    let client = NewClient {
                        socket: Arc::new(client),
                        address,
                        seat,
                    };
                    Acceptance::Negotiation(client, negotiator)
                }
                Err(shortage) => Acceptance::Shed(shortage),
            };
        }
        let Some(found) = self.finder.find(&client, address) else {
            return match self.finder.admits(address) {
                true => Acceptance::Refused,
                false => Acceptance::Denied(address),
            };
        };
        let (mut arrival, source, is_decided) = match found {
            Found::Released(Released {
                arrival, server, ..
            }) => (arrival, ServerLegSource::Connecting(server), true),
            Found::Undecided(server, source) => {
                let request = Request {
                    client: address,
                    server,
                };
                (Arrival::new(request, Handshake::Early, now), source, false)
            }
        };
        if arrival.seat.is_none() {
            match limits.take_of(&self.places, Some(address.ip())) {
                Ok(seat) => arrival.seat = Some(seat),
                // Dropping the client resets it: the listener's SO_LINGER is inherited.
                Err(shortage) => return Acceptance::Shed(shortage),
            }
        }
        if !is_decided {
            if self.suspects.includes(now, &arrival.request) {
                return Acceptance::Suspect;
            }
            match self.policy.admit(now, &arrival.request) {
                Admission::Refuse => return Acceptance::Refused,
                Admission::Bypass => arrival.is_bypassed = true,
                Admission::Intercept {
                    connect_timeout, ..
                } => arrival.connect_timeout = connect_timeout,
            }
        }
        register.put_opening_in_hand(Some(arrival.request));
        let acceptance = self.connect((client, class), arrival, source, now, limits);
        register.put_opening_in_hand(None);
        acceptance
    }

    /// Accepts one waiting connection: the socket, the client's address, and the class of its SYN.
    ///
    /// # Errors
    /// Those of `accept4(2)`; EAGAIN if no connection waits.
    fn accept(&self) -> rustix::io::Result<(OwnedFd, SocketAddr, Dscp)> {
        let socket = self.socket.as_ref().ok_or(Errno::AGAIN)?;
        let (client, address) = system::accept(socket)?;
        let address = address.and_then(|address| address.try_into().ok());
        let class = self.listener.class_of_syn(&client);
        Ok((client, address.ok_or(Errno::CONNABORTED)?, class))
    }

    fn connect(
        &mut self,
        (client, class): (OwnedFd, Dscp),
        arrival: Arrival,
        source: ServerLegSource,
        now: Time,
        limits: &Limits,
    ) -> Acceptance {
        let request = arrival.request;
        let start = match (arrival.is_bypassed, &source) {
            (true, _) => Start::default(),
            // The gate has set the server leg up.
            (false, ServerLegSource::Connecting(_)) => Start {
                client: self.start_client(now, &request, arrival.start),
                server: LegStart {
                    first_flight: arrival.server_flight,
                    ..LegStart::from(&self.listener.session.server)
                },
            },
            (false, ServerLegSource::OwnAddress | ServerLegSource::ClientAddress) => {
                let window = arrival.start;
                let policy = &mut self.policy;
                let mut start = policy.start(now, &request, window, &mut self.knowledge);
                limits.bound_window(&mut start.server);
                start
            }
        };
        let [client_pacing, server_pacing] = [&start.client, &start.server].map(InputStart::from);
        let mut option_errors = self.set_up_client(&client, start.client, class);
        let (narrow, errors) = match arrival.is_bypassed {
            false => {
                let decides = (&mut *self.policy as &mut dyn Policy, &mut self.knowledge);
                let address = request.client.ip();
                let bound = arrival.start.and_then(|start| start.bound);
                NarrowLeg::begin(&client, address, &self.profiles, decides, bound, now)
            }
            true => (None, 0),
        };
        option_errors += errors;
        match self.connect_server(source, request, start.server, class) {
            Ok(connecting) => Acceptance::Session(
                arrival,
                Legs {
                    client,
                    server: connecting.socket,
                    client_pacing,
                    server_pacing,
                    narrow,
                    option_errors: option_errors + connecting.option_errors,
                },
            ),
            // Without a server, the client would wait for nothing.
            Err(error) if is_shortage(error) => Acceptance::Shed(Shortage::Descriptors),
            Err(error) => {
                tracing::debug!(
                    listener = self.listener.name,
                    "{} cannot be reached: {error}",
                    request.server
                );
                Acceptance::Unconnected(arrival, error)
            }
        }
    }

    fn start_client(
        &mut self,
        now: Time,
        request: &Request,
        window: Option<LearnedStart>,
    ) -> LegStart {
        let known = &mut self.knowledge;
        self.policy.client_start(now, request, window, known)
    }

    /// A server leg that is being connected, or is connected. `start` is what it is set to if it is
    /// new.
    ///
    /// # Errors
    /// Those of `socket(2)`, `bind(2)`, `connect(2)`.
    fn connect_server(
        &mut self,
        source: ServerLegSource,
        request: Request,
        start: LegStart,
        class: Dscp,
    ) -> rustix::io::Result<Connecting> {
        match source {
            ServerLegSource::Connecting(socket) => Ok(Connecting {
                socket,
                option_errors: 0,
            }),
            ServerLegSource::ClientAddress => {
                legs::connect_as_client(request, 0, &self.listener, &start, class)
            }
            ServerLegSource::OwnAddress => self.connect_as_proxy(request.server, &start, class),
        }
    }

    /// Connects from the next of the listener's addresses. An address without a free port for this
    /// server, or one that the machine has lost, leads to the address after it.
    fn connect_as_proxy(
        &mut self,
        server: SocketAddr,
        start: &LegStart,
        class: Dscp,
    ) -> rustix::io::Result<Connecting> {
        let listener = Arc::clone(&self.listener);
        let turn = self.connected;
        self.connected = turn.wrapping_add(1);
        let mut result = Err(Errno::ADDRNOTAVAIL);
        for source in listener.source.in_turn(server, turn) {
            let set_up = |socket: &OwnedFd| self.set_up_server(socket, start, class);
            result = legs::connect_as_proxy(server, source, set_up);
            if !matches!(result, Err(Errno::ADDRNOTAVAIL)) {
                break;
            }
        }
        result
    }

    /// Accepts one waiting connection with a descriptor of the reserve, and resets it; returns
    /// whether there was one.
    pub fn shed(&self, reserve: &mut Vec<OwnedFd>) -> rustix::io::Result<bool> {
        let (Some(socket), Some(descriptor)) = (&self.socket, reserve.pop()) else {
            return Err(Errno::MFILE);
        };
        drop(descriptor);
        // Dropping the client resets it.
        match system::accept(socket) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a fault may have happened in a negotiation of this client with this listener, before the
    /// client had named a server.
    pub fn is_suspect(&self, client: SocketAddr, now: Time) -> bool {
        let server = self.listener.listen;
        server.is_some_and(|server| self.suspects.includes(now, &Request { client, server }))
    }

    /// By which nodes of the overlay a session goes.
    pub fn route(&mut self, now: Time, wanted: &Wanted<'_>) -> RouteDecision {
        match &mut self.routes {
            Some(routes) => routes.route(now, wanted, &mut self.overlay.known()),
            None => RouteDecision::Here,
        }
    }

    /// Whether a client may connect to the server that it named; `None` if the policy refuses.
    pub fn admit(&mut self, now: Time, client: &OwnedFd, request: &Request) -> Option<Admitted> {
        if self.suspects.includes(now, request) {
            return None;
        }
        let connect_timeout = match self.policy.admit(now, request) {
            Admission::Refuse => return None,
            Admission::Bypass => return Some(Admitted::default()),
            Admission::Intercept {
                connect_timeout, ..
            } => connect_timeout,
        };
        let start = self.start_client(now, request, None);
        // Its class was set when it was accepted.
        Some(Admitted {
            connect_timeout,
            option_errors: self.set_up_client(client, start, Dscp::default()),
        })
    }

    /// The class of the SYN of an accepted client.
    pub fn class_of(&self, client: &OwnedFd) -> Dscp {
        self.listener.class_of_leg(client)
    }

    /// Begins to connect to one of the addresses of a server. `class` is that of the client's SYN.
    ///
    /// # Errors
    /// Those of `socket(2)` and `connect(2)`.
    pub fn connect_new(
        &mut self,
        now: Time,
        request: &Request,
        class: Dscp,
        limits: &Limits,
    ) -> rustix::io::Result<Connecting> {
        let known = &mut self.knowledge;
        let mut start = self.policy.server_start(now, request, &[], known);
        limits.bound_window(&mut start);
        self.connect_server(ServerLegSource::OwnAddress, *request, start, class)
    }

    /// The server of a session has never answered.
    pub fn note_unanswered(&self, client: &OwnedFd) {
        self.finder.note_unanswered(client);
    }

    /// Sets the options with which a client leg starts; returns the number of refused options.
    /// Options that the client's socket has inherited from the listening socket are not set again.
    fn set_up_client(&mut self, client: &OwnedFd, mut start: LegStart, class: Dscp) -> u64 {
        if start.keepalive == self.listener.session.client.keepalive {
            start.keepalive = None;
        }
        let result = self.listener.set_up_leg(client, &start, class);
        self.note(result)
    }

    fn set_up_server(&mut self, server: &OwnedFd, leg: &LegStart, class: Dscp) -> u64 {
        let mut leg = leg.clone();
        // Most sessions end before keep-alive matters: see `keep_server_alive`.
        if leg.keepalive == self.listener.session.server.keepalive {
            leg.keepalive = None;
        }
        let mut errors = u64::from(legs::set_common_options(server).is_err());
        if let Some(mark) = self.listener.marks.server {
            errors += self.note(tcp::set_mark(server, mark));
        }
        let result = self.listener.set_up_leg(server, &leg, class);
        errors + self.note(result)
    }

    /// Sets keep-alive on the server leg of a session that lasts; returns the number of refused
    /// options.
    pub fn keep_server_alive(&mut self, server: &OwnedFd) -> u64 {
        let keepalive = self.listener.session.server.keepalive;
        if keepalive.is_none() {
            return 0;
        }
        let start = LegStart {
            keepalive,
            ..LegStart::default()
        };
        self.note(leg_options::apply(server, &start))
    }

    /// Counts a refused option and logs the first: the session continues without it.
    fn note<E: std::fmt::Display>(&mut self, result: Result<(), E>) -> u64 {
        let Err(error) = result else {
            return 0;
        };
        if !self.warned {
            self.warned = true;
            tracing::warn!(
                listener = self.listener.name,
                "a leg continues without an option: {error}"
            );
        }
        1
    }
}

/// The result for a waiting connection that `accept4(2)` did not return.
const fn not_accepted(error: Errno) -> Acceptance {
    match error {
        Errno::AGAIN => Acceptance::Nothing,
        // Linux reports network errors of the new connection here: accept(2).
        Errno::CONNABORTED
        | Errno::INTR
        | Errno::PROTO
        | Errno::NETDOWN
        | Errno::NOPROTOOPT
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH
        | Errno::OPNOTSUPP
        | Errno::PERM => Acceptance::Gone,
        error => Acceptance::Exhausted(error),
    }
}

/// Whether the machine is short of a resource (otherwise the server cannot be reached).
const fn is_shortage(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
