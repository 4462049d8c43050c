//! What a thread does for clients that are spoken with before there is a session.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use midspan_explicit::{Credentials, Failure};
use midspan_policy::Request;
use midspan_policy::memory_share::LEAST_OF_SESSION;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{OWN, Worker};
use crate::arrival::NewClient;
use crate::destination::Negotiator;
use crate::kick::Target;
use crate::limits::Shortage;
use crate::negotiation::{Asked, Joined, Reason, Step, Talk};
use crate::observation::{Ended, SessionReport};
use crate::opening::Acceptor;
use crate::session::{Client, Session};
use crate::table::Key;

/// Marks tokens of negotiations, all of whose sockets have the same.
pub(super) const NEGOTIATION: u64 = OWN | 1 << 62;

const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

fn token(key: Key) -> EventData {
    EventData::new_u64(NEGOTIATION | key.number())
}

impl Worker {
    /// Begins to speak with a client.
    pub(super) fn negotiate(&mut self, index: usize, client: NewClient, negotiator: &Negotiator) {
        let address = client.address;
        let settings = Arc::clone(&negotiator.settings);
        // Dropping the client resets it.
        if !settings.hears(address.ip()) {
            return self.deny(index, address);
        }
        let caller = settings.proxies.is_none().then(|| address.ip());
        if !self.negotiations.has_room(caller) {
            return self.count_refusal(Reason::Overload);
        }
        let key = self.negotiations.talks.next_key();
        if let Err(error) = epoll::add(&self.epoll, &client.socket, token(key), INTEREST) {
            return self.pause_accepting(index, error);
        }
        // Counted for this client alone; no password of one that gave too many wrong ones is
        // looked at for a while.
        let credentials = negotiator.credentials.as_ref().map(|known| {
            Arc::new(
                match self.negotiations.tries.is_blocked(address.ip(), self.now) {
                    false => Credentials::clone(known),
                    true => Credentials::default(),
                },
            )
        });
        // What it will have as a session.
        let memory = self.limits.set_aside(LEAST_OF_SESSION);
        let talk = Talk::new(client, memory, index, settings, credentials, self.now);
        let key = self.take_in(talk);
        self.go_on(key);
    }

    fn take_in(&mut self, talk: Talk) -> Key {
        let (index, caller) = (talk.listener, talk.caller());
        let key = self.negotiations.talks.insert(talk);
        self.negotiations.count(caller, true);
        // It counts as a session: it holds a descriptor, and draining waits for it.
        self.counters.sessions_active.add(1);
        self.counters.negotiations_active.add(1);
        if let Some(acceptor) = self.acceptors.get_mut(index) {
            acceptor.sessions += 1;
        }
        key
    }

    /// Ends a session whose exchange is over; its client is spoken with again, for its next
    /// request or for the last time.
    pub(super) fn hand_over(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let listener = usize::from(session.listener);
        let is_open = |acceptor: &Acceptor| acceptor.socket.is_some();
        let is_open = self.accepting && self.acceptors.get(listener).is_some_and(is_open);
        let has_room = self.negotiations.has_room(None);
        let (client, end) = session.leave_exchange(is_open && has_room);
        // Draining must not take it for gone meanwhile.
        self.counters.sessions_active.add(1);
        let left = self.take(key, end).and_then(Session::into_client);
        let last = match client {
            Client::Stays => None,
            Client::IsTold(last) => Some(last),
            Client::IsGone => Some(""),
        };
        if let Some((client_left, kept)) = left
            && !matches!(client, Client::IsGone)
        {
            let key = self.negotiations.talks.next_key();
            let watched = epoll::modify(&self.epoll, &client_left.socket, token(key), INTEREST);
            let memory = self.limits.set_aside(LEAST_OF_SESSION);
            let talk = Talk::again(client_left, memory, listener, kept, last, self.now);
            // Without room or events it is closed at once; by a reset where it is to be told why.
            if last.is_none_or(str::is_empty) && (!has_room || watched.is_err()) {
                talk.close_in_order();
            }
            if has_room && watched.is_ok() {
                let key = self.take_in(talk);
                self.go_on(key);
            }
        }
        self.counters.sessions_active.decrement();
    }

    /// Closes the connections of clients of a listener that have had an answer and wait.
    pub(crate) fn close_idle(&mut self, index: usize) {
        let talks = &mut self.negotiations.talks;
        let idle: Vec<Key> = (0..talks.places())
            .filter_map(|place| {
                let talk = talks.at_place(place)?;
                (talk.listener == index && talk.is_idle()).then(|| talk.close_in_order())?;
                talks.key_at(place)
            })
            .collect();
        for key in idle {
            self.forget(key, None);
        }
    }

    /// Does what an event or the time asks for.
    pub(super) fn go_on(&mut self, key: Key) {
        let Some(talk) = self.negotiations.talks.get_mut(key) else {
            return;
        };
        let (listener, now, epoll) = (talk.listener, self.now, &self.epoll);
        let Some(acceptor) = self.acceptors.get_mut(listener) else {
            return self.forget(key, None);
        };
        let client = talk.client_address();
        let limits = &self.limits;
        let spare = || limits.take_descriptor();
        let step = talk.advance(now, spare, |server| {
            let request = Request { client, server };
            let calling = acceptor.call(now, &request)?;
            self.counters.option_errors.add(calling.option_errors);
            epoll::add(epoll, &calling.socket, token(key), INTEREST)?;
            Ok(calling.socket)
        });
        self.carry_out(key, step);
    }

    fn carry_out(&mut self, key: Key, mut step: Step) {
        loop {
            let Some(talk) = self.negotiations.talks.get_mut(key) else {
                return;
            };
            step = match step {
                Step::Wait => {
                    talk.note_memory();
                    let next = Some(talk.next());
                    self.negotiations.timers.set(key, &mut talk.timer, next);
                    return;
                }
                Step::Resolve(name) => {
                    let client = talk.client_address().ip();
                    let addresses = match self.negotiations.ask(key, client, name.as_str()) {
                        Asked::Waiting => None,
                        Asked::Known(addresses) => Some(Some(addresses)),
                        Asked::Refused => Some(None),
                    };
                    match (addresses, self.negotiations.talks.get_mut(key)) {
                        (_, None) => return,
                        (None, Some(_)) => Step::Wait,
                        (Some(addresses), Some(talk)) => talk.handle_addresses(addresses, self.now),
                    }
                }
                Step::Decide(addresses) => match self.decide(key, addresses) {
                    None => return self.go_on(key),
                    Some(step) => step,
                },
                Step::Unconnected(server, error) => {
                    let (arrival, listener) = (talk.arrival(server), talk.listener);
                    let name = talk.name();
                    self.counters.sessions_opened.add(1);
                    self.counters.sessions_unconnected.add(1);
                    self.note_unconnected(listener, &arrival, error, name);
                    return self.go_on(key);
                }
                Step::Join => return self.join(key),
                Step::End(reason) => return self.forget(key, reason),
            };
        }
    }

    /// Which addresses may be called, and for how long; `None` where they are being called.
    fn decide(&mut self, key: Key, mut addresses: Vec<SocketAddr>) -> Option<Step> {
        let now = self.now;
        let talk = self.negotiations.talks.get_mut(key)?;
        let client = talk.client_address();
        let access = &talk.settings.access;
        addresses.retain(|server| access.allows(client.ip(), *server, crate::machine::is_own));
        let Some(server) = addresses.first().copied() else {
            return Some(talk.fail(Failure::NotAllowed, Some(Reason::Destination), now));
        };
        let acceptor = self.acceptors.get_mut(talk.listener)?;
        match acceptor.admit(now, talk.client(), &Request { client, server }) {
            None => Some(talk.fail(Failure::NotAllowed, Some(Reason::Policy), now)),
            Some(admitted) => {
                self.counters.option_errors.add(admitted.option_errors);
                talk.call(addresses, admitted.connect_timeout, now);
                None
            }
        }
    }

    /// What the resolver has found out.
    pub(super) fn handle_names(&mut self) {
        let Some(names) = &self.negotiations.names else {
            return;
        };
        for (key, addresses) in names.take(self.negotiations.thread) {
            let now = self.now;
            if let Some(talk) = self.negotiations.talks.get_mut(key) {
                let step = talk.handle_addresses(addresses, now);
                self.carry_out(key, step);
            }
        }
    }

    /// Those whose time has come.
    pub(super) fn handle_negotiation_timers(&mut self) {
        while let Some(key) = self.negotiations.timers.pop_due(self.now) {
            if let Some(talk) = self.negotiations.talks.get_mut(key) {
                talk.timer = None;
                self.go_on(key);
            }
        }
    }

    /// Makes a session of it. The sockets are watched anew, so that epoll says once more what
    /// there is to do.
    fn join(&mut self, key: Key) {
        let Some(Joined {
            arrival,
            client,
            server,
            listener,
            name,
            first: [to_server, to_client],
            framed,
        }) = self.take_out(key).and_then(Talk::into_joined)
        else {
            return;
        };
        if self.is_kicked(&arrival) {
            // Dropping both legs resets them.
            return;
        }
        let Some(record) = self.record(listener, &arrival) else {
            return;
        };
        let id = record.id;
        let session = self.sessions.next_key().number() << 1;
        let interest = INTEREST | EventFlags::PRI;
        let watch = |socket: &OwnedFd, token| {
            epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest)
        };
        if let Err(error) = watch(&client, session).and_then(|()| watch(&server, session | 1)) {
            return self.pause_accepting(listener, error);
        }
        let number = u16::try_from(listener).unwrap_or(u16::MAX);
        let mut joined = Session::new([client, server], number, record, arrival.seat, self.now);
        joined.begin_relaying(self.now);
        joined.hold(to_server, to_client);
        if let Some(framed) = framed {
            joined.carry(framed);
        }
        let key = self.sessions.insert(joined);
        self.begin_memory(key);
        self.begin_bounding(key);
        if let Some(acceptor) = self.acceptors.get_mut(listener) {
            acceptor.sessions += 1;
        }
        self.counters.sessions_opened.add(1);
        self.counters.sessions_active.add(1);
        if let Some(name) = name {
            self.negotiations.destinations.insert(id, name);
        }
    }

    /// Resets clients that are meant and have no session yet; how many those were. Those who call
    /// a server that is meant are reset when it answers.
    pub(crate) fn kick_negotiations(&mut self, target: Target) -> u64 {
        let talks = &mut self.negotiations.talks;
        let is_meant = |talk: &Talk| target.has_address(talk.client_address().ip());
        let meant: Vec<Key> = (0..talks.places())
            .filter(|place| talks.at_place(*place).is_some_and(|talk| is_meant(talk)))
            .collect::<Vec<_>>()
            .into_iter()
            .filter_map(|place| talks.key_at(place))
            .collect();
        for key in &meant {
            self.forget(*key, None);
        }
        meant.len() as u64
    }

    /// It ends without a session.
    fn forget(&mut self, key: Key, reason: Option<Reason>) {
        let talk = self.take_out(key);
        if let Some(reason) = reason {
            if let Some(talk) = &talk {
                self.log_refusal(talk.listener, talk.client_address(), reason);
            }
            self.count_refusal(reason);
        }
    }

    fn take_out(&mut self, key: Key) -> Option<Talk> {
        let mut talk = self.negotiations.talks.remove(key)?;
        let (client, wrong) = (talk.client_address().ip(), talk.wrong_passwords());
        self.negotiations.tries.note(client, wrong, self.now);
        self.negotiations.timers.set(key, &mut talk.timer, None);
        self.negotiations.count(talk.caller(), false);
        self.counters.sessions_active.decrement();
        self.counters.negotiations_active.decrement();
        if let Some(acceptor) = self.acceptors.get_mut(talk.listener) {
            acceptor.sessions = acceptor.sessions.saturating_sub(1);
        }
        Some(talk)
    }

    /// The access rules do not let a client in.
    pub(super) fn deny(&mut self, listener: usize, client: SocketAddr) {
        self.log_refusal(listener, client, Reason::Access);
        self.count_refusal(Reason::Access);
    }

    /// Logs a client that may not use the listener. The form of the line is documented: programs
    /// read it. It has nothing in it that the client has sent.
    fn log_refusal(&mut self, listener: usize, client: SocketAddr, reason: Reason) {
        let reason = match reason {
            Reason::Access => "access",
            Reason::Unauthenticated => "login",
            _ => return,
        };
        let Some(not_logged) = self.negotiations.refusals.admit(Instant::now()) else {
            return;
        };
        let listener = self.acceptors.get(listener);
        let listener = listener.map_or("", |acceptor| acceptor.listener.name.as_str());
        let (ip, port) = (client.ip().to_canonical(), client.port());
        tracing::warn!(%reason, client = %ip, port, %listener, not_logged, "client refused");
    }

    fn count_refusal(&self, reason: Reason) {
        let counters = &self.counters;
        let counter = match reason {
            Reason::Access | Reason::Destination => &counters.refused_by_access,
            Reason::Policy => &counters.refused_by_policy,
            Reason::Malformed => &counters.refused_malformed,
            Reason::Unsupported => &counters.refused_unsupported,
            Reason::NoCredentials | Reason::Unauthenticated => &counters.refused_unauthenticated,
            Reason::Silent => &counters.refused_silent,
            Reason::Gone => &counters.negotiations_abandoned,
            Reason::Name => &counters.names_not_found,
            Reason::Overload => &counters.refused_overloaded,
            Reason::Crowded => {
                self.limits.say(Shortage::Client);
                &counters.shed_client
            }
        };
        counter.add(1);
    }

    /// What the client called the server, in what is shown of a session.
    pub(super) fn with_destination(&self, mut report: SessionReport) -> SessionReport {
        let name = self.negotiations.destinations.get(&report.id);
        report.destination = name.map(ToString::to_string);
        report
    }

    /// The same of a session that has ended.
    pub(super) fn with_last_destination(&mut self, mut ended: Ended) -> Ended {
        let name = self.negotiations.destinations.remove(&ended.report.id);
        ended.report.destination = name.map(String::from);
        ended
    }
}
