//! A call by a route of the overlay, for a client whose SYN a gate holds: the connection to the first node, and
//! the hop over it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_explicit::hop::{HopAnswer, HopError, HopFailure, HopRequest};
use midspan_explicit::{Destination, Failure};
use midspan_policy::Request;
use midspan_policy::overlay::{NextHop, NodeName, Overlay, Route};
use midspan_policy::prefix::site_prefix;
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::attempts::failure;
use super::hop_call::{HopCall, HopState};
use crate::leg_socket::LegSocket;
use crate::overlay::{OverlayPart, SharedOverlay};
use crate::register::SharedSocket;
use crate::system;

/// A call by a route. Its owner watches the socket and calls [`advance`](Self::advance) at each event.
#[derive(Debug)]
pub struct RouteCall {
    own: NodeName,
    route: Route,
    next: NextHop,
    /// The client, and its server.
    request: Request,
    /// The connection to the first node.
    socket: SharedSocket,
    begin: Time,
    /// How long the handshake with the first node took; zero if there was none.
    connect_time: TimeSpan,
    stage: Stage,
    warm: Warm,
}

/// What is known of the connection to the first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Warm {
    /// It is new.
    No,
    /// It is warm, and may be dead.
    Unproven,
    /// It was warm, and the node's kernel has acknowledged the request.
    Proven,
}

#[derive(Debug)]
enum Stage {
    /// The first node has not answered the SYN. It will get this request.
    Connecting(Vec<u8>),
    /// The first node has not answered the request.
    Hopping(Box<HopCall>),
}

/// The present state of a call.
#[derive(Debug)]
pub enum RouteState {
    /// There is no answer yet.
    Waiting,
    /// The exit is connected to the server: [`RouteCall::open`].
    Connected(HopAnswer),
    /// There is no session by this route.
    Failed(HopFailure),
    /// The warm connection to the first node was dead: the route has to be called over a new one.
    Dead,
}

impl RouteCall {
    /// A call by this route, whose first node is `next`, over a socket that is connecting to it. `None` if
    /// the server has no port, or the private key
    /// cannot be used.
    #[must_use]
    pub fn new(
        overlay: &Overlay,
        (route, next): (Route, NextHop),
        request: Request,
        socket: LegSocket,
        now: Time,
    ) -> Option<Self> {
        let hop = request_of(overlay, &next, request)?;
        socket.encrypt_to(next.keys.as_deref()).ok()?;
        Some(Self {
            own: overlay.own.clone(),
            route,
            next,
            request,
            socket: Arc::new(socket),
            begin: now,
            connect_time: TimeSpan::ZERO,
            stage: Stage::Connecting(hop),
            warm: Warm::No,
        })
    }

    /// The same over a warm connection to the first node.
    #[must_use]
    pub fn over_warm(
        overlay: &Overlay,
        (route, next): (Route, NextHop),
        request: Request,
        socket: LegSocket,
        now: Time,
    ) -> Option<Self> {
        let hop = request_of(overlay, &next, request)?;
        let socket: SharedSocket = Arc::new(socket);
        let call = HopCall::new(next.address, Arc::clone(&socket), hop);
        Some(Self {
            own: overlay.own.clone(),
            route,
            next,
            request,
            socket,
            begin: now,
            connect_time: TimeSpan::ZERO,
            stage: Stage::Hopping(Box::new(call)),
            warm: Warm::Unproven,
        })
    }

    /// The connection to the first node.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The route.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// The first node, and those after it.
    #[must_use]
    pub const fn next(&self) -> &NextHop {
        &self.next
    }

    /// Whether the first node has not answered the SYN, or is called over a warm connection that may be dead.
    #[must_use]
    pub const fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting(_)) || matches!(self.warm, Warm::Unproven)
    }

    /// Whether the first node is called over a warm connection.
    #[must_use]
    pub const fn is_warm(&self) -> bool {
        !matches!(self.warm, Warm::No)
    }

    /// Whether the kernel of the first node has the request, so that the warm connection is not dead.
    pub fn prove(&mut self) -> bool {
        let is_alive = matches!(&self.stage, Stage::Hopping(hop) if hop.is_acknowledged());
        if is_alive && self.is_warm() {
            self.warm = Warm::Proven;
        }
        is_alive
    }

    /// Continues as far as possible.
    pub fn advance(&mut self, now: Time) -> RouteState {
        if let Stage::Connecting(request) = &mut self.stage {
            match system::socket_error(&self.socket) {
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => return self.failed(failure(error).into()),
            }
            // A socket has a peer as soon as the peer has answered.
            if !matches!(system::peer_address(&self.socket), Ok(Some(_))) {
                return RouteState::Waiting;
            }
            self.connect_time = now.since(self.begin);
            let request = std::mem::take(request);
            let socket = Arc::clone(&self.socket);
            let hop = HopCall::new(self.next.address, socket, request);
            self.stage = Stage::Hopping(Box::new(hop));
        }
        let Stage::Hopping(hop) = &mut self.stage else {
            return RouteState::Waiting;
        };
        match hop.advance() {
            HopState::Waiting => RouteState::Waiting,
            // The node may have closed a warm connection at the same moment.
            HopState::Failed(HopError::ConnectionTerminated) if self.is_warm() => RouteState::Dead,
            HopState::Failed(error) => self.failed(error),
            HopState::Answered(answer) => {
                let answer = answer.of_node(&self.next);
                match answer.failure {
                    Some(failure) => RouteState::Failed(failure),
                    None => RouteState::Connected(answer),
                }
            }
        }
    }

    /// What the client would be informed of after this failure of the call, and whether another route may lead
    /// to the server instead.
    #[must_use]
    pub fn judge(&self, failure: &HopFailure) -> (Failure, bool) {
        let of_client = failure.of_client(self.next.exit());
        (of_client, failure.is_of_route(of_client, Some(&self.own)))
    }

    /// The failure of a node that cannot be connected: the kernel has reported this error at once.
    #[must_use]
    pub fn unconnected(overlay: &Overlay, error: Errno) -> HopFailure {
        HopFailure {
            node: Some(overlay.own.clone()),
            error: failure(error).into(),
        }
    }

    /// The failure of a call that takes too long.
    #[must_use]
    pub fn timed_out(&self) -> HopFailure {
        self.of_own(match self.stage {
            Stage::Connecting(_) => HopError::ConnectionTimeout,
            Stage::Hopping(_) => HopError::HttpResponseTimeout,
        })
    }

    /// The session begins with this answer of the nodes, whose times are noted. Returns its server leg, and what
    /// the overlay has to do with it.
    #[must_use]
    pub fn open(
        self,
        answer: &HopAnswer,
        overlay: &SharedOverlay,
        now: Time,
    ) -> Option<(LegSocket, OverlayPart)> {
        // It has the socket, too.
        drop(self.stage);
        let times = answer.connect_times.iter();
        let times: Vec<_> = times.map(|it| (it.node.clone(), it.time)).collect();
        let server = self.request.server.ip();
        let to = (&self.route, Some(site_prefix(server)));
        (overlay.known()).note_opened(now, &self.own, to, self.connect_time, &times);
        let part = OverlayPart::of_ingress(server, Some(self.route));
        Some((Arc::into_inner(self.socket)?, part))
    }

    fn failed(&self, error: HopError) -> RouteState {
        RouteState::Failed(self.of_own(error))
    }

    /// A failure that this node reports.
    fn of_own(&self, error: HopError) -> HopFailure {
        HopFailure {
            node: Some(self.own.clone()),
            error,
        }
    }
}

/// The bytes of the request of the first hop; `None` if the server has no port.
fn request_of(overlay: &Overlay, next: &NextHop, request: Request) -> Option<Vec<u8>> {
    let Request { client, server } = request;
    let destination = Destination::new(server.ip().into(), server.port()).ok()?;
    let via = vec![overlay.own.clone()];
    Some(HopRequest::to_next(destination, client, next, via).write())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    use midspan_policy::overlay::NodeKind;

    use super::*;

    fn call(address: SocketAddr) -> RouteCall {
        let overlay = Overlay::new("ams".parse().unwrap(), Vec::new());
        let route = Route::new(vec!["fra".parse().unwrap(), "sin".parse().unwrap()]).unwrap();
        let next = NextHop {
            node: "fra".parse().unwrap(),
            leg: "fra".parse().unwrap(),
            address,
            from: None,
            kind: NodeKind::Midspan,
            keys: None,
            rest: vec!["sin".parse().unwrap()],
        };
        let request = Request {
            client: "10.1.0.2:50000".parse().unwrap(),
            server: "10.4.0.2:80".parse().unwrap(),
        };
        let socket = system::socket(address).unwrap();
        let _ = system::connect(&socket, address);
        RouteCall::new(&overlay, (route, next), request, socket.into(), Time::ZERO).unwrap()
    }

    /// Advances until there is an answer.
    fn until_decided(call: &mut RouteCall) -> RouteState {
        loop {
            match call.advance(Time::ZERO) {
                RouteState::Waiting => std::thread::yield_now(),
                state => return state,
            }
        }
    }

    /// What the node reads before it sends the answer.
    fn answered(answer: &str) -> (String, RouteCall, RouteState) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut call = call(listener.local_addr().unwrap());
        let (mut node, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // The request is sent as soon as the handshake is complete.
            assert!(matches!(call.advance(Time::ZERO), RouteState::Waiting));
            node.set_nonblocking(true).unwrap();
            let mut piece = [0; 512];
            if let Ok(count) = node.read(&mut piece) {
                head.extend_from_slice(&piece[..count]);
            }
        }
        node.write_all(answer.as_bytes()).unwrap();
        let state = until_decided(&mut call);
        (String::from_utf8(head).unwrap(), call, state)
    }

    #[test]
    fn the_socket_is_the_server_leg_after_a_success() {
        let answer = "HTTP/1.1 200 OK\r\nServer-Timing: sin;dur=7\r\n\r\nbanner";
        let (head, call, state) = answered(answer);
        assert!(
            head.starts_with("CONNECT 10.4.0.2:80 HTTP/1.1\r\n"),
            "{head}"
        );
        for field in [
            "Forwarded: for=\"10.1.0.2:50000\"\r\n",
            "Midspan-Route: sin\r\n",
            "Via: 1.1 ams\r\n",
        ] {
            assert!(head.contains(field), "{head}");
        }
        let RouteState::Connected(answer) = state else {
            panic!("{state:?}");
        };
        let overlay = SharedOverlay::default();
        let (leg, part) = call.open(&answer, &overlay, Time::ZERO).unwrap();
        assert_eq!(part.nodes, [None, "fra".parse().ok()]);
        let mut leg = TcpStream::from(OwnedFd::from(leg));
        leg.set_nonblocking(false).unwrap();
        let mut data = [0; 6];
        leg.read_exact(&mut data).unwrap();
        assert_eq!(&data, b"banner");
    }

    #[test]
    fn a_failure_is_that_of_the_node_that_reports_it() {
        let answer =
            "HTTP/1.1 502 Bad Gateway\r\nProxy-Status: sin; error=connection_refused\r\n\r\n";
        let (_, call, state) = answered(answer);
        let RouteState::Failed(failure) = state else {
            panic!("{state:?}");
        };
        assert_eq!(failure.node, "sin".parse().ok());
        assert_eq!(failure.error, HopError::ConnectionRefused);
        assert_eq!(call.timed_out().error, HopError::HttpResponseTimeout);
    }

    #[test]
    fn a_node_that_refuses_is_a_failure_of_this_node() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut call = call(address);
        assert!(call.is_connecting());
        assert_eq!(call.timed_out().error, HopError::ConnectionTimeout);
        let RouteState::Failed(failure) = until_decided(&mut call) else {
            panic!("there is no failure");
        };
        assert_eq!(failure.node, "ams".parse().ok());
        assert_eq!(failure.error, HopError::ConnectionRefused);
    }
}
