//! By which nodes of an overlay a client's session goes.

use std::net::SocketAddr;

use midspan_explicit::{Failure, HostName};
use midspan_policy::Request;
use midspan_policy::overlay::{NextHop, RouteDecision, Wanted, WantedHost};
use midspan_units::TimeSpan;

use super::{Asked, Negotiations, Neighbours, Reason, Step};
use crate::table::Key;

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
        let negotiating = self.negotiating_clients.get_mut(key)?;
        if negotiating.leaves_here {
            return None;
        }
        let wanted = Wanted {
            client: negotiating.client_address().ip(),
            host,
            port,
        };
        let acceptor = around.acceptors.get_mut(negotiating.listener)?;
        match acceptor.route(now, &wanted) {
            RouteDecision::ByAddress => None,
            RouteDecision::Here => {
                negotiating.leaves_here = true;
                None
            }
            RouteDecision::Through(route) => {
                match host {
                    WantedHost::Address(address) => {
                        negotiating.chosen_address = Some(SocketAddr::new(address, port));
                    }
                    WantedHost::Name(_) => {
                        let access = &negotiating.settings.access;
                        if !access.allows_name(wanted.client, port) {
                            let reason = Some(Reason::Destination);
                            return Some(negotiating.fail(Failure::NotAllowed, reason, now));
                        }
                    }
                }
                let overlay = negotiating.settings.overlay.as_ref();
                Some(match overlay.map(|overlay| overlay.first_hop(&route)) {
                    Some(Ok(next)) => Step::Pass(next),
                    Some(Err(refusal)) => {
                        let reason = Some(Reason::Hop(refusal));
                        negotiating.fail(Failure::RouteBroken, reason, now)
                    }
                    None => negotiating.fail(Failure::RouteBroken, None, now),
                })
            }
        }
    }

    /// Begins to connect to the next node; `None` if it has begun.
    pub(super) fn pass(
        &mut self,
        key: Key,
        next: NextHop,
        around: &mut Neighbours<'_>,
    ) -> Option<Step> {
        match self.admit(key, next.address, around) {
            Ok(timeout) => {
                let negotiating = self.negotiating_clients.get_mut(key)?;
                negotiating.pass_to(next, timeout, around.now);
                None
            }
            Err(step) => step,
        }
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

    /// Logs that a route cannot be used. What a node reports comes from a member.
    pub(super) fn log_broken_route(&mut self, key: Key, around: &Neighbours<'_>) {
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return;
        };
        let Some((next, failure)) = negotiating.broken_route() else {
            return;
        };
        let Some(not_logged) = self.refusals.admit(crate::system::now()) else {
            return;
        };
        let acceptor = around.acceptors.get(negotiating.listener);
        let listener = acceptor.map_or("", |it| it.listener.name.as_str());
        let reported_by = failure.node.as_ref().map_or("", |node| node.as_str());
        let (first, exit, error) = (&next.node, next.exit(), failure.error.token());
        tracing::warn!(%first, %exit, reported_by, error, listener, not_logged, "route broken");
    }
}
