//! The hops of an overlay: one that a node has sent, and the one to the next node.

use std::net::SocketAddr;

use midspan_explicit::hop::{HopAnswer, HopError, HopFailure, HopRequest};
use midspan_explicit::{Destination, Failure};
use midspan_policy::overlay::{HopStep, NextHop, NodeName, ReceivedHop};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::super::Reason;
use super::super::attempts::failure;
use super::super::hop_call::{HopCall, HopState};
use super::{NegotiatingClient, Speaker, Stage, Step};
use crate::register::SharedSocket;

/// The hop from this node to the next one.
pub(super) struct NextNode {
    /// The node.
    pub next: NextHop,
    /// The request.
    request: Vec<u8>,
    /// Why there is no session, if that is no matter of the server.
    broken: Option<HopFailure>,
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
            via: &request.via,
            route: &request.route,
        };
        let client = request.client;
        self.destination = Some(destination.clone());
        match overlay.receive(&received) {
            Err(refusal) => {
                let reply = hop.refuse(refusal);
                self.refuse(reply, Some(Reason::Hop(refusal)), now)
            }
            Ok(step) => {
                if let Some(client) = client {
                    self.client_address = client;
                }
                // Until now, the place belonged to no client.
                if self.seat.assign(self.client_address.ip()).is_err() {
                    return self.fail(Failure::Shortage, Some(Reason::Crowded), now);
                }
                match step {
                    HopStep::Leave => self.look_for(destination, now),
                    HopStep::Pass(next) => {
                        self.begin_resolving(now);
                        Step::Pass(next)
                    }
                }
            }
        }
    }

    /// Connects to the next node of the session's route; [`Self::advance`] has to follow.
    pub fn pass_to(&mut self, next: NextHop, timeout: Option<TimeSpan>, now: Time) {
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
        self.next_node = Some(Box::new(NextNode {
            request: request.write(),
            next,
            broken: None,
        }));
        self.connect(vec![address], timeout, now);
    }

    /// The server that the client has requested; of a forward listener, the one of the configuration.
    pub(super) fn requested(&self) -> Option<Destination> {
        match (&self.language, &self.destination) {
            (Speaker::Nobody(server), None) => {
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
        let request = std::mem::take(&mut node.request);
        self.stage = Stage::Hopping(Box::new(HopCall::new(address, socket, request)));
        self.await_answer(now)
    }

    /// Continues the hop to the next node.
    pub(super) fn await_answer(&mut self, now: Time) -> Step {
        let Stage::Hopping(call) = &mut self.stage else {
            return Step::Wait;
        };
        match call.advance() {
            HopState::Waiting => self.watch_client(),
            HopState::Answered(answer) => self.handle_answer(answer, now),
            HopState::Failed(error) => self.fail_hop(error, Errno::HOSTUNREACH, now),
        }
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
            let Stage::Hopping(call) = std::mem::replace(&mut self.stage, Stage::Over) else {
                return Step::End(None);
            };
            let (address, socket) = call.into_leg();
            return self.connected(address, socket, Some(&answer));
        };
        let of_client = failed.of_client(node.next.exit());
        let address = node.next.address;
        match &self.language {
            Speaker::Hop(hop) => {
                let reply = hop.pass_on(&answer, TimeSpan::ZERO);
                self.refuse(reply, None, now);
            }
            _ => {
                let is_broken = of_client == Failure::RouteBroken;
                node.broken = is_broken.then(|| failed.clone());
                self.fail(of_client, None, now);
            }
        }
        Step::Unconnected(address, errno(of_client))
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
        let own = self.settings.overlay.as_ref().map(|it| it.own.clone());
        let address = self.wanted();
        let failure = HopFailure { node: own, error };
        // This node is not the exit, so the reason is the server's only if the nodes wait for it.
        let of_client = match &self.next_node {
            Some(node) => failure.of_client(node.next.exit()),
            None => Failure::RouteBroken,
        };
        if let Some(node) = &mut self.next_node {
            node.broken = (of_client == Failure::RouteBroken).then_some(failure);
        }
        match &self.language {
            Speaker::Hop(hop) => {
                let reply = hop.fail(error);
                self.refuse(reply, None, now);
            }
            _ => {
                self.fail(of_client, None, now);
            }
        }
        Step::Unconnected(address, errno)
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
