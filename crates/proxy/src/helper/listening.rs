//! Listening sockets for the threads of the relay.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use midspan_linux::{packet_filter, processors, tcp};
use midspan_relay as relay;
use midspan_relay::leg_options::LegError;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tracing::warn;

use crate::configuration::{Explicit, Forward, Listener, Mode, RelaySettings, Transparent};

/// Connections that wait to be accepted; the kernel takes at most `net.core.somaxconn`.
const BACKLOG: i32 = 65_536;

/// Why a listener cannot listen.
#[derive(Debug, Error)]
pub(crate) enum ListenError {
    #[error("{0} is in use by another program (ss -tlnp shows which)")]
    InUse(SocketAddr),
    #[error(
        "port {0} needs root or CAP_NET_BIND_SERVICE: use a port from 1024 on, or give the \
         program the capability (setcap cap_net_bind_service+ep)"
    )]
    PrivilegedPort(u16),
    #[error("{0} is no address of this machine (ip address shows them)")]
    NotLocal(IpAddr),
    #[error(
        "a transparent listener needs CAP_NET_ADMIN: run as root, or give the program the \
         capability (setcap cap_net_admin,cap_net_raw+ep)"
    )]
    NotTransparent,
    #[error("cannot listen on {address}: {source}")]
    Io {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Leg(#[from] LegError),
}

/// An address at which a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    /// Name of the listener.
    pub name: String,
    /// Whether it is an internal address that the kernel has chosen.
    pub is_transparent: bool,
    /// Where its sockets listen.
    pub address: SocketAddr,
    /// The initial window of its sockets, if the gate selects among several.
    pub window: Option<u32>,
}

/// The threads for which sockets are opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threads {
    /// How many there are.
    pub count: usize,
    /// Whether each runs on one processor only.
    pub are_pinned: bool,
}

impl Threads {
    /// One thread, which accepts everything.
    pub const ONE: Self = Self {
        count: 1,
        are_pinned: false,
    };

    /// Number of sockets of an address. From a shared socket, the thread that is free accepts. If the gate chooses the thread
    /// of each connection, each thread has its own. Each pinned thread has its own, too.
    const fn sockets(self, gate_chooses: bool) -> usize {
        if gate_chooses || self.are_pinned {
            self.count
        } else {
            self.count.div_ceil(SHARING)
        }
    }

    /// The processor of each thread, if each has one of its own.
    fn processors(self) -> Option<Vec<usize>> {
        let mut processors = processors::allowed();
        let has_enough = (1..=processors.len()).contains(&self.count);
        processors.truncate(self.count);
        (self.are_pinned && has_enough).then_some(processors)
    }
}

impl From<&RelaySettings> for Threads {
    fn from(settings: &RelaySettings) -> Self {
        Self {
            count: settings.threads,
            are_pinned: settings.pin_threads,
        }
    }
}

/// Threads that share one listening socket at most. If too many do, they wait for each other when they
/// accept.
const SHARING: usize = 4;

/// New sockets, and where they listen.
pub(super) type OpenedSockets = (Open, Vec<OwnedFd>);

/// The addresses at which the listener has to listen; port 0 stands for any port.
fn wanted(listener: &Listener) -> Vec<SocketAddr> {
    match &listener.mode {
        Mode::Forward(Forward { listen, .. }) | Mode::Explicit(Explicit { listen, .. }) => {
            vec![*listen]
        }
        Mode::Transparent(transparent) => {
            // Only rules lead connections here; a direct connection to these addresses is refused.
            let four = transparent.ipv4.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let six = transparent.ipv6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
            let addresses = four.into_iter().chain(six);
            addresses.map(|ip| SocketAddr::new(ip, 0)).collect()
        }
    }
}

/// Whether server legs can have the listener's source addresses at present.
fn check_sources(listener: &Listener) -> Result<(), ListenError> {
    for address in &listener.relay.source.0 {
        let address = SocketAddr::new(*address, 0);
        // A socket of UDP, which no other host notices.
        UdpSocket::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrNotAvailable => ListenError::NotLocal(address.ip()),
            _ => ListenError::Io { address, source },
        })?;
    }
    Ok(())
}

/// Whether a listener with an address could listen at present.
pub(super) fn try_forward(listener: &Listener) -> Result<(), ListenError> {
    let Some(address) = listener.listen() else {
        return Ok(());
    };
    check_sources(listener)?;
    let place = Place {
        listener,
        address,
        is_transparent: false,
        window: None,
    };
    place.refuse_if_in_use()
}

/// The addresses of a listener: the existing ones among `present`, without sockets, and new ones.
/// Accepted connections inherit `mark`, which selects the initial `window` if the gate selects
/// among several.
pub(super) fn open(
    listener: &Listener,
    (window, mark): (Option<u32>, Option<u32>),
    threads: Threads,
    present: &[Open],
) -> Result<Vec<OpenedSockets>, ListenError> {
    check_sources(listener)?;
    let is_transparent = listener.transparent().is_some();
    let open = |address: SocketAddr| {
        let found = present.iter().find(|open| match is_transparent {
            true => {
                open.is_transparent
                    && open.name == listener.relay.name
                    && open.window == window
                    && open.address.ip() == address.ip()
            }
            // The listener's name may have been another.
            false => !open.is_transparent && open.address == address,
        });
        if let Some(found) = found {
            let name = listener.relay.name.clone();
            let open = Open {
                name,
                ..found.clone()
            };
            return Ok((open, Vec::new()));
        }
        let place = Place {
            listener,
            address,
            is_transparent,
            window,
        };
        // Midspan's own sockets at another address with the same port are about to be closed.
        if !is_transparent
            && !present
                .iter()
                .any(|open| open.address.port() == address.port())
        {
            place.refuse_if_in_use()?;
        }
        place.open(mark, threads)
    };
    wanted(listener).into_iter().map(open).collect()
}

/// Connections to the admin listener that wait to be accepted.
const ADMIN_BACKLOG: i32 = 64;

/// Opens the socket of the admin listener.
pub(super) fn open_admin(address: SocketAddr) -> Result<OwnedFd, ListenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse(address),
        io::ErrorKind::AddrNotAvailable => ListenError::NotLocal(address.ip()),
        io::ErrorKind::PermissionDenied => ListenError::PrivilegedPort(address.port()),
        _ => ListenError::Io { address, source },
    };
    let open = || -> io::Result<Socket> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(ADMIN_BACKLOG)?;
        Ok(socket)
    };
    open().map(OwnedFd::from).map_err(failed)
}

/// An address to listen at.
struct Place<'a> {
    listener: &'a Listener,
    /// With port 0, the kernel chooses a port.
    address: SocketAddr,
    is_transparent: bool,
    window: Option<u32>,
}

impl Place<'_> {
    /// With `SO_REUSEPORT` alone, two programs of one user would share the connections unnoticed.
    fn refuse_if_in_use(&self) -> Result<(), ListenError> {
        let probe = self.socket()?;
        self.bind(&probe)?;
        probe.listen(1).map_err(self.failed())
    }

    fn open(mut self, mark: Option<u32>, threads: Threads) -> Result<OpenedSockets, ListenError> {
        let count = threads.sockets(self.gate_chooses());
        let mut sockets: Vec<OwnedFd> = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = self.open_one(mark)?;
            let address = socket.local_addr().map_err(self.failed())?;
            // The first socket has the port that all others use.
            self.address = address.as_socket().unwrap_or(self.address);
            sockets.push(socket.into());
        }
        if let [first, _, ..] = &sockets[..] {
            self.let_choose(first, threads);
        }
        let open = Open {
            name: self.listener.relay.name.clone(),
            is_transparent: self.is_transparent,
            address: self.address,
            window: self.window,
        };
        Ok((open, sockets))
    }

    /// Whether the gate chooses the thread of each connection: unless the connections of the express lane, for
    /// which no initial window is chosen, come to these sockets.
    fn gate_chooses(&self) -> bool {
        let transparent = self.listener.transparent();
        let has_express_lane = |of: &Transparent| of.firewall_cache.is_some();
        transparent.is_some_and(|of| self.window.is_some() || !has_express_lane(of))
    }

    /// Decides which one of several sockets accepts a connection, given the first of them.
    fn let_choose(&self, first: &OwnedFd, threads: Threads) {
        if self.is_transparent {
            if let Err(error) = packet_filter::choose_listening_socket(first) {
                warn!("the kernel chooses the threads of transparent listeners' sessions: {error}");
            }
        } else if let Some(processors) = threads.processors()
            && let Err(error) = packet_filter::choose_socket_of_processor(first, &processors)
        {
            warn!("connections are not accepted by the thread of their processor: {error}");
        }
    }

    fn open_one(&self, mark: Option<u32>) -> Result<Socket, ListenError> {
        let socket = self.socket()?;
        socket.set_reuse_port(true).map_err(self.failed())?;
        socket.set_nonblocking(true).map_err(self.failed())?;
        if self.is_transparent {
            tcp::set_transparent(&socket, self.address).map_err(self.failed())?;
        }
        if let Some(mark) = mark {
            tcp::set_mark(&socket, mark).map_err(self.failed())?;
        }
        // The kernel accepts connections before the relay has these sockets.
        relay::set_common_options(&socket).map_err(self.failed())?;
        self.listener.relay.set_up_listening(&socket)?;
        self.bind(&socket)?;
        socket.listen(BACKLOG).map_err(self.failed())?;
        Ok(socket)
    }

    fn socket(&self) -> Result<Socket, ListenError> {
        let domain = Domain::for_address(self.address);
        let socket =
            Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).map_err(self.failed())?;
        if self.address.is_ipv6() {
            // "[::]" and "0.0.0.0" are two listeners, whatever the value of net.ipv6.bindv6only.
            socket.set_only_v6(true).map_err(self.failed())?;
        }
        // Sockets of an earlier run in TIME-WAIT do not block the address.
        socket.set_reuse_address(true).map_err(self.failed())?;
        Ok(socket)
    }

    fn bind(&self, socket: &Socket) -> Result<(), ListenError> {
        let address = self.address;
        socket
            .bind(&address.into())
            .map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => ListenError::InUse(address),
                io::ErrorKind::AddrNotAvailable => ListenError::NotLocal(address.ip()),
                io::ErrorKind::PermissionDenied => ListenError::PrivilegedPort(address.port()),
                _ => self.failed()(error),
            })
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> ListenError + use<> {
        let address = self.address;
        let is_transparent = self.is_transparent;
        move |source| match source.kind() {
            // Two sockets may be bound alike before one of them listens.
            io::ErrorKind::AddrInUse => ListenError::InUse(address),
            io::ErrorKind::PermissionDenied if is_transparent => ListenError::NotTransparent,
            _ => ListenError::Io { address, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use midspan_document::Source;
    use rustix::net::sockopt;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// The client is connected before the relay has the socket. Without this option, the reset of
    /// its server would look like a normal end.
    #[test]
    fn a_connection_from_before_the_relay_has_what_every_session_has() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let text = format!(
            "[[listener]]\nname = \"test\"\nlisten = \"{address}\"\nto = \"127.0.0.1:1\"\n"
        );
        let configuration = Configuration::read(&Source::new("file", text)).unwrap();
        let opened = open(&configuration.listeners[0], (None, None), Threads::ONE, &[]).unwrap();
        let client = TcpStream::connect(address).unwrap();
        let socket = &opened[0].1[0];
        let accepted = loop {
            match rustix::net::accept(socket) {
                Ok(accepted) => break accepted,
                Err(rustix::io::Errno::AGAIN) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("{error}"),
            }
        };
        let linger = sockopt::socket_linger(&accepted).unwrap();
        assert_eq!(linger, Some(Duration::ZERO));
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert!(sockopt::socket_oobinline(&accepted).unwrap());
        drop(client);
    }
}
