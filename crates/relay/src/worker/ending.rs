//! What a thread does when a session ends.

use super::{Worker, observed};
use crate::observation::Ending;
use crate::seeded_faults::{self, Fault};
use crate::session::{End, Session};
use crate::table::Key;

impl Worker {
    /// Ends a session; what its sockets do on closing was decided before.
    pub(crate) fn end(&mut self, key: Key, end: End) {
        drop(self.take(key, end));
    }

    /// The same, without closing its sockets yet.
    pub(super) fn take(&mut self, key: Key, end: End) -> Option<Session> {
        let mut session = self.sessions.remove(key)?;
        if let Some(acceptor) = self.acceptors.get_mut(usize::from(session.listener)) {
            acceptor.sessions = acceptor.sessions.saturating_sub(1);
        }
        if let End::Unconnected(error) = end {
            session.record.note_failure(Ending::of_connecting(error));
        }
        let closed = end == End::Closed;
        let (ended, sample) = observed::last_words(&mut session, closed, self.now, &self.counters);
        let ended = ended.map(|ended| {
            let ended = self.with_last_destination(ended);
            self.with_reasons(ended, session.listener)
        });
        if let Some(acceptor) = self.acceptors.get_mut(usize::from(session.listener)) {
            acceptor.policy.end(self.now, &sample);
        }
        self.negotiations.destinations.remove(&session.record.id);
        self.log(ended);
        if seeded_faults::is(Fault::FinForReset) {
            session.close_in_order();
        }
        session.release(&mut self.shared);
        self.forget_memory(&mut session);
        self.timers.set(key, &mut session.timer, None);
        self.counters.sessions_active.decrement();
        match end {
            End::Closed => self.counters.sessions_closed.add(1),
            End::Reset => self.counters.sessions_reset.add(1),
            End::Unconnected(_) => self.counters.sessions_unconnected.add(1),
        }
        Some(session)
    }
}
