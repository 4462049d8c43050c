//! The hops of an overlay: one that a node has sent, and the one to the next node.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_explicit::hop::{ConnectTime, HopAnswer, HopError, HopFailure, HopRequest};
use midspan_explicit::{Destination, Failure, Host};
use midspan_policy::overlay::{
    HopRefusal, HopStep, NextHop, Node, NodeKind, NodeName, Overlay, ReceivedHop, Route,
};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::super::Reason;
use super::super::attempts::failure;
use super::super::hop_call::{HopCall, HopState};
use super::{NegotiatingClient, Speaker, Stage, Step};
use crate::opening::NewLegSource;
use crate::overlay::warm::WarmLeg;
use crate::register::SharedSocket;

/// How long a node may pause after a row: longer than the exchanges of warm connections, and than the longest
/// interval of other exchanges.
const LONGEST_PAUSE: TimeSpan = TimeSpan::from_seconds(120);

/// The hop from this node to the next one.
pub(super) struct NextNode {
    /// The node.
    pub next: NextHop,
    /// The request.
    request: Vec<u8>,
    /// When the node has to have answered, if it is connected before.
    answer_by: Time,
    /// Why there is no session, if that is no matter of the server.
    broken: Option<HopFailure>,
    /// How long the nodes after this one needed to connect.
    times: Vec<ConnectTime>,
    /// The node is called over a warm connection.
    is_warm: bool,
}

/// The time limits of a call to the next node.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Until the node has answered the request, from the beginning.
    pub answer: Option<TimeSpan>,
    /// Until it is connected; `None` for the same.
    pub connect: Option<TimeSpan>,
}

impl NegotiatingClient {
    /// The request of a hop is complete.
    pub(super) fn receive_hop(&mut self, destination: Destination, now: Time) -> Step {
        let (Speaker::Hop(hop), Some(overlay)) = (&self.language, &self.settings.overlay) else {
            return Step::End(Some(Reason::Malformed));
        };
        let Some(request) = hop.request() else {
            return Step::End(Some(Reason::Malformed));
        };
        let received = ReceivedHop {
            sender: self.peer.ip(),
            key: self.client.peer_key(),
            via: &request.via,
            route: &request.route,
        };
        let client = request.client.unwrap_or(self.client_address);
        let settings = &self.settings;
        let received = overlay.receive(&received).and_then(|step| match step {
            HopStep::Leave if !settings.may_connect_for(client.ip()) => {
                Err(HopRefusal::ForeignClient)
            }
            step => Ok(step),
        });
        self.destination = Some(destination.clone());
        match received {
            Err(refusal) => {
                let reply = hop.refuse(refusal);
                self.refuse(reply, Some(Reason::Hop(refusal)), now)
            }
            Ok(step) => {
                self.client_address = client;
                if self.is_drained(now) {
                    return self.fail(Failure::Shortage, Some(Reason::Drained), now);
                }
                if self.is_too_fast {
                    return self.fail(Failure::TooFast, Some(Reason::TooFast), now);
                }
                // Until now, the place belonged to no client.
                if self.seat.assign(self.client_address.ip()).is_err() {
                    return self.fail(Failure::Shortage, Some(Reason::Crowded), now);
                }
                match step {
                    HopStep::Leave => self.look_for(destination, now),
                    HopStep::Pass(next) => {
                        self.begin_resolving(now);
                        Step::Pass(Box::new(next))
                    }
                }
            }
        }
    }

    /// Connects to the next node of the session's route; [`Self::advance`] has to follow.
    pub fn pass_to(&mut self, next: NextHop, limits: CallLimits, now: Time) {
        // The address, if it has decided about the route: the exit serves it.
        let chosen = self.chosen_address;
        let chosen = chosen.and_then(|it| Destination::new(it.ip().into(), it.port()).ok());
        let destination = chosen.or_else(|| self.requested());
        let (Some(overlay), Some(destination)) = (&self.settings.overlay, destination) else {
            self.stage = Stage::Over;
            return;
        };
        let mut via: Vec<NodeName> = match &self.language {
            Speaker::Hop(hop) => hop.request().map_or_else(Vec::new, |it| it.via.clone()),
            _ => Vec::new(),
        };
        via.push(overlay.own.clone());
        let request = HopRequest::to_next(destination, self.client_address, &next, via);
        let address = next.address;
        self.connect(vec![address], limits.answer, now);
        self.next_node = Some(Box::new(NextNode {
            request: request.write(),
            next,
            answer_by: self.deadline,
            broken: None,
            times: Vec::new(),
            is_warm: false,
        }));
        if let Some(connect) = limits.connect {
            self.deadline = self.deadline.min(now + connect);
        }
    }

    /// Uses this warm connection for the call to the next node that has just begun. Within `proof`, the node's
    /// kernel has to acknowledge the request.
    pub fn use_warm(&mut self, leg: WarmLeg, proof: TimeSpan, now: Time) {
        let Some(node) = &mut self.next_node else {
            return;
        };
        node.is_warm = true;
        self.connect_time = TimeSpan::ZERO;
        let (socket, window) = leg.into_parts();
        if let Some(window) = &window {
            self.memory.take_window(window);
        }
        let socket: SharedSocket = Arc::new(socket);
        if let Some(registration) = &self.registration {
            registration.add_server(&socket);
        }
        let call = HopCall::new(node.next.address, socket, node.request.clone());
        self.deadline = node.answer_by.min(now + proof);
        self.stage = Stage::Hopping(Box::new(call));
    }

    /// The warm connection to the next node is dead: the node is called again, over a new one.
    fn call_again(&mut self, now: Time) -> Option<Step> {
        if !self.may_call_again() {
            return None;
        }
        let node = self.next_node.take_if(|node| node.is_warm)?;
        self.dead_warm = Some(node.next.leg.clone());
        self.begin_resolving(now);
        Some(Step::Pass(Box::new(node.next)))
    }

    /// The time of a hop has passed; `None` if there is more.
    pub(super) fn expire_hop(&mut self, now: Time) -> Option<Step> {
        if let (Some(node), Stage::Hopping(call)) = (&self.next_node, &self.stage)
            && node.is_warm
            && now < node.answer_by
        {
            if !call.is_acknowledged() {
                return self.call_again(now);
            }
            self.deadline = node.answer_by;
            return None;
        }
        Some(self.fail_hop(HopError::HttpResponseTimeout, Errno::TIMEDOUT, now))
    }

    /// Answers a node that has requested a row. If the connection `stays`, the node may send another request
    /// after the answer, and not before.
    pub fn report(&mut self, answer: Vec<u8>, stays: bool, now: Time) -> Step {
        if !self.input.is_empty() {
            return Step::End(Some(Reason::Malformed));
        }
        if !stays {
            return self.refuse(answer, None, now);
        }
        self.to_client.extend(answer);
        self.is_idle = true;
        self.deadline = now + LONGEST_PAUSE;
        self.answer_now()
    }

    /// The route of the session from this node on.
    pub fn route(&self) -> Option<Route> {
        let next = &self.next_node.as_deref()?.next;
        let nodes = std::iter::once(&next.leg).chain(&next.rest);
        Route::new(nodes.cloned())
    }

    /// The present route has failed, and its failure has been noted.
    pub fn note_tried(&mut self) {
        let route = self.route();
        self.tried.extend(route);
        if let Some(node) = &mut self.next_node {
            node.broken = None;
        }
    }

    /// The address from which the connection comes that begins next.
    pub fn leg_source(&self) -> NewLegSource {
        match (&self.next_node, &self.settings.as_clients) {
            (Some(node), _) => (node.next.from).map_or(NewLegSource::Own, NewLegSource::Uplink),
            (None, Some(_)) => NewLegSource::Client,
            (None, None) => NewLegSource::Own,
        }
    }

    /// How long the handshake with the next node, or with the server, took; zero if there was none.
    pub const fn connect_time(&self) -> TimeSpan {
        self.connect_time
    }

    /// How long the nodes of the route needed to connect, as they have reported it.
    pub fn times_of_nodes(&self) -> Vec<(NodeName, TimeSpan)> {
        let times = self
            .next_node
            .as_deref()
            .map_or(&[][..], |node| &node.times);
        times.iter().map(|it| (it.node.clone(), it.time)).collect()
    }

    /// The node from which the session comes.
    pub fn node_before(&self) -> Option<NodeName> {
        let (Speaker::Hop(hop), Some(overlay)) = (&self.language, &self.settings.overlay) else {
            return None;
        };
        match hop.request()?.via.last() {
            Some(node) => Some(node.clone()),
            None => self.sender(overlay).map(|node| node.name.clone()),
        }
    }

    /// The only node that may have sent the hop.
    pub fn sender<'a>(&self, overlay: &'a Overlay) -> Option<&'a Node> {
        overlay.only_sender(self.peer.ip(), self.client.peer_key())
    }

    /// The server's address, as far as it is known here.
    pub fn server_address(&self) -> Option<SocketAddr> {
        if let Stage::Connected(address, _) = &self.stage
            && self.next_node.is_none()
        {
            return Some(*address);
        }
        let requested = || match self.requested()? {
            Destination {
                host: Host::Address(address),
                port,
            } => Some(SocketAddr::new(address, port)),
            Destination { .. } => None,
        };
        self.chosen_address.or_else(requested)
    }

    /// The server that the client has requested; of a forward listener, the one of the configuration.
    pub fn requested(&self) -> Option<Destination> {
        match (&self.language, &self.destination) {
            (Speaker::Nobody(Some(server)), None) => {
                Destination::new(server.ip().into(), server.port()).ok()
            }
            (_, destination) => destination.clone(),
        }
    }

    /// The port of the server that the client has requested; 0 if there is none yet.
    pub fn requested_port(&self) -> u16 {
        self.requested().map_or(0, |requested| requested.port)
    }

    /// The server that the client has requested, for the log.
    pub fn requested_text(&self) -> String {
        let requested = self.requested();
        requested.map_or_else(String::new, |requested| requested.to_string())
    }

    /// Why there is no session, if the overlay is the reason.
    pub fn broken_route(&self) -> Option<(&NextHop, &HopFailure)> {
        let node = self.next_node.as_deref()?;
        Some((&node.next, node.broken.as_ref()?))
    }

    /// The server, or the next node, is connected.
    pub(super) fn reached(&mut self, address: SocketAddr, socket: SharedSocket, now: Time) -> Step {
        self.connect_time = now.since(self.connect_begin);
        let Some(node) = &mut self.next_node else {
            return self.connected(address, socket, None);
        };
        if socket.encrypt_to(node.next.keys.as_deref()).is_err() {
            return self.fail_hop(HopError::ProxyInternalError, Errno::HOSTUNREACH, now);
        }
        let request = std::mem::take(&mut node.request);
        self.deadline = node.answer_by;
        self.stage = Stage::Hopping(Box::new(HopCall::new(address, socket, request)));
        self.await_answer(now)
    }

    /// Continues the hop to the next node.
    pub(super) fn await_answer(&mut self, now: Time) -> Step {
        let Stage::Hopping(call) = &mut self.stage else {
            return Step::Wait;
        };
        match call.advance() {
            HopState::Waiting => {
                self.send_first_data();
                self.watch_client()
            }
            HopState::Answered(answer) => self.handle_answer(answer, now),
            HopState::Failed(error) => {
                // The node may have closed a warm connection at the same moment.
                let again = match error {
                    HopError::ConnectionTerminated => self.call_again(now),
                    _ => None,
                };
                again.unwrap_or_else(|| self.fail_hop(error, Errno::HOSTUNREACH, now))
            }
        }
    }

    /// Whether this node of an overlay has data of the client that the server has not got yet.
    pub(super) fn has_data_of_client(&self) -> bool {
        let is_read = !(self.input.is_empty() && self.to_server.is_empty());
        let waits = || self.client.peek().is_ok_and(|count| count > 0);
        self.settings.overlay.is_some() && (is_read || waits())
    }

    /// Sends what has come from the client to the next node, which has not answered yet.
    fn send_first_data(&mut self) {
        let takes_it = |node: &NextNode| node.next.kind == NodeKind::Midspan;
        let is_ingress = !matches!(self.language, Speaker::Hop(_));
        let overlay = self.settings.overlay.as_ref();
        if !(is_ingress
            && self.settings.header.is_none()
            && self.next_node.as_deref().is_some_and(takes_it)
            && overlay.is_some_and(|overlay| overlay.first_data))
        {
            return;
        }
        // The session reads the bytes after the request of an exchange.
        let after: &[u8] = match self.exchange {
            Some(_) => &[],
            None => {
                self.read_ahead();
                &self.input
            }
        };
        if let Stage::Hopping(call) = &mut self.stage {
            call.send_first([&self.to_server, after]);
        }
    }

    /// Whether the present call may be followed by another one: no byte of the client can arrive twice.
    fn may_call_again(&self) -> bool {
        match &self.stage {
            Stage::Hopping(call) => call.may_be_repeated(),
            _ => true,
        }
    }

    /// The next node has passed on this many bytes of the client.
    fn drop_first_data(&mut self, count: usize) {
        let of_request = count.min(self.to_server.len());
        self.to_server.drain(..of_request);
        self.input
            .drain(..(count - of_request).min(self.input.len()));
        self.first_data = count as u64;
    }

    fn handle_answer(&mut self, answer: HopAnswer, now: Time) -> Step {
        let Some(node) = &mut self.next_node else {
            return Step::End(None);
        };
        let answer = answer.of_node(&node.next);
        let Some(failed) = &answer.failure else {
            for time in &answer.connect_times {
                let milliseconds = time.time.as_milliseconds();
                tracing::debug!(node = %time.node, milliseconds, "a node of the route has connected");
            }
            node.times.clone_from(&answer.connect_times);
            let Stage::Hopping(call) = std::mem::replace(&mut self.stage, Stage::Over) else {
                return Step::End(None);
            };
            let (address, socket, first_data) = call.into_leg();
            self.drop_first_data(first_data);
            return self.connected(address, socket, Some(&answer));
        };
        let errno = errno(failed.of_client(node.next.exit()));
        let reply = match &self.language {
            Speaker::Hop(hop) => hop.pass_on(&answer, TimeSpan::ZERO),
            _ => Vec::new(),
        };
        self.fail_call(failed.clone(), errno, reply, now)
    }

    /// There is no connection to the server, or to the next node.
    pub(super) fn fail_to_connect(&mut self, tried: SocketAddr, error: Errno, now: Time) -> Step {
        let found = failure(error);
        if self.next_node.is_some() {
            return self.fail_hop(found.into(), error, now);
        }
        self.fail(found, None, now);
        Step::Unconnected(tried, error)
    }

    /// There is no answer of the next node.
    pub(super) fn fail_hop(&mut self, error: HopError, errno: Errno, now: Time) -> Step {
        let node = self.settings.overlay.as_ref().map(|it| it.own.clone());
        let reply = match &self.language {
            Speaker::Hop(hop) => hop.fail(error),
            _ => Vec::new(),
        };
        let failure = HopFailure { node, error };
        if !self.may_call_again() {
            return self.give_up_route(&failure, errno, now);
        }
        self.fail_call(failure, errno, reply, now)
    }

    /// The next node may have passed the client's first data on: no other route is tried.
    fn give_up_route(&mut self, failure: &HopFailure, errno: Errno, now: Time) -> Step {
        let is_of_route = self.is_of_route(failure);
        if let Some(node) = &mut self.next_node {
            node.broken = is_of_route.then(|| failure.clone());
        }
        self.give_up(failure, errno, now)
    }

    /// There is no session by this route. A node gets the reply; for a client, there may be another
    /// route.
    fn fail_call(&mut self, failure: HopFailure, errno: Errno, reply: Vec<u8>, now: Time) -> Step {
        let is_of_route = self.is_of_route(&failure);
        if let Some(node) = &mut self.next_node {
            node.broken = is_of_route.then(|| failure.clone());
        }
        match &self.language {
            Speaker::Hop(_) => {
                let address = self.wanted();
                self.refuse(reply, None, now);
                Step::Unconnected(address, errno)
            }
            _ if is_of_route => Step::Again(failure, errno),
            _ => self.give_up(&failure, errno, now),
        }
    }

    /// Whether another route may lead to the server.
    fn is_of_route(&self, failure: &HopFailure) -> bool {
        let own = self.settings.overlay.as_ref().map(|it| &it.own);
        failure.is_of_route(self.of_client(failure), own)
    }

    /// Informs the client that there is no session.
    pub fn give_up(&mut self, failure: &HopFailure, errno: Errno, now: Time) -> Step {
        let address = self.wanted();
        self.fail(self.of_client(failure), None, now);
        Step::Unconnected(address, errno)
    }

    /// The session leaves here: the next step on the way to its server.
    pub fn leave_here(&mut self, now: Time) -> Step {
        self.leaves_here = true;
        self.next_node = None;
        self.begin_resolving(now);
        let requested = self.requested().map(|requested| requested.host);
        match (self.server_address(), requested) {
            (Some(address), _) => Step::Decide(vec![address]),
            (None, Some(Host::Name(name))) => Step::Resolve(name),
            (None, _) => Step::End(None),
        }
    }

    /// What the client is informed of. This node is not the exit, so the reason is the server's only if
    /// the nodes wait for it.
    fn of_client(&self, failure: &HopFailure) -> Failure {
        match &self.next_node {
            Some(node) => failure.of_client(node.next.exit()),
            None => Failure::RouteBroken,
        }
    }
}

/// The error by which the session's end is logged and counted.
const fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Refused => Errno::CONNREFUSED,
        Failure::TimedOut => Errno::TIMEDOUT,
        _ => Errno::HOSTUNREACH,
    }
}
