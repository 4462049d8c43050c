//! From a waiting connection to a session: accept, ask the policy, set both sockets up, call the
//! server.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use midspan_linux::tcp;
use midspan_policy::{Admission, LegStart, Policy, Request};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::settings::{Error, Listener};

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
    to: SocketAddr,
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

/// What holds for every socket of a session: small writes leave at once, urgent data stays in its
/// place in the stream, and a crash resets instead of ending in good order.
fn set_common_options(socket: &OwnedFd) -> std::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_oobinline(socket, true)?;
    tcp::set_reset_on_close(socket, true)
}

impl Acceptor {
    /// For one socket of a listener.
    pub fn new(socket: OwnedFd, listener: &Listener, policy: Box<dyn Policy + Send>) -> Self {
        Self {
            name: listener.name.clone(),
            socket: Some(socket),
            policy,
            paused_until: None,
            to: listener.to,
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
        let request = Request {
            client: client_address,
            server: self.to,
        };
        match self.policy.admit(now, &request) {
            // Dropping the client resets it: the listener's SO_LINGER is inherited.
            Admission::Refuse => Opened::Refused,
            // A forward listener is itself an end of the connection: it cannot be bypassed, but
            // its sessions can be left as the kernel makes them.
            Admission::Bypass => self.connect(client, None, None),
            Admission::Intercept {
                connect_timeout, ..
            } => self.connect(client, Some((now, request)), connect_timeout),
        }
    }

    fn connect(
        &mut self,
        client: OwnedFd,
        start: Option<(Time, Request)>,
        connect_timeout: Option<TimeSpan>,
    ) -> Opened {
        let family = match self.to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let server = match rustix::net::socket_with(family, SocketType::STREAM, flags(), None) {
            Ok(server) => server,
            Err(error) => return Opened::Exhausted(error),
        };
        let mut option_errors = u64::from(set_common_options(&server).is_err());
        if let Some(mark) = self.server_mark {
            option_errors += self.note(tcp::set_mark(&server, mark));
        }
        if let Some((now, request)) = start {
            let start = self.policy.start(now, &request);
            for (socket, leg) in [(&client, &start.client), (&server, &start.server)] {
                if *leg != LegStart::default() {
                    option_errors += self.note(tcp::apply(socket, leg));
                }
            }
        }
        match rustix::net::connect(&server, &self.to) {
            Ok(()) | Err(Errno::INPROGRESS) => Opened::Session {
                client,
                server,
                connect_timeout,
                option_errors,
            },
            Err(_) => Opened::Unconnected,
        }
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
