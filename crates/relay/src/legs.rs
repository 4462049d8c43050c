//! The sockets of a session's two legs: how they are opened, and their options.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use midspan_linux::tcp;
use midspan_policy::{FirstFlight, LegStart, PacingBy, Request};
use midspan_units::{BitRate, Dscp};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::leg_socket::LegSocket;
use super::listener::Listener;
use super::narrow::NarrowLeg;
use super::system;

/// Both legs of a session that is about to begin.
#[derive(Debug)]
pub struct Legs {
    /// The socket towards the client: accepted.
    pub client: OwnedFd,
    /// The socket towards the server: being connected, or connected.
    pub server: LegSocket,
    /// How the client's leg is paced at the input of TCP.
    pub client_pacing: InputStart,
    /// How the server's leg is paced at the input of TCP.
    pub server_pacing: InputStart,
    /// The state of the client's access profile, if it has one.
    pub narrow: Option<Box<NarrowLeg>>,
    /// Options that the kernel refused for either.
    pub option_errors: u64,
}

/// How a leg is paced at the input of TCP from its first byte on.
#[derive(Debug, Clone, Copy, Default)]
pub struct InputStart {
    /// The rate.
    pub rate: Option<BitRate>,
    /// Pacing of the first flight only.
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

/// A socket that is connecting to a server.
#[derive(Debug)]
pub struct Connecting {
    /// The socket.
    pub socket: LegSocket,
    /// Options that the kernel refused.
    pub option_errors: u64,
}

/// Connects to the server from the client's own address and port, for a transparent listener. `host_mark`
/// contains the bits of the packet mark that the host itself has set on the client's packets. The server leg
/// gets these bits too, so that the host's rules choose the same route. `class` is the service class of the
/// client's SYN.
///
/// # Errors
/// Those of `socket(2)`, `setsockopt(2)`, `bind(2)` and `connect(2)`. Refused options of `start` are no
/// error; they are counted in [`Connecting::option_errors`].
pub fn connect_as_client(
    request: Request,
    host_mark: u32,
    listener: &Listener,
    start: &LegStart,
    class: Dscp,
) -> rustix::io::Result<Connecting> {
    let socket = system::socket(request.server)?;
    set_common_options(&socket).map_err(errno)?;
    tcp::set_transparent(&socket, request.server).map_err(errno)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let mark = listener.marks.of_server_leg(start.initial_window);
    let mark = mark.unwrap_or_default();
    tcp::set_mark(&socket, host_mark | mark).map_err(errno)?;
    let option_errors = u64::from(listener.set_up_leg(&socket, start, class).is_err());
    system::bind(&socket, request.client)?;
    connect(socket, request.server, option_errors)
}

/// Connects to a node of the overlay as a server leg of this listener: from this address of this machine, or from one
/// of the listener's. `class` is the service class of the client's SYN.
///
/// # Errors
/// Those of `socket(2)`, `bind(2)` and `connect(2)`.
pub fn connect_to_node(
    (node, from): (SocketAddr, Option<IpAddr>),
    listener: &Listener,
    start: &LegStart,
    class: Dscp,
) -> rustix::io::Result<Connecting> {
    let from = from.map(|from| SocketAddr::new(from, 0));
    let own = || listener.source.in_turn(node, 0).next().flatten();
    let source = from.or_else(own);
    connect_as_proxy(node, source, |socket| {
        let mark = listener.marks.of_server_leg(start.initial_window);
        let refused = [
            set_common_options(socket).is_err(),
            mark.is_some_and(|mark| tcp::set_mark(socket, mark).is_err()),
            listener.set_up_leg(socket, start, class).is_err(),
        ];
        refused.map(u64::from).iter().sum()
    })
}

/// Connects to a server from an address of this machine: from `source`, or from an address that the kernel
/// chooses. Before, `set_up` sets the options of the socket, and returns how many of them the kernel refused.
///
/// # Errors
/// Those of `socket(2)`, `setsockopt(2)`, `bind(2)` and `connect(2)`: `EADDRNOTAVAIL` if `source` is no
/// address of this machine, or has no free port for this server.
pub fn connect_as_proxy(
    server: SocketAddr,
    source: Option<SocketAddr>,
    set_up: impl FnOnce(&OwnedFd) -> u64,
) -> rustix::io::Result<Connecting> {
    let socket = system::socket(server)?;
    let option_errors = set_up(&socket);
    if let Some(source) = source {
        tcp::set_bind_address_no_port(&socket).map_err(errno)?;
        system::bind(&socket, source)?;
    }
    connect(socket, server, option_errors)
}

fn connect(
    socket: OwnedFd,
    server: SocketAddr,
    option_errors: u64,
) -> rustix::io::Result<Connecting> {
    match system::connect(&socket, server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(Connecting {
            socket: socket.into(),
            option_errors,
        }),
        Err(error) => Err(error),
    }
}

/// Sets the options of every socket of a session: small writes are sent at once, urgent data stays
/// at its place in the stream, and a crash resets the connection instead of closing it with a FIN.
///
/// # Errors
/// Those of `setsockopt(2)`.
pub fn set_common_options(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_oobinline(socket, true)?;
    system::set_reset_on_close(socket, true)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
