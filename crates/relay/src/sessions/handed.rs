//! Sessions that move between two relays.

use std::sync::Arc;

use midspan_handover::{PhaseState, SessionState};
use midspan_units::Time;
use rustix::io::{Errno, Result};

use super::Sessions;
use crate::acceptors::Acceptors;
use crate::handing::Taken;
use crate::leg_socket::LegSocket;
use crate::limits::{Client, Places, Seat};
use crate::observation::Ending;
use crate::session::{End, NewHome, Phase, Session, SessionParts};
use crate::sockets::Sockets;
use crate::table::Key;

impl Sessions {
    /// The sessions from this slot of the table on that another relay can continue, each with its slot.
    pub fn to_hand_over(
        &self,
        first: usize,
    ) -> impl Iterator<Item = (usize, Key, SessionState, SessionParts<'_>)> {
        (self.table.entries_from(first)).filter_map(|(place, key, session)| {
            let name = self.destinations.get(&session.id());
            let deadline = self.timers.get(key);
            let (state, parts) = session.hand_over(name.map(|name| &**name), deadline)?;
            Some((place, key, state, parts))
        })
    }

    /// Resets a session that another relay may have begun to handle before it ended.
    pub fn reset_lost(&mut self, key: Key, acceptors: &mut Acceptors, now: Time) {
        if let Some(session) = self.table.get_mut(key) {
            session.record.note_failure(Ending::LostInUpgrade);
            self.end(key, End::Reset, acceptors, now);
        }
    }

    /// Another relay has the session from now on: its sockets are closed here, which neither ends nor resets their
    /// connections as long as the other relay has them.
    pub fn let_go(&mut self, key: Key, acceptors: &mut Acceptors) {
        let Some(mut session) = self.table.remove(key) else {
            return;
        };
        for socket in session.sockets().legs() {
            // It is not enough to close the socket, because the other relay has it too.
            let _ = self.poll.delete(socket);
        }
        acceptors.end_session(session.listener.into());
        self.destinations.remove(&session.id());
        self.overlaid.forget(session.id());
        session.record.note_handed_over();
        session.release(&mut self.shared);
        self.measuring.forget(&mut session);
        self.timers.set(key, None);
        self.counters.sessions_active.decrement();
        self.counters.sessions_handed_over.add(1);
    }

    /// Takes in a session of another relay, which the acceptor at this index has from now on. It is not handled
    /// before it [begins](Self::begin_taken).
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn take_over(
        &mut self,
        taken: Taken,
        listener: usize,
        acceptors: &mut Acceptors,
    ) -> Result<Key> {
        let Taken {
            state,
            sockets,
            held,
            ..
        } = taken;
        let acceptor = acceptors.get(listener).ok_or(Errno::INVAL)?;
        let client = Client::of(state.record.client.ip());
        let home = NewHome {
            listener: u16::try_from(listener).unwrap_or(u16::MAX),
            counters: Arc::clone(&acceptor.counters),
            profiles: acceptor.profiles(),
            seat: match state.has_place {
                true => Places::take_over(&acceptor.places, client),
                false => Seat::default(),
            },
        };
        let [client, server] = sockets.map(LegSocket::from);
        let sockets = Sockets { client, server };
        let key = self.table.next_key();
        if let Err(error) = (self.poll).add_session(&sockets.client, &sockets.server, key) {
            let _ = self.poll.delete(&sockets.client);
            return Err(error);
        }
        let pipes = &mut self.shared.pipes;
        let mut session = Session::take_over(&state, sockets, held, home, pipes);
        self.observation.registry.note_session(state.record.id);
        if let Some(name) = state.destination {
            self.destinations.insert(state.record.id, name.into());
        }
        self.measuring.begin(&mut session, None);
        let key = self.take_in(session, acceptors);
        self.counters.sessions_taken_over.add(1);
        if let PhaseState::Connecting { until } = state.phase {
            let until = until.map(Time::from_nanoseconds);
            self.timers.set(key, until);
        }
        Ok(key)
    }

    /// Begins to handle a session of another relay. What its legs can do at present is among the next events.
    pub fn begin_taken(&mut self, key: Key, acceptors: &mut Acceptors, now: Time) {
        let Some(session) = self.table.get_mut(key) else {
            return;
        };
        match session.phase {
            Phase::Connecting => {}
            Phase::Relaying => {
                self.measuring.begin_bounding(session, acceptors, now);
                // Even without an event, it needs its deadlines.
                session.queued = true;
                self.unfinished.push_back(key);
            }
            Phase::Settling { .. } => self.timers.set(key, Some(now)),
        }
    }
}
