//! Connections that go by a route of the overlay: their SYNs are held until the exit has connected to the server.
//!
//! | what happened | what the client sees |
//! | --- | --- |
//! | the server has accepted, as the exit reports | the listener's SYN-ACK |
//! | the server has refused | an RST |
//! | the server is silent, or no answer has come in time | nothing |
//! | a node cannot be reached, refuses, or has no room | another route is tried |
//! | the server cannot be reached, the exit does not connect to it, or no route is left | an RST |

use std::time::Duration;

use midspan_explicit::Failure;
use midspan_explicit::hop::{HopAnswer, HopFailure};
use midspan_policy::overlay::{NextHop, NodeKind, Route, RouteDecision, Wanted, WantedHost};
use midspan_policy::prefix::site_prefix;
use midspan_policy::{LegStart, Request};
use midspan_relay::negotiation::{RouteCall, RouteState};
use midspan_relay::{Arrival, OverlayPart, Shortage, connect_to_node, log_broken_route};
use midspan_units::Dscp;

use super::super::held::{Call, Held, HeldRoute, Packet};
use super::super::statistics::count;
use super::Worker;

/// Time limit of a call, if the policy sets none.
const LONGEST_CALL: Duration = Duration::from_secs(60);

/// How a connection continues from here.
#[derive(Debug)]
pub(super) enum Way {
    /// To its server.
    Here,
    /// By this route, whose first node is next.
    Through(Route, NextHop),
    /// It may not leave here, and no route leads to its server.
    Nowhere,
}

/// The beginning of a call.
enum Begun {
    /// This route is called.
    Call(Box<HeldRoute>),
    /// The connection leaves here.
    Here,
    /// No route can be called.
    Nowhere,
}

impl Worker {
    /// How a connection continues from here, after these routes have failed.
    pub(super) fn way(&mut self, request: Request, listener: usize, tried: &[Route]) -> Way {
        let now = self.relay_time();
        let known = self.listeners.get_mut(listener);
        let Some(routes) = known.and_then(|known| known.routes.as_mut()) else {
            return Way::Here;
        };
        let wanted = Wanted {
            client: request.client.ip(),
            host: WantedHost::Address(request.server.ip()),
            port: request.server.port(),
            tried,
        };
        let policy = &mut routes.policy;
        let decision = policy.route(now, &wanted, &mut self.shared.overlay.known());
        match decision {
            RouteDecision::Here | RouteDecision::ByAddress => Way::Here,
            RouteDecision::Nowhere => Way::Nowhere,
            RouteDecision::Through(route) => match routes.overlay.first_hop(&route) {
                Ok(next) => Way::Through(route, next),
                Err(_) => Way::Nowhere,
            },
        }
    }

    /// What the overlay has to do with a session that leaves here, if it might have gone another way.
    pub(super) fn part_of_leaving(
        &self,
        request: Request,
        listener: usize,
    ) -> Option<Box<OverlayPart>> {
        let routes = self.listeners.get(listener)?.routes.as_ref();
        routes.map(|_| Box::new(OverlayPart::of_ingress(request.server.ip(), None)))
    }

    /// The server of a connection that leaves here has answered.
    pub(super) fn note_opened_here(&self, arrival: &Arrival) {
        if arrival.overlay.is_some() {
            let now = self.relay_time();
            let site = site_prefix(arrival.request.server.ip());
            let time = now.since(arrival.since);
            self.shared
                .overlay
                .known()
                .note_opened_here(now, site, time);
        }
    }

    /// Whether the clients of these sessions may be answered before their route is called. A foreign proxy as the
    /// exit gets no [first data](midspan_relay::negotiation), so it is called first.
    pub(super) fn may_enter_early(&self, listener: usize, next: &NextHop) -> bool {
        let routes = self
            .listeners
            .get(listener)
            .and_then(|it| it.routes.as_ref());
        next.kind == NodeKind::Midspan && routes.is_some_and(|it| it.overlay.first_data)
    }

    /// Holds the SYN of a connection and calls this route.
    pub(super) fn call_route(
        &mut self,
        packet: Packet,
        listener: usize,
        arrival: Arrival,
        (route, next): (Route, NextHop),
    ) {
        let request = arrival.request;
        let Ok(memory) = self.set_aside(packet.length) else {
            self.count_shortage(Shortage::Memory);
            return self.leave(packet.id, request);
        };
        let timeout = arrival.connect_timeout.map_or(LONGEST_CALL, Duration::from);
        let class = Dscp::of_packet(&packet.bytes).unwrap_or_default();
        let way = Way::Through(route, next);
        let mark = self.listeners.get(listener).map(|known| known.mark);
        match self.begin_route((request, class), listener, way, (Vec::new(), true)) {
            Begun::Call(route) => self.hold(Held {
                packet,
                listener: mark.unwrap_or_default(),
                arrival,
                call: Call::Route(route),
                thread: self.thread,
                sockets: None,
                deadline: self.now.checked_add(timeout),
                memory,
                repetitions: 0,
            }),
            Begun::Here => {
                // The call of the server sets memory aside, too.
                drop(memory);
                self.call_server(packet, listener, arrival);
            }
            Begun::Nowhere => self.refuse_route(&packet, request),
        }
    }

    /// No route leads to the server of this connection.
    pub(super) fn refuse_route(&mut self, packet: &Packet, request: Request) {
        count(&self.counters.refused_unroutable);
        self.refuse(packet, request);
    }

    /// A node has answered, or its connection has failed.
    pub(super) fn answer_by_route(&mut self, token: u64, mut held: Held) {
        let now = self.relay_time();
        let Call::Route(route) = &mut held.call else {
            return self.answer(held);
        };
        match route.call.advance(now) {
            RouteState::Waiting => self.keep(token, held),
            RouteState::Connected(answer) => self.release_by_route(held, &answer),
            RouteState::Failed(failure) => self.fail_route(held, &failure),
            RouteState::Dead => self.call_again(held),
        }
    }

    /// The time of a held SYN has passed.
    pub(super) fn time_out(&mut self, token: u64, mut held: Held) {
        let is_last = held.deadline.is_some_and(|deadline| deadline <= self.now);
        let Call::Route(route) = &mut held.call else {
            return self.give_up(held);
        };
        let failure = route.call.timed_out();
        match (is_last, route.call.is_warm()) {
            (true, _) => {
                if route.call.is_connecting() {
                    self.note_broken(held.listener, route, &failure);
                }
                self.give_up(held);
            }
            // Until now, a new connection or another route might have been tried.
            (false, true) if route.call.prove() => self.keep(token, held),
            (false, true) => self.call_again(held),
            (false, false) => self.fail_route(held, &failure),
        }
    }

    /// There is no session by the route that was called.
    fn fail_route(&mut self, mut held: Held, failure: &HopFailure) {
        let request = held.arrival.request;
        let Call::Route(route) = &mut held.call else {
            return self.give_up(held);
        };
        match route.call.judge(failure) {
            (_, true) => {}
            (Failure::TimedOut, false) => return self.give_up(held),
            (Failure::Refused, false) => {
                count(&self.counters.refused);
                return self.refuse(&held.packet, request);
            }
            (_, false) => return self.refuse_route(&held.packet, request),
        }
        self.note_broken(held.listener, route, failure);
        let mut tried = std::mem::take(&mut route.tried);
        tried.push(route.call.route().clone());
        let way = match self.listener_of(held.listener) {
            Some(listener) => self.way(request, listener, &tried),
            None => Way::Nowhere,
        };
        self.call_way(held, way, (tried, true));
    }

    /// The warm connection to the first node was dead: the same route is called over a new one.
    fn call_again(&mut self, mut held: Held) {
        let Call::Route(route) = &mut held.call else {
            return self.give_up(held);
        };
        let (route, next, tried) = (
            route.call.route().clone(),
            route.call.next().clone(),
            std::mem::take(&mut route.tried),
        );
        let known = self.listener_of(held.listener);
        if let Some(known) = known.and_then(|known| self.listeners.get(known)) {
            let pool = self.shared.overlay.warm();
            pool.end(&known.listener.name, &next.leg);
        }
        self.call_way(held, Way::Through(route, next), (tried, false));
    }

    /// Calls this way instead of the route that was called before.
    fn call_way(&mut self, mut held: Held, way: Way, tried: (Vec<Route>, bool)) {
        let request = held.arrival.request;
        let Some(listener) = self.listener_of(held.listener) else {
            return self.leave(held.packet.id, request);
        };
        let class = Dscp::of_packet(&held.packet.bytes).unwrap_or_default();
        match self.begin_route((request, class), listener, way, tried) {
            Begun::Call(route) => {
                // The socket of the former call is closed, so that nothing watches it.
                held.call = Call::Route(route);
                (held.thread, held.sockets) = (self.thread, None);
                self.hold(held);
            }
            Begun::Here => {
                drop(held.memory);
                self.call_server(held.packet, listener, held.arrival);
            }
            Begun::Nowhere => self.refuse_route(&held.packet, request),
        }
    }

    /// Begins to call this way, if `is_warm` over a warm connection; after routes that cannot be called, other ones.
    fn begin_route(
        &mut self,
        (request, class): (Request, Dscp),
        listener: usize,
        mut way: Way,
        (mut tried, is_warm): (Vec<Route>, bool),
    ) -> Begun {
        loop {
            let (route, next) = match way {
                Way::Through(route, next) => (route, next),
                Way::Here => return Begun::Here,
                Way::Nowhere => return Begun::Nowhere,
            };
            let node = Request {
                client: request.client,
                server: next.address,
            };
            let start = self.server_start(node, listener);
            let known = self.listeners.get(listener);
            let (Some((start, window)), Some(known)) = (start, known) else {
                return Begun::Nowhere;
            };
            let Some(routes) = &known.routes else {
                return Begun::Nowhere;
            };
            let (overlay, now) = (&routes.overlay, self.relay_time());
            let limit = self.shared.overlay.known().connect_limit(now, &next.leg);
            let limit = self.now.checked_add(limit.into());
            let pool = self.shared.overlay.warm();
            if is_warm
                && overlay.warm
                && let Some(leg) = pool.take(now, &routes.listener, &next)
            {
                // Its class was that of no client. A leg continues without an option.
                let settings = &known.listener;
                let _ = settings.set_up_leg(&leg.socket, &LegStart::default(), class);
                let (socket, window) = leg.into_parts();
                let to = (route, next);
                return match RouteCall::over_warm(overlay, to, request, socket, now) {
                    Some(call) => Begun::Call(Box::new(HeldRoute {
                        call,
                        window,
                        connect_by: limit,
                        flight: start.first_flight,
                        tried,
                    })),
                    None => Begun::Nowhere,
                };
            }
            let ends = (next.address, next.from);
            match connect_to_node(ends, &known.listener, &start, class) {
                Ok(connecting) => {
                    let to = (route, next);
                    let call = RouteCall::new(overlay, to, request, connecting.socket, now);
                    return match call {
                        Some(call) => Begun::Call(Box::new(HeldRoute {
                            call,
                            window,
                            // The operator's route is the only one.
                            connect_by: limit.filter(|_| overlay.has_choice()),
                            flight: start.first_flight,
                            tried,
                        })),
                        None => Begun::Nowhere,
                    };
                }
                Err(error) => {
                    let failure = RouteCall::unconnected(overlay, error);
                    let shared = &self.shared.overlay;
                    shared.note_failed(now, &overlay.own, &route, &failure);
                    self.log_broken(&known.listener.name, &next, &failure);
                    tried.push(route);
                }
            }
            way = self.way(request, listener, &tried);
        }
    }

    /// After all routes have failed, the connection leaves here.
    fn call_server(&mut self, packet: Packet, listener: usize, mut arrival: Arrival) {
        arrival.overlay = self.part_of_leaving(arrival.request, listener);
        self.call(packet, listener, arrival);
    }

    /// The exit has connected to the server: the connection to the first node is the server leg.
    fn release_by_route(&mut self, held: Held, answer: &HopAnswer) {
        // From here on the relay counts the session's memory, and watches the socket.
        drop(held.memory);
        if let Some(sockets) = &held.sockets {
            let _ = sockets.forget(held.call.socket());
        }
        let (request, now) = (held.arrival.request, self.relay_time());
        let listener = self.listener_of(held.listener);
        let (Some(listener), Call::Route(route)) = (listener, held.call) else {
            return self.leave(held.packet.id, request);
        };
        let HeldRoute {
            call,
            flight,
            window,
            ..
        } = *route;
        let node = call.next().address;
        let Some((server, part)) = call.open(answer, &self.shared.overlay, now) else {
            return self.refuse_route(&held.packet, request);
        };
        let arrival = Arrival {
            // What the leg to the node shows is no knowledge about the server.
            request: Request {
                client: request.client,
                server: node,
            },
            server_flight: flight,
            window,
            name: Some(request.server.to_string().into()),
            overlay: Some(Box::new(part)),
            ..held.arrival
        };
        self.release((held.packet, request), listener, arrival, Some(server));
    }

    /// What is known of the overlay gets the failure of a route, and the log, too.
    fn note_broken(&self, mark: u32, route: &HeldRoute, failure: &HopFailure) {
        let known = self.listener_of(mark);
        let Some(known) = known.and_then(|known| self.listeners.get(known)) else {
            return;
        };
        if let Some(routes) = &known.routes {
            let (now, shared) = (self.relay_time(), &self.shared.overlay);
            shared.note_failed(now, &routes.overlay.own, route.call.route(), failure);
        }
        self.log_broken(&known.listener.name, route.call.next(), failure);
    }

    fn log_broken(&self, listener: &str, next: &NextHop, failure: &HopFailure) {
        let admitted = self.shared.logs().broken.admit(self.now);
        if let Some(not_logged) = admitted {
            log_broken_route(next, failure, listener, not_logged);
        }
    }
}
