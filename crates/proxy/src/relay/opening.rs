//! From a waiting connection to a session: accept, ask the policy, set both sockets up, call the
//! server.

use std::os::fd::OwnedFd;

use midspan_linux::tcp;
use midspan_policy::{Admission, LegStart, Policy, Request, Start};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::destination::{self, Way};
use super::settings::{Destination, Error, Listener};
use crate::gate::{Connection, set_common_options};

/// One listening socket of one thread, and who decides about its connections.
pub struct Acceptor {
    /// Name of the listener.
    pub name: String,
    /// The listening socket, while accepting.
    pub socket: Option<OwnedFd>,
    /// Decides about the sessions.
    pub policy: Box<dyn Policy + Send>,
    /// Accepting is paused until then.
    pub paused_until: Option<Time>,
    to: Destination,
    server_mark: Option<u32>,
    warned: bool,
}

/// What became of a waiting connection.
pub enum Opened {
    /// Both sockets; the server has not answered yet.
    Session {
        /// Accepted.
        client: OwnedFd,
        /// Being connected.
        server: OwnedFd,
        /// Give up connecting after this time.
        connect_timeout: Option<TimeSpan>,
        /// Options that the kernel refused.
        option_errors: u64,
    },
    /// The policy refused it.
    Refused,
    /// The server cannot be reached, and the kernel knows at once.
    Unconnected,
    /// It went away before it was accepted.
    Gone,
    /// No connection waits.
    Nothing,
    /// No descriptors or memory are left: better not try again at once.
    Exhausted(Errno),
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
    /// For one socket of a listener.
    pub fn new(socket: OwnedFd, listener: &Listener, policy: Box<dyn Policy + Send>) -> Self {
        Self {
            name: listener.name.clone(),
            socket: Some(socket),
            policy,
            paused_until: None,
            to: listener.to.clone(),
            server_mark: listener.server_mark,
            warned: false,
        }
    }

    /// Takes one waiting connection and calls the server for it.
    pub fn open(&mut self, now: Time) -> Opened {
        let Some(socket) = &self.socket else {
            return Opened::Nothing;
        };
        let (client, address) = match rustix::net::acceptfrom_with(socket, flags()) {
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
        let Some(client_address) = address.and_then(|address| address.try_into().ok()) else {
            return Opened::Gone;
        };
        let Some((server, way)) = destination::find(&self.to, &client, client_address) else {
            return Opened::Refused;
        };
        let request = Request {
            client: client_address,
            server,
        };
        match self.policy.admit(now, &request) {
            // Dropping the client resets it: the listener's SO_LINGER is inherited.
            Admission::Refuse => Opened::Refused,
            // What has been accepted cannot be bypassed any more, but its session can be left as
            // the kernel makes it.
            Admission::Bypass => self.connect(client, request, way, None, None),
            Admission::Intercept {
                connect_timeout, ..
            } => self.connect(client, request, way, Some(now), connect_timeout),
        }
    }

    fn connect(
        &mut self,
        client: OwnedFd,
        request: Request,
        way: Way,
        start: Option<Time>,
        connect_timeout: Option<TimeSpan>,
    ) -> Opened {
        let start = match start {
            Some(now) => self.policy.start(now, &request),
            None => Start::default(),
        };
        let mut option_errors = 0;
        if start.client != LegStart::default() {
            option_errors += self.note(tcp::apply(&client, &start.client));
        }
        let connection = Connection {
            client: request.client,
            server: request.server,
        };
        let mark = self.server_mark;
        let set_up = |server: &OwnedFd, leg: &LegStart| self.set_up_server(server, mark, leg);
        match destination::call(way, connection, mark.unwrap_or(0), start.server, set_up) {
            Ok((server, errors)) => Opened::Session {
                client,
                server,
                connect_timeout,
                option_errors: option_errors + errors,
            },
            Err(error) if is_shortage(error) => Opened::Exhausted(error),
            Err(_) => Opened::Unconnected,
        }
    }

    /// Sets what a leg that is about to be opened starts with; the options that were refused.
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

const fn flags() -> SocketFlags {
    SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC)
}

/// Whether the machine is short of something, rather than this server out of reach.
const fn is_shortage(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}
