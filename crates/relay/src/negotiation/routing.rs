//! By which nodes of an overlay a client's session goes.

use std::net::SocketAddr;

use midspan_explicit::hop::HopFailure;
use midspan_explicit::{Failure, Host, HostName};
use midspan_policy::overlay::{Left, NextHop, Overlay, Route, RouteDecision, Wanted, WantedHost};
use midspan_policy::prefix::site_prefix;
use midspan_policy::{LegStart, Request};
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::negotiating_client::CallLimits;
use super::{Asked, Negotiations, Neighbours, Reason, Step};
use crate::listener::Language;
use crate::overlay::warm::WarmLeg;
use crate::overlay::{OverlayPart, log_broken_route};
use crate::table::Key;

/// How long a transit node waits for the handshake with the next node: its SYN is sent three times, after
/// 0, 1 and 3 s. The ingress may then have another route.
const TRANSIT_LIMIT: TimeSpan = TimeSpan::from_milliseconds(4500);

impl Negotiations {
    /// Handles the name of a server: the session goes through the overlay, or the name is looked up here.
    pub(super) fn resolve(
        &mut self,
        key: Key,
        name: &HostName,
        around: &mut Neighbours<'_>,
    ) -> Step {
        let port = self.negotiating_clients.get_mut(key);
        let port = port.map_or(0, |negotiating| negotiating.requested_port());
        if let Some(step) = self.route(key, WantedHost::Name(name.as_str()), port, around) {
            return step;
        }
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return Step::Wait;
        };
        let client = negotiating.client_address().ip();
        let addresses = match self.ask(key, client, name.as_str()) {
            Asked::Waiting => return Step::Wait,
            Asked::Known(addresses) => Some(addresses),
            Asked::Refused => None,
        };
        match self.negotiating_clients.get_mut(key) {
            None => Step::Wait,
            Some(negotiating) => negotiating.handle_addresses(addresses, around.now),
        }
    }

    /// The step by which the session goes through the overlay; `None` if it leaves here, or if that
    /// depends on the server's address.
    pub(super) fn route(
        &mut self,
        key: Key,
        host: WantedHost<'_>,
        port: u16,
        around: &mut Neighbours<'_>,
    ) -> Option<Step> {
        let now = around.now;
        if self.negotiating_clients.get_mut(key)?.leaves_here {
            return None;
        }
        match self.choose(key, host, port, around)? {
            RouteDecision::ByAddress => None,
            RouteDecision::Here => {
                self.negotiating_clients.get_mut(key)?.leaves_here = true;
                None
            }
            RouteDecision::Through(route) => self.take_route(key, host, port, (&route, now)),
            RouteDecision::Nowhere => {
                let negotiating = self.negotiating_clients.get_mut(key)?;
                Some(negotiating.fail(Failure::RouteBroken, None, now))
            }
        }
    }

    /// The policy's decision about the route of a session.
    fn choose(
        &mut self,
        key: Key,
        host: WantedHost<'_>,
        port: u16,
        around: &mut Neighbours<'_>,
    ) -> Option<RouteDecision> {
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let wanted = Wanted {
            client: negotiating.client_address().ip(),
            host,
            port,
            tried: &negotiating.tried,
        };
        let acceptor = around.acceptors.get_mut(negotiating.listener)?;
        Some(acceptor.route(around.now, &wanted))
    }

    /// The step by which a session goes by this route.
    fn take_route(
        &mut self,
        key: Key,
        host: WantedHost<'_>,
        port: u16,
        (route, now): (&Route, Time),
    ) -> Option<Step> {
        let negotiating = self.negotiating_clients.get_mut(key)?;
        match host {
            WantedHost::Address(address) => {
                negotiating.chosen_address = Some(SocketAddr::new(address, port));
            }
            WantedHost::Name(_) => {
                let access = &negotiating.settings.access;
                if !access.allows_name(negotiating.client_address().ip(), port) {
                    let reason = Some(Reason::Destination);
                    return Some(negotiating.fail(Failure::NotAllowed, reason, now));
                }
            }
        }
        let overlay = negotiating.settings.overlay.as_ref();
        Some(match overlay.map(|overlay| overlay.first_hop(route)) {
            Some(Ok(next)) => Step::Pass(Box::new(next)),
            Some(Err(refusal)) => {
                let reason = Some(Reason::Hop(refusal));
                negotiating.fail(Failure::RouteBroken, reason, now)
            }
            None => negotiating.fail(Failure::RouteBroken, None, now),
        })
    }

    /// The session's route has failed: the step by which it takes another one, or by which its client is
    /// informed.
    pub(super) fn try_again(
        &mut self,
        key: Key,
        (failure, errno): (&HopFailure, Errno),
        around: &mut Neighbours<'_>,
    ) -> Step {
        self.note_failed_route(key, around);
        self.log_broken_route(key, around);
        let now = around.now;
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return Step::Wait;
        };
        negotiating.note_tried();
        let port = negotiating.requested_port();
        let address = negotiating.server_address().map(|address| address.ip());
        let requested = negotiating.requested().map(|requested| requested.host);
        let host = match (address, &requested) {
            (Some(address), _) => Some(WantedHost::Address(address)),
            (None, Some(Host::Name(name))) => Some(WantedHost::Name(name.as_str())),
            (None, _) => None,
        };
        let decision = host.and_then(|host| self.choose(key, host, port, around));
        let step = match (decision, host) {
            (Some(RouteDecision::Through(route)), Some(host)) => {
                self.take_route(key, host, port, (&route, now))
            }
            (Some(RouteDecision::Here), _) => {
                let negotiating = self.negotiating_clients.get_mut(key);
                negotiating.map(|negotiating| negotiating.leave_here(now))
            }
            _ => {
                let negotiating = self.negotiating_clients.get_mut(key);
                negotiating.map(|negotiating| negotiating.give_up(failure, errno, now))
            }
        };
        step.unwrap_or(Step::Wait)
    }

    /// What is known of the overlay gets the failure of a route, if the server is not the reason.
    pub(super) fn note_failed_route(&mut self, key: Key, around: &Neighbours<'_>) {
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return;
        };
        let (Some(route), Some((_, failure))) = (negotiating.route(), negotiating.broken_route())
        else {
            return;
        };
        let overlay = negotiating.settings.overlay.as_ref();
        let acceptor = around.acceptors.get(negotiating.listener);
        if let (Some(overlay), Some(acceptor)) = (overlay, acceptor) {
            let shared = &acceptor.overlay;
            shared.note_failed(around.now, &overlay.own, &route, failure);
        }
    }

    /// What is known of the overlay gets the times of a session that begins. Returns what the overlay has
    /// to do with the session.
    pub(super) fn note_opened(&mut self, key: Key, around: &Neighbours<'_>) -> Option<OverlayPart> {
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let overlay = negotiating.settings.overlay.as_ref()?;
        let acceptor = around.acceptors.get(negotiating.listener)?;
        let site = negotiating
            .server_address()
            .map(|server| site_prefix(server.ip()));
        let time = negotiating.connect_time();
        let route = negotiating.route();
        let mut known = acceptor.overlay.known();
        match (&route, site) {
            (Some(route), site) => {
                let times = negotiating.times_of_nodes();
                known.note_opened(around.now, &overlay.own, (route, site), time, &times);
            }
            (None, Some(site)) => known.note_opened_here(around.now, site, time),
            (None, None) => {}
        }
        drop(known);
        let left = match &route {
            Some(_) => Left::Overlay,
            None => Left::Here,
        };
        let is_ingress = negotiating.settings.language != Language::Hop;
        Some(OverlayPart {
            nodes: [
                negotiating.node_before(),
                route
                    .as_ref()
                    .and_then(|route| route.nodes().first().cloned()),
            ],
            route,
            left: site.filter(|_| is_ingress).map(|site| (site, left)),
        })
    }

    /// Begins to connect to the next node; `None` if it has begun.
    pub(super) fn pass(
        &mut self,
        key: Key,
        next: NextHop,
        around: &mut Neighbours<'_>,
    ) -> Option<Step> {
        match self.admit(key, next.address, around) {
            Ok(answer) => {
                let negotiating = self.negotiating_clients.get_mut(key)?;
                let overlay = negotiating.settings.overlay.as_ref();
                let is_open = overlay.is_some_and(Overlay::has_choice);
                let connect = match (is_open, negotiating.settings.language) {
                    (false, Language::Hop) => Some(TRANSIT_LIMIT),
                    // The operator's route is the only one.
                    (false, _) => None,
                    (true, _) => {
                        let acceptor = around.acceptors.get(negotiating.listener)?;
                        let known = acceptor.overlay.known();
                        Some(known.connect_limit(around.now, &next.leg))
                    }
                };
                let limits = CallLimits { answer, connect };
                let warm = self.take_warm(key, &next, around);
                let negotiating = self.negotiating_clients.get_mut(key)?;
                negotiating.pass_to(next, limits, around.now);
                if let Some(leg) = warm {
                    negotiating.use_warm(leg, connect.unwrap_or(TRANSIT_LIMIT), around.now);
                }
                None
            }
            Err(step) => step,
        }
    }

    /// A warm connection to the next node, if there is one.
    fn take_warm(&mut self, key: Key, next: &NextHop, around: &Neighbours<'_>) -> Option<WarmLeg> {
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let overlay = negotiating.settings.overlay.as_ref();
        overlay.filter(|overlay| overlay.warm)?;
        let acceptor = around.acceptors.get(negotiating.listener)?;
        let (pool, listener) = (acceptor.overlay.warm(), &acceptor.listener);
        if let Some(dead) = &negotiating.dead_warm {
            if *dead == next.leg {
                pool.end(&listener.name, dead);
            }
            return None;
        }
        let leg = pool.take(around.now, listener, next)?;
        // Its class was that of no client.
        let class = acceptor.class_of(negotiating.client());
        if listener
            .set_up_leg(&leg.socket, &LegStart::default(), class)
            .is_err()
        {
            self.counters.option_errors.add(1);
        }
        self.poll.add_negotiation(&leg.socket, key).ok()?;
        Some(leg)
    }

    /// The policy's answer to a connection to this server or node: the time limit, or the step that
    /// follows if it refuses.
    pub(super) fn admit(
        &mut self,
        key: Key,
        server: SocketAddr,
        around: &mut Neighbours<'_>,
    ) -> Result<Option<TimeSpan>, Option<Step>> {
        let now = around.now;
        let negotiating = self.negotiating_clients.get_mut(key).ok_or(None)?;
        let acceptor = around.acceptors.get_mut(negotiating.listener).ok_or(None)?;
        let client = negotiating.client_address();
        negotiating.note_server(server);
        match acceptor.admit(now, negotiating.client(), &Request { client, server }) {
            Some(admitted) => {
                self.counters.option_errors.add(admitted.option_errors);
                Ok(admitted.connect_timeout)
            }
            None => {
                let reason = Some(Reason::Policy);
                Err(Some(negotiating.fail(Failure::NotAllowed, reason, now)))
            }
        }
    }

    /// Logs that a route cannot be used.
    pub(super) fn log_broken_route(&mut self, key: Key, around: &Neighbours<'_>) {
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return;
        };
        let Some((next, failure)) = negotiating.broken_route() else {
            return;
        };
        let own = negotiating.settings.overlay.as_ref().map(|it| &it.own);
        // A failure that this node only passes on is logged where it has happened, and at the ingress.
        if negotiating.settings.language == Language::Hop && failure.node.as_ref() != own {
            return;
        }
        let Some(not_logged) = self.refusals.admit(crate::system::now()) else {
            return;
        };
        let acceptor = around.acceptors.get(negotiating.listener);
        let listener = acceptor.map_or("", |it| it.listener.name.as_str());
        log_broken_route(next, failure, listener, not_logged);
    }
}
