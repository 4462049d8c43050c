//! From a waiting connection to a session: accept, call the policy, set both sockets up, connect to
//! the server.

mod admission;
mod server_leg;

pub use server_leg::NewLegSource;

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_policy::learned_start::LearnedStart;
use midspan_policy::overlay::{RouteDecision, RoutePolicy, Wanted};
use midspan_policy::suspects::Treatment;
use midspan_policy::{Handshake, LegStart, Policy, Request, Start};
use midspan_units::{Dscp, Time};
use rustix::io::Errno;

use super::acceptance::{Acceptance, is_shortage};
use super::arrival::{Accepted, Arrival, NewClient};
use super::crowd::Crowd;
use super::destination::{Finder, Found, Negotiator, ServerLegSource};
use super::knowledge::SharedKnowledge;
use super::leg_options::LegError;
use super::legs::{self, InputStart, Legs};
use super::limits::{Limits, Places, Seat, Shortage};
use super::listener::{Listener, Negotiation};
use super::narrow::{NarrowLeg, Profiles};
use super::observation::ListenerCounters;
use super::openings::Released;
use super::overlay::SharedOverlay;
use super::register::{InHand, Register, SharedSocket};
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
    /// For clients of a transparent listener that are answered before their route is called.
    entrance: Option<Negotiator>,
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
        let entrance = Negotiator::to_overlay(&listener);
        let negotiation = match &entrance {
            Some(entrance) => Some(entrance.settings.as_ref()),
            None => listener.negotiation(),
        };
        Self {
            id,
            sessions: 0,
            retire_at: None,
            socket,
            sharing,
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
            routes: negotiation.and_then(Negotiation::routes),
            entrance,
            profiles: Profiles {
                listener: Arc::clone(&listener),
                verdicts,
            },
            connected: 0,
            warned: false,
            listener,
        }
    }

    /// The access profiles of its clients.
    pub const fn profiles(&self) -> &Profiles {
        &self.profiles
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

    /// Decides about an accepted connection and connects to its server.
    pub fn open(&mut self, accepted: Accepted, now: Time, register: &Register) -> Acceptance {
        let limits = register.limits();
        let Accepted {
            client,
            address,
            class,
        } = accepted;
        // The listener's server has become the listener itself: each connection would open another
        // one, without end.
        if crate::machine::is_looping(&self.listener.name) {
            return Acceptance::Refused;
        }
        if self.listener.drains_peer(address.ip()) {
            return Acceptance::Drained;
        }
        if let Some(negotiator) = self.finder.negotiator() {
            let negotiator = negotiator.clone();
            // Otherwise the first bytes will contain the client.
            let known = negotiator.settings.client_is_peer();
            let known = known.then(|| address.ip());
            let is_too_fast = known.is_some_and(|client| limits.admit(client, now).is_err());
            return match limits.take_of(&self.places, known) {
                Ok(seat) => {
                    // Before the client gets the first byte of the negotiation.
                    let class = self
                        .listener
                        .set_up_leg(&client, &LegStart::default(), class);
                    self.note(class);
                    let client = NewClient {
                        socket: Arc::new(client.into()),
                        address,
                        seat,
                        is_too_fast,
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
                arrival,
                server: Some(server),
                ..
            }) => (arrival, ServerLegSource::Connecting(server), true),
            Found::Released(Released {
                arrival,
                server: None,
                ..
            }) => return self.enter((client, class), arrival, now, limits),
            Found::Undecided(server, source) => {
                let request = Request {
                    client: address,
                    server,
                };
                (Arrival::new(request, Handshake::Early, now), source, false)
            }
        };
        if arrival.seat.is_none() {
            match self.take_seat(limits, address.ip(), now) {
                Ok(seat) => arrival.seat = Some(seat),
                // Dropping the client resets it: the listener's SO_LINGER is inherited.
                Err(shortage) => return Acceptance::Shed(shortage),
            }
        }
        if !is_decided {
            match self.suspects.treatment(now, &arrival.request) {
                Treatment::Usual => {}
                Treatment::Plain => arrival.is_bypassed = true,
                Treatment::Refused => return Acceptance::Suspect,
            }
        }
        register.put_opening_in_hand(Some(InHand {
            request: arrival.request,
            is_plain: arrival.is_bypassed,
        }));
        let acceptance = match is_decided || self.is_admitted(now, &mut arrival) {
            true => self.connect((client, class), arrival, source, now, limits),
            false => Acceptance::Refused,
        };
        register.put_opening_in_hand(None);
        acceptance
    }

    /// A client that is answered before its route is called. The gate has decided that it goes by one.
    fn enter(
        &mut self,
        (client, class): (OwnedFd, Dscp),
        arrival: Arrival,
        now: Time,
        limits: &Arc<Limits>,
    ) -> Acceptance {
        let Some(entrance) = self.entrance.clone() else {
            return Acceptance::Refused;
        };
        let address = arrival.request.client;
        let seat = match arrival.seat {
            Some(seat) => Ok(seat),
            None => self.take_seat(limits, address.ip(), now),
        };
        let seat = match seat {
            Ok(seat) => seat,
            Err(shortage) => return Acceptance::Shed(shortage),
        };
        let result = (self.listener).set_up_leg(&client, &LegStart::default(), class);
        self.note(result);
        let client = NewClient {
            socket: Arc::new(client.into()),
            address,
            seat,
            is_too_fast: false,
        };
        Acceptance::Negotiation(client, entrance)
    }

    /// A place for a client that does not negotiate. The gate counts the connections of a transparent listener
    /// at their SYN, when they can still pass untouched.
    fn take_seat(&self, limits: &Limits, client: IpAddr, now: Time) -> Result<Seat, Shortage> {
        if !self.listener.is_transparent() {
            limits.admit(client, now)?;
        }
        limits.take_of(&self.places, Some(client))
    }

    /// Accepts one waiting connection.
    ///
    /// # Errors
    /// Those of `accept4(2)`; EAGAIN if no connection waits.
    pub fn accept(&self) -> rustix::io::Result<Accepted> {
        let socket = self.socket.as_ref().ok_or(Errno::AGAIN)?;
        let (client, address) = system::accept(socket)?;
        let address = address.and_then(|address| address.try_into().ok());
        let class = self.listener.class_of_syn(&client);
        Ok(Accepted {
            client,
            address: address.ok_or(Errno::CONNABORTED)?,
            class,
        })
    }

    fn connect(
        &mut self,
        (client, class): (OwnedFd, Dscp),
        mut arrival: Arrival,
        source: ServerLegSource,
        now: Time,
        limits: &Arc<Limits>,
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
                arrival.window = limits.offer_window(&mut start.server);
                start.server.ack_with_data =
                    system::waiting_bytes(&client).is_ok_and(|bytes| bytes > 0);
                start
            }
        };
        let [client_pacing, server_pacing] = [&start.client, &start.server].map(InputStart::from);
        let mut option_errors = self.set_up_client(&client, start.client, class);
        let (narrow, errors) = match arrival.is_bypassed {
            false => {
                let decides = (&mut *self.policy as &mut dyn Policy, &mut self.knowledge);
                let address = request.client.ip();
                let window = arrival.start;
                NarrowLeg::begin(&client, address, &self.profiles, decides, window, now)
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

    /// By which nodes of the overlay a session goes.
    pub fn route(&mut self, now: Time, wanted: &Wanted<'_>) -> RouteDecision {
        match &mut self.routes {
            Some(routes) => routes.route(now, wanted, &mut self.overlay.known()),
            None => RouteDecision::Here,
        }
    }

    /// The class of the SYN of an accepted client.
    pub fn class_of(&self, client: &OwnedFd) -> Dscp {
        self.listener.class_of_leg(client)
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
