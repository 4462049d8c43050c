//! From a waiting connection to a session: accept, ask the policy, set both sockets up, call the
//! server.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_linux::tcp;
use midspan_policy::learned_start::LearnedStart;
use midspan_policy::{
    Admission, FirstFlight, Handshake, LegStart, PacingBy, Policy, Request, Start,
};
use midspan_units::{BitRate, Time, TimeSpan};
use rustix::io::Errno;

use super::crowd::Crowd;
use super::destination::{self, Way};
use super::limits::{Limits, ListenerLimits, Places, Seat, Shortage};
use super::narrow::{NarrowLeg, Profiles};
use super::observation::ListenerCounters;
use super::session::{Buffers, Session};
pub use super::settings::Negotiator;
use super::settings::{Destination, Error, Listener};
use super::system;
use super::update::ListenerId;
use crate::gate::{Connection, set_common_options};

/// One listening socket of one thread, and who decides about its connections.
pub struct Acceptor {
    /// Which listener it belongs to.
    pub id: ListenerId,
    /// Sessions that were accepted here and go on; their policy is this one's.
    pub sessions: usize,
    /// Then it is closed, after what waits has been accepted.
    pub retire_at: Option<Time>,
    /// Name of the listener.
    pub name: String,
    /// The listening socket, while accepting.
    pub socket: Option<OwnedFd>,
    /// Decides about the sessions.
    pub policy: Box<dyn Policy + Send>,
    /// Counts its sessions.
    pub counters: Arc<ListenerCounters>,
    /// How many sessions it takes, and how long they may be still.
    pub limits: ListenerLimits,
    /// Its sessions' buffers while memory is not short.
    pub buffers: Buffers,
    pub places: Arc<Places>,
    /// Accepting is paused until then.
    pub paused_until: Option<Time>,
    /// Bytes that a session takes that has just begun here, as measured at the last one, and until
    /// when this is believed.
    pub fresh: Option<(Time, u64)>,
    /// How many connections wait at a time.
    pub crowd: Crowd,
    to: Destination,
    server_mark: Option<u32>,
    warned: bool,
    profiles: Profiles,
    /// What client legs have from the listening socket.
    keepalive: Option<TimeSpan>,
}

/// What became of a waiting connection.
pub enum Opened {
    /// Both sockets; the server has not answered yet.
    Session {
        /// Who calls whom.
        caller: Caller,
        /// Accepted.
        client: OwnedFd,
        /// Being connected.
        server: OwnedFd,
        /// Give up connecting after this time.
        connect_timeout: Option<TimeSpan>,
        /// Options that the kernel refused.
        option_errors: u64,
        /// How the client's access link is dealt with.
        narrow: Option<Box<NarrowLeg>>,
        /// How the legs are paced at the input of TCP, the client's first.
        paced: [InputStart; 2],
        /// Its place.
        seat: Seat,
    },
    /// There is no room: it has been reset.
    Shed(Shortage),
    /// The client is to be spoken with first; with its place.
    Negotiation(OwnedFd, SocketAddr, Negotiator, Seat),
    /// The policy refused it.
    Refused,
    /// The access rules do not let this client in.
    Denied(SocketAddr),
    /// The server cannot be reached, and the kernel knows at once.
    Unconnected(Caller, Errno),
    /// It went away before it was accepted.
    Gone,
    /// No connection waits.
    Nothing,
    /// It waits still, since no descriptors or memory are left for it.
    Exhausted(Errno),
}

/// The sockets of both legs, the client's first, how they are paced at the input of TCP, and how the
/// client's access link is dealt with.
pub type Legs = ([OwnedFd; 2], [InputStart; 2], Option<Box<NarrowLeg>>);

/// How a leg is paced at the input of TCP from its first byte on.
#[derive(Debug, Clone, Copy, Default)]
pub struct InputStart {
    /// At this rate.
    pub rate: Option<BitRate>,
    /// Only its first flight.
    pub flight: Option<FirstFlight>,
}

impl From<&LegStart> for InputStart {
    fn from(start: &LegStart) -> Self {
        let by_input = start.pacing_by == PacingBy::Input;
        Self {
            rate: start.pacing_rate.filter(|_| by_input),
            flight: start.first_flight,
        }
    }
}

/// Who calls whom, and since when.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Both ends.
    pub request: Request,
    /// When the client is answered.
    pub handshake: Handshake,
    /// How long it has waited already.
    pub waited: TimeSpan,
    /// How the client's leg has begun, where that was chosen.
    pub start: Option<LearnedStart>,
}

/// Sets on a listening socket what all connections accepted from it inherit.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn prepare_listener(socket: &OwnedFd, listener: &Listener) -> Result<(), Error> {
    let action = || format!("set up the socket of listener \"{}\"", listener.name);
    set_common_options(socket).map_err(Error::kernel(action()))?;
    let start = LegStart::from(&listener.settings.client);
    tcp::apply_before_listen(socket, &start)
        .map_err(std::io::Error::other)
        .map_err(Error::kernel(action()))
}

impl Acceptor {
    /// For one socket of a listener; the socket may come later.
    pub fn new(
        id: ListenerId,
        socket: Option<OwnedFd>,
        listener: &Listener,
        policy: Box<dyn Policy + Send>,
        counters: Arc<ListenerCounters>,
        places: Arc<Places>,
    ) -> Self {
        Self {
            id,
            sessions: 0,
            retire_at: None,
            name: listener.name.clone(),
            socket,
            policy,
            counters,
            limits: listener.limits,
            buffers: Buffers::from(&listener.settings),
            places,
            paused_until: None,
            fresh: None,
            crowd: Crowd::default(),
            to: listener.to.clone(),
            server_mark: listener.server_mark,
            warned: false,
            profiles: listener.profiles.clone(),
            keepalive: listener.settings.client.keepalive,
        }
    }

    /// When a session that has been still until then is to end.
    pub fn still_after(&self, session: &Session) -> Option<Time> {
        let limits = &self.limits;
        let timeout = match session.is_half_closed() {
            true => limits.half_closed_timeout,
            false => limits.idle_timeout,
        };
        timeout.map(|timeout| session.still_after(timeout))
    }

    /// Takes one waiting connection and calls the server for it.
    pub fn open(&mut self, now: Time, limits: &Limits) -> Opened {
        let Some(socket) = &self.socket else {
            return Opened::Nothing;
        };
        let (client, address) = match system::accept(socket) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN) => return Opened::Nothing,
            // Linux hands on network errors that the new connection already has: accept(2).
            Err(
                Errno::CONNABORTED
                | Errno::INTR
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::OPNOTSUPP
                | Errno::PERM,
            ) => return Opened::Gone,
            Err(error) => return Opened::Exhausted(error),
        };
        let Some(client_address): Option<SocketAddr> =
            address.and_then(|address| address.try_into().ok())
        else {
            return Opened::Gone;
        };
        // Its server has become itself: each connection would make another, without end.
        if crate::machine::is_looping(&self.name) {
            return Opened::Refused;
        }
        if let Destination::Negotiated(negotiator) = &self.to
            && negotiator.settings.silent().is_none()
        {
            let negotiator = negotiator.clone();
            // Who the client is will be said by the proxy before this one.
            let known = negotiator.settings.proxies.is_none();
            let known = known.then(|| client_address.ip());
            return match limits.take_of(&self.places, known) {
                Ok(seat) => Opened::Negotiation(client, client_address, negotiator, seat),
                Err(shortage) => Opened::Shed(shortage),
            };
        }
        let Some(wanted) = destination::find(&self.to, &client, client_address) else {
            return match destination::admits(&self.to, client_address) {
                true => Opened::Refused,
                false => Opened::Denied(client_address),
            };
        };
        let request = Request {
            client: client_address,
            server: wanted.server,
        };
        let seat = match wanted.seat {
            Some(seat) => seat,
            None => match limits.take_of(&self.places, Some(client_address.ip())) {
                Ok(seat) => seat,
                // Dropping the client resets it: the listener's SO_LINGER is inherited.
                Err(shortage) => return Opened::Shed(shortage),
            },
        };
        let way = wanted.way;
        let caller = Caller {
            request,
            handshake: wanted.handshake,
            waited: wanted.waited,
            start: wanted.start,
        };
        if let Some(connect_timeout) = wanted.admitted {
            return self.connect(client, caller, (way, seat), Some(now), connect_timeout);
        }
        match self.policy.admit(now, &request) {
            Admission::Refuse => Opened::Refused,
            // What has been accepted cannot be bypassed any more, but its session can be left as
            // the kernel makes it.
            Admission::Bypass => self.connect(client, caller, (way, seat), None, None),
            Admission::Intercept {
                connect_timeout, ..
            } => self.connect(client, caller, (way, seat), Some(now), connect_timeout),
        }
    }

    fn connect(
        &mut self,
        client: OwnedFd,
        caller: Caller,
        (way, seat): (Way, Seat),
        start: Option<Time>,
        connect_timeout: Option<TimeSpan>,
    ) -> Opened {
        let request = caller.request;
        let prepared = start;
        let start = match start {
            Some(now) => self.policy.start_as(now, &request, caller.start),
            None => Start::default(),
        };
        let paced = [&start.client, &start.server].map(InputStart::from);
        let mut option_errors = 0;
        option_errors += self.set_up_client(&client, start.client);
        let (narrow, errors) = match prepared {
            Some(now) => NarrowLeg::begin(&client, request.client.ip(), &self.profiles, now),
            None => (None, 0),
        };
        option_errors += errors;
        let connection = Connection {
            client: request.client,
            server: request.server,
        };
        let mark = self.server_mark;
        let set_up = |server: &OwnedFd, leg: &LegStart| self.set_up_server(server, mark, leg);
        match destination::call(way, connection, mark.unwrap_or(0), start.server, set_up) {
            Ok((server, errors)) => Opened::Session {
                caller,
                client,
                server,
                connect_timeout,
                option_errors: option_errors + errors,
                narrow,
                paced,
                seat,
            },
            // Without a server there is nothing to wait for.
            Err(error) if is_shortage(error) => Opened::Shed(Shortage::Descriptors),
            Err(error) => {
                tracing::debug!(
                    listener = self.name,
                    "{} cannot be called: {error}",
                    caller.request.server
                );
                Opened::Unconnected(caller, error)
            }
        }
    }

    /// Takes one waiting connection to reset it, with a descriptor that was kept for this; whether
    /// one was there.
    pub fn shed(&self, reserve: &mut Vec<OwnedFd>) -> rustix::io::Result<bool> {
        let (Some(socket), Some(descriptor)) = (&self.socket, reserve.pop()) else {
            return Err(Errno::MFILE);
        };
        drop(descriptor);
        // Dropping the client resets it.
        match rustix::net::accept(socket) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a client that has said what it wants may have it: how long the server may take, and
    /// the options that its leg was refused.
    pub fn admit(
        &mut self,
        now: Time,
        client: &OwnedFd,
        request: &Request,
    ) -> Option<(Option<TimeSpan>, u64)> {
        let connect_timeout = match self.policy.admit(now, request) {
            Admission::Refuse => return None,
            Admission::Bypass => return Some((None, 0)),
            Admission::Intercept {
                connect_timeout, ..
            } => connect_timeout,
        };
        let start = self.policy.start(now, request).client;
        let errors = self.set_up_client(client, start);
        Some((connect_timeout, errors))
    }

    /// Begins to connect to one of the addresses of a server; and the options that were refused.
    ///
    /// # Errors
    /// Those of `socket(2)` and `connect(2)`.
    pub fn call(&mut self, now: Time, request: &Request) -> rustix::io::Result<(OwnedFd, u64)> {
        let start = self.policy.start(now, request).server;
        let connection = Connection {
            client: request.client,
            server: request.server,
        };
        let mark = self.server_mark;
        let set_up = |server: &OwnedFd, leg: &LegStart| self.set_up_server(server, mark, leg);
        destination::call(Way::New, connection, mark.unwrap_or(0), start, set_up)
    }

    /// The server of a session has never answered.
    pub fn note_unanswered(&self, client: &OwnedFd) {
        destination::note_unanswered(&self.to, client);
    }

    /// Sets what a leg that is about to be opened starts with; the options that were refused.
    /// What the client's socket has inherited from the listening socket is not set again.
    fn set_up_client(&mut self, client: &OwnedFd, mut start: LegStart) -> u64 {
        if start.keepalive == self.keepalive {
            start.keepalive = None;
        }
        match start == LegStart::default() {
            true => 0,
            false => self.note(tcp::apply(client, &start)),
        }
    }

    fn set_up_server(&mut self, server: &OwnedFd, mark: Option<u32>, leg: &LegStart) -> u64 {
        let mut errors = u64::from(set_common_options(server).is_err());
        if let Some(mark) = mark {
            errors += self.note(tcp::set_mark(server, mark));
        }
        if *leg != LegStart::default() {
            errors += self.note(tcp::apply(server, leg));
        }
        errors
    }

    /// Counts a refused option and logs the first: the session goes on without it.
    fn note<E: std::fmt::Display>(&mut self, result: Result<(), E>) -> u64 {
        let Err(error) = result else {
            return 0;
        };
        if !self.warned {
            self.warned = true;
            tracing::warn!(
                listener = self.name,
                "a leg goes on without an option: {error}"
            );
        }
        1
    }
}

/// Whether the machine is short of something, rather than this server out of reach.
const fn is_shortage(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
