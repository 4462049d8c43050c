//! A thread's work for clients that negotiate.

use std::net::SocketAddr;
use std::sync::Arc;

use midspan_explicit::hop::row_answer;
use midspan_explicit::{Credentials, Failure};
use midspan_policy::memory_share::LEAST_OF_SESSION;
use midspan_policy::overlay::{HopRefusal, WantedHost};
use midspan_policy::suspects::Treatment;
use midspan_policy::{Leg, Request};
use midspan_units::Time;

use super::{
    Joined, MOST_OF_CLIENT, MOST_OF_NODE, MOST_ROWS_OF_NODE, NegotiatingClient, Negotiations,
    Reason, Step,
};
use crate::acceptors::Acceptors;
use crate::arrival::NewClient;
use crate::destination::Negotiator;
use crate::kick::{Kicks, Target};
use crate::limits::Shortage;
use crate::listener::Language;
use crate::overlay::counts::RefusedHop;
use crate::session::{Client, Session};
use crate::sessions::Sessions;
use crate::shared_part::SharedPart;
use crate::sockets::Sockets;
use crate::system;
use crate::table::Key;

/// The other parts of a thread that its negotiations use.
pub(crate) struct Neighbours<'a> {
    /// The sources of clients.
    pub acceptors: &'a mut Acceptors,
    /// The sessions that negotiations become.
    pub sessions: &'a mut Sessions,
    /// Commands to reset sessions.
    pub kicks: &'a Kicks,
    /// The time of this turn.
    pub now: Time,
}

impl Negotiations {
    /// Begins a negotiation with a client.
    pub fn begin(
        &mut self,
        index: usize,
        client: NewClient,
        negotiator: &Negotiator,
        around: &mut Neighbours<'_>,
    ) {
        let address = client.address;
        let settings = Arc::clone(&negotiator.settings);
        // Dropping the client resets it.
        if !settings.hears(address.ip()) {
            return self.deny(index, address, around.acceptors);
        }
        if around.acceptors.treatment(index, address, around.now) == Treatment::Refused {
            return self.counters.refused_suspects.add(1);
        }
        let share = match settings.client_is_peer() {
            true => MOST_OF_CLIENT,
            false => MOST_OF_NODE,
        };
        let caller = settings.peer_has_share().then(|| (address.ip(), share));
        if !self.has_room(caller) {
            return self.count_refusal(Reason::Overload);
        }
        // A client that is reset here has sent nothing.
        if !settings.expect_encryption(address.ip(), &client.socket) {
            return self.count_refusal(Reason::Overload);
        }
        let key = self.negotiating_clients.next_key();
        if let Err(error) = self.poll.add_negotiation(&client.socket, key) {
            return around.acceptors.pause(index, error, around.now);
        }
        // Counts this client's wrong passwords. If the client has given too many, its passwords are
        // refused unchecked for a while.
        let credentials = negotiator.credentials.as_ref().map(|known| {
            Arc::new(match self.tries.is_blocked(address.ip(), around.now) {
                false => Credentials::clone(known),
                true => Credentials::default(),
            })
        });
        // As much memory as the client will have as a session.
        let memory = self.limits.set_aside(LEAST_OF_SESSION);
        let mut negotiating =
            NegotiatingClient::new(client, memory, index, settings, credentials, around.now);
        if caller.is_none()
            && let Some(acceptor) = around.acceptors.get(index)
        {
            let listener = Arc::clone(&acceptor.listener);
            negotiating = negotiating.named_at(listener, Arc::clone(&self.limits));
        }
        let key = self.take_in(negotiating, around.acceptors);
        self.go_on(key, around);
    }

    fn take_in(&mut self, mut negotiating: NegotiatingClient, acceptors: &mut Acceptors) -> Key {
        let (index, caller) = (negotiating.listener, negotiating.caller());
        let client = negotiating.client_address();
        let treatment = acceptors.treatment(index, client, negotiating.begin);
        let listener = (acceptors.address(index), treatment != Treatment::Usual);
        negotiating.register(&self.register, listener);
        let key = self.negotiating_clients.insert(negotiating);
        self.count(caller, true);
        // A negotiation counts as a session: it has a descriptor, and draining waits for it.
        self.counters.sessions_active.add(1);
        self.counters.negotiations_active.add(1);
        acceptors.begin_session(index);
        key
    }

    /// Ends a session whose exchange is over; its client returns to the negotiation, for its next
    /// request or for a last answer.
    pub fn take_back(&mut self, key: Key, around: &mut Neighbours<'_>) {
        let Some(session) = around.sessions.table().get_mut(key) else {
            return;
        };
        let listener = usize::from(session.listener);
        let is_open = around.acceptors.accepts(listener);
        let has_room = self.has_room(None);
        let (client, end) = session.leave_exchange(is_open && has_room);
        // Otherwise draining might end meanwhile.
        self.counters.sessions_active.add(1);
        let left = (around.sessions).take(key, end, around.acceptors, around.now);
        let left = left.and_then(Session::into_client);
        let last = match client {
            Client::Stays => None,
            Client::IsTold(last) => Some(last),
            Client::IsGone => Some(""),
        };
        if let Some((client_left, kept)) = left
            && !matches!(client, Client::IsGone)
        {
            let key = self.negotiating_clients.next_key();
            let watched = self.poll.change_to_negotiation(&client_left.socket, key);
            let memory = self.limits.set_aside(LEAST_OF_SESSION);
            let negotiating =
                NegotiatingClient::again(client_left, memory, listener, kept, last, around.now);
            // Without room or events, the connection is closed at once; by a reset if there is an
            // answer that cannot be sent.
            if last.is_none_or(str::is_empty) && (!has_room || watched.is_err()) {
                negotiating.close_in_order();
            }
            if has_room && watched.is_ok() {
                let key = self.take_in(negotiating, around.acceptors);
                self.go_on(key, around);
            }
        }
        self.counters.sessions_active.decrement();
    }

    /// Closes idle connections of a listener's clients that have had an answer.
    pub fn close_idle(&mut self, index: usize, acceptors: &mut Acceptors, now: Time) {
        let negotiating_clients = &mut self.negotiating_clients;
        let idle: Vec<Key> = (0..negotiating_clients.places())
            .filter_map(|place| {
                let negotiating = negotiating_clients.at_place(place)?;
                (negotiating.listener == index && negotiating.is_idle())
                    .then(|| negotiating.close_in_order())?;
                negotiating_clients.key_at(place)
            })
            .collect();
        for key in idle {
            self.forget(key, None, acceptors, now);
        }
    }

    /// Handles an event or a deadline.
    pub fn go_on(&mut self, key: Key, around: &mut Neighbours<'_>) {
        let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
            return;
        };
        self.register.put_in_hand(negotiating.registration());
        let (listener, now, poll) = (negotiating.listener, around.now, &self.poll);
        let Some(acceptor) = around.acceptors.get_mut(listener) else {
            return self.forget(key, None, around.acceptors, now);
        };
        let (client, is_plain) = (negotiating.client_address(), negotiating.is_plain);
        let limits = &self.limits;
        let spare = || limits.take_descriptor();
        let source = negotiating.leg_source();
        // Only for this call: the session will be the only owner.
        let client_leg = Arc::clone(negotiating.client());
        let mut windows = Vec::new();
        let step = negotiating.advance(now, spare, |server| {
            let request = Request { client, server };
            let class = acceptor.class_of(&client_leg);
            let (connecting, window) =
                acceptor.connect_new(now, (&request, is_plain), (class, source), limits)?;
            self.counters.option_errors.add(connecting.option_errors);
            poll.add_negotiation(&connecting.socket, key)?;
            windows.extend(window);
            Ok(Arc::new(connecting.socket))
        });
        drop(client_leg);
        for window in &windows {
            negotiating.take_window(window);
        }
        self.carry_out(key, step, around);
    }

    fn carry_out(&mut self, key: Key, mut step: Step, around: &mut Neighbours<'_>) {
        loop {
            let Some(negotiating) = self.negotiating_clients.get_mut(key) else {
                return;
            };
            step = match step {
                Step::Wait => {
                    negotiating.note_memory();
                    // No event follows a call that has reported too little.
                    let next = Some(match system::take_pretence() {
                        true => around.now,
                        false => negotiating.next(),
                    });
                    self.timers.set(key, next);
                    return;
                }
                Step::Resolve(name) => self.resolve(key, &name, around),
                Step::Choose => match self.choose_server(key, around) {
                    None => return self.go_on(key, around),
                    Some(step) => step,
                },
                Step::Decide(addresses) => match self.decide(key, addresses, around) {
                    None => return self.go_on(key, around),
                    Some(step) => step,
                },
                Step::Pass(next) => match self.pass(key, *next, around) {
                    None => return self.go_on(key, around),
                    Some(step) => step,
                },
                Step::Unconnected(server, error) => {
                    let (arrival, listener) = (negotiating.arrival(server), negotiating.listener);
                    let name = negotiating.name();
                    let at = (&*around.acceptors, around.now);
                    (around.sessions).note_unconnected(listener, &arrival, error, name, at);
                    self.note_failed_route(key, around);
                    self.log_broken_route(key, around);
                    return self.go_on(key, around);
                }
                Step::Report(tag) => {
                    let listener = negotiating.listener;
                    let acceptor = around.acceptors.get(listener);
                    let row = acceptor.map(|acceptor| acceptor.overlay.known().own_row(around.now));
                    let mut row = row.unwrap_or_default();
                    if let Some(before) = &negotiating.reported {
                        row = row.steady_since(before);
                    }
                    let answer = row_answer(&row, tag);
                    negotiating.reported = Some(Box::new(row));
                    // A node beyond its share gets an answer, and then gives its place back.
                    let sender = negotiating.peer().ip();
                    if !negotiating.is_for_rows {
                        negotiating.is_for_rows = self.rows.take(sender, MOST_ROWS_OF_NODE);
                    }
                    // Draining does not wait for requests without end.
                    let stays = negotiating.is_for_rows && around.acceptors.accepts(listener);
                    negotiating.report(answer, stays, around.now)
                }
                Step::Again(failure, errno) => self.try_again(key, (&failure, errno), around),
                Step::Join => return self.join(key, around),
                Step::End(reason) => {
                    return self.forget(key, reason, around.acceptors, around.now);
                }
            };
        }
    }

    /// Begins to connect to those addresses to which the client may be connected; `None` if attempts
    /// have begun.
    fn decide(
        &mut self,
        key: Key,
        mut addresses: Vec<SocketAddr>,
        around: &mut Neighbours<'_>,
    ) -> Option<Step> {
        let now = around.now;
        let negotiating = self.negotiating_clients.get_mut(key)?;
        let client = negotiating.client_address();
        let settings = &negotiating.settings;
        if settings.language == Language::Servers {
            return self.note_addresses(key, &addresses, around);
        }
        addresses.retain(|server| {
            let access = &settings.access;
            settings.serves(*server)
                && settings.fits(client.ip(), *server)
                && access.allows(client.ip(), *server, crate::machine::is_own)
        });
        let Some(server) = addresses.first().copied() else {
            return Some(negotiating.fail(Failure::NotAllowed, Some(Reason::Destination), now));
        };
        let host = WantedHost::Address(server.ip());
        if let Some(step) = self.route(key, host, server.port(), around) {
            return Some(step);
        }
        match self.admit(key, server, around) {
            Ok(timeout) => {
                let negotiating = self.negotiating_clients.get_mut(key)?;
                negotiating.connect(addresses, timeout, now);
                None
            }
            Err(step) => step,
        }
    }

    /// Handles the answers of the resolver.
    pub fn handle_names(&mut self, around: &mut Neighbours<'_>) {
        let Some(names) = &self.names else {
            return;
        };
        for (key, addresses) in names.take() {
            if let Some(negotiating) = self.negotiating_clients.get_mut(key) {
                self.register.put_in_hand(negotiating.registration());
                let step = negotiating.handle_addresses(addresses, around.now);
                self.carry_out(key, step, around);
            }
        }
    }

    /// Handles the negotiations whose deadline has passed.
    pub fn handle_timers(&mut self, around: &mut Neighbours<'_>) {
        while let Some(key) = self.timers.pop_due(around.now) {
            self.go_on(key, around);
        }
    }

    /// Makes a session of a negotiation. The sockets are watched again, so that epoll reports their
    /// present state.
    fn join(&mut self, key: Key, around: &mut Neighbours<'_>) {
        let part = self.note_opened(key, around);
        let Some(Joined {
            arrival,
            client,
            server,
            listener,
            name,
            first: [to_server, to_client],
            first_data,
            framed,
        }) = self
            .take_out(key, around.acceptors, around.now)
            .and_then(NegotiatingClient::into_joined)
        else {
            return;
        };
        if around.kicks.includes(&arrival) {
            // Dropping both legs resets them.
            return;
        }
        let record = (around.sessions).record(listener, &arrival, around.acceptors);
        let Some((identity, mut record)) = record else {
            return;
        };
        record.note_moved(Leg::Client, first_data, first_data);
        self.counters.bytes_to_server.add(first_data);
        self.counters.bytes_copied.add(first_data);
        let session = around.sessions.next_key();
        if let Err(error) = self.poll.change_to_session(&client, &server, session) {
            return around.acceptors.pause(listener, error, around.now);
        }
        if arrival.is_bypassed {
            around.sessions.begin_plain(identity.id());
        }
        let number = u16::try_from(listener).unwrap_or(u16::MAX);
        let (seat, window) = (arrival.seat.unwrap_or_default(), arrival.window);
        let shared = SharedPart::new(identity, Sockets { client, server }, seat);
        let mut joined = Session::new(shared, number, record, around.now);
        joined.begin_relaying(around.now);
        joined.hold(to_server, to_client);
        if let Some(framed) = framed {
            joined.carry(framed);
        }
        let joined = (joined, window);
        (around.sessions).begin_connected(joined, (name, part), around.acceptors, around.now);
    }

    /// Resets clients without a session that the target includes; returns their number. A client
    /// whose server the target includes is reset when this server answers.
    pub fn kick(&mut self, target: Target, acceptors: &mut Acceptors, now: Time) -> u64 {
        let negotiating_clients = &mut self.negotiating_clients;
        let is_meant =
            |negotiating: &NegotiatingClient| target.has_address(negotiating.client_address().ip());
        let meant: Vec<Key> = (0..negotiating_clients.places())
            .filter(|place| {
                negotiating_clients
                    .at_place(*place)
                    .is_some_and(|negotiating| is_meant(negotiating))
            })
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|place| negotiating_clients.key_at(place))
            .collect();
        for key in &meant {
            self.forget(*key, None, acceptors, now);
        }
        meant.len() as u64
    }

    /// Ends a negotiation without a session.
    fn forget(&mut self, key: Key, reason: Option<Reason>, acceptors: &mut Acceptors, now: Time) {
        let negotiating = self.take_out(key, acceptors, now);
        if let Some(reason) = reason {
            if let Some(negotiating) = &negotiating {
                self.log_refused_hop(negotiating, reason, acceptors);
                count_refused_hop(negotiating, reason, acceptors);
                self.log_refusal(
                    negotiating.listener,
                    negotiating.client_address(),
                    reason,
                    acceptors,
                );
            }
            self.count_refusal(reason);
        }
    }

    fn take_out(
        &mut self,
        key: Key,
        acceptors: &mut Acceptors,
        now: Time,
    ) -> Option<NegotiatingClient> {
        let negotiating = self.negotiating_clients.remove(key)?;
        let (client, wrong) = (
            negotiating.client_address().ip(),
            negotiating.wrong_passwords(),
        );
        self.tries.note(client, wrong, now);
        self.timers.set(key, None);
        self.count(negotiating.caller(), false);
        if negotiating.is_for_rows {
            self.rows.give_back(negotiating.peer().ip());
        }
        self.counters.sessions_active.decrement();
        self.counters.negotiations_active.decrement();
        acceptors.end_session(negotiating.listener);
        Some(negotiating)
    }

    /// Counts and logs a client that the access rules do not admit.
    pub fn deny(&mut self, listener: usize, client: SocketAddr, acceptors: &Acceptors) {
        self.log_refusal(listener, client, Reason::Access, acceptors);
        self.count_refusal(Reason::Access);
    }

    /// Logs a client that may not use the listener. The form of the line is documented, because
    /// programs read it. It contains nothing that the client has sent.
    fn log_refusal(
        &mut self,
        listener: usize,
        client: SocketAddr,
        reason: Reason,
        acceptors: &Acceptors,
    ) {
        let reason = match reason {
            Reason::Access => "access",
            Reason::Unauthenticated => "login",
            _ => return,
        };
        let Some(not_logged) = self.refusals.admit(system::now()) else {
            return;
        };
        let listener = acceptors.get(listener);
        let listener = listener.map_or("", |acceptor| acceptor.listener.name.as_str());
        let (ip, port) = (client.ip().to_canonical(), client.port());
        tracing::warn!(%reason, client = %ip, port, %listener, not_logged, "client refused");
    }

    /// Logs a hop that this node does not carry, with the member that has sent it.
    fn log_refused_hop(
        &mut self,
        negotiating: &NegotiatingClient,
        reason: Reason,
        acceptors: &Acceptors,
    ) {
        let is_hop = negotiating.settings.language == Language::Hop;
        let why = match reason {
            Reason::Hop(refusal) => refusal.to_string(),
            Reason::Destination if is_hop => "this node does not connect to this server".to_owned(),
            Reason::Malformed if is_hop => "its request is malformed".to_owned(),
            _ => return,
        };
        let Some(not_logged) = self.refusals.admit(system::now()) else {
            return;
        };
        let listener = acceptors.get(negotiating.listener);
        let listener = listener.map_or("", |acceptor| acceptor.listener.name.as_str());
        let (sender, destination) = (negotiating.peer(), negotiating.requested_text());
        tracing::warn!(%sender, destination, listener, not_logged, "hop refused: {why}");
    }

    fn count_refusal(&self, reason: Reason) {
        let counters = &self.counters;
        let counter = match reason {
            Reason::Access | Reason::Destination => &counters.refused_by_access,
            Reason::Drained => &counters.refused_drained,
            Reason::Policy => &counters.refused_by_policy,
            Reason::Malformed => &counters.refused_malformed,
            Reason::Unsupported => &counters.refused_unsupported,
            Reason::NoCredentials | Reason::Unauthenticated => &counters.refused_unauthenticated,
            Reason::Silent => &counters.refused_silent,
            Reason::Gone => &counters.negotiations_abandoned,
            Reason::Name => &counters.names_not_found,
            Reason::Overload => &counters.refused_overloaded,
            Reason::Hop(
                HopRefusal::Stranger | HopRefusal::WrongKey | HopRefusal::ForeignClient,
            ) => &counters.refused_by_access,
            Reason::Hop(HopRefusal::NotEncrypted) => &counters.refused_malformed,
            Reason::Hop(HopRefusal::Forged) => &counters.refused_forged,
            Reason::Hop(HopRefusal::Loop | HopRefusal::TooLong) => &counters.refused_looping,
            Reason::Hop(HopRefusal::NoTransit | HopRefusal::UnknownNode | HopRefusal::NoExit) => {
                &counters.refused_unroutable
            }
            Reason::TooFast => &counters.shed_client_rate,
            Reason::Crowded => {
                self.limits.log(Shortage::Client);
                &counters.shed_client
            }
        };
        counter.add(1);
    }
}

/// Counts a hop that this node does not carry, if one node has sent it.
fn count_refused_hop(negotiating: &NegotiatingClient, reason: Reason, acceptors: &Acceptors) {
    let reason = match reason {
        Reason::Hop(refusal) => RefusedHop::from(refusal),
        Reason::Destination => RefusedHop::Access,
        Reason::Malformed => RefusedHop::Malformed,
        _ => return,
    };
    let is_hop = negotiating.settings.language == Language::Hop;
    let overlay = negotiating.settings.overlay.as_ref().filter(|_| is_hop);
    let sender = overlay.and_then(|overlay| negotiating.sender(overlay));
    if let (Some(sender), Some(acceptor)) = (sender, acceptors.get(negotiating.listener)) {
        acceptor.overlay.counts().note_refused(&sender.name, reason);
    }
}
