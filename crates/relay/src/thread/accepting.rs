//! How a thread accepts connections, passes some of them on, and begins sessions and negotiations.

use midspan_units::Time;

use super::RelayThread;
use crate::acceptance::{Acceptance, not_accepted};
use crate::arrival::Accepted;
use crate::crowd::Crowd;
use crate::passing::{PATIENCE, PassedOn};

impl RelayThread {
    /// Accepts from a listening socket, which is level-triggered: one connection for each event,
    /// because a test for another connection costs almost as much as accepting it. If a socket
    /// repeatedly has more connections, they are accepted in batches.
    pub(super) fn accept_some(&mut self, index: usize) {
        let turn = self.clockwork.turn();
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return;
        };
        let most = acceptor.crowd.next_turn(turn);
        if !self.accept(index, most)
            && let Some(acceptor) = self.acceptors.get_mut(index)
        {
            acceptor.crowd = Crowd::default();
        }
    }

    /// Accepts at most this many waiting connections; returns whether more may wait.
    pub(super) fn accept(&mut self, index: usize, most: usize) -> bool {
        let now = self.clockwork.now();
        for _ in 0..most {
            if self.is_replaced() {
                return false;
            }
            (self.eviction).make_way(index, &mut self.sessions, &mut self.acceptors, now);
            let Some(acceptor) = self.acceptors.get(index) else {
                return false;
            };
            let may_continue = match acceptor.accept() {
                Ok(accepted) => match self.pass_on(index, accepted, now) {
                    Some(accepted) => self.open(index, accepted, now),
                    None => true,
                },
                Err(error) => self.finish(index, not_accepted(error), now),
            };
            if !may_continue {
                return false;
            }
        }
        true
    }

    /// Passes an accepted connection on if this thread has clearly more sessions than the others that share the
    /// socket; returns the connection otherwise.
    fn pass_on(&mut self, index: usize, accepted: Accepted, now: Time) -> Option<Accepted> {
        let acceptor = self.acceptors.get(index);
        let Some((listener, sharing)) =
            acceptor.and_then(|acceptor| Some((acceptor.id, acceptor.sharing.as_ref()?)))
        else {
            return Some(accepted);
        };
        let sessions = self.counters.sessions_active.get();
        self.loads.set(self.number, sessions);
        let taker = self.loads.taker((self.number, self.churn), sharing, now);
        let Some(expected) = taker.filter(|_| self.acceptors.are_open()) else {
            return Some(accepted);
        };
        let connection = PassedOn {
            listener,
            accepted,
            expected,
            from: self.number,
            at: now,
        };
        let result = self.passing.pass_on(connection);
        if result.is_ok() {
            self.next_return.get_or_insert(now + PATIENCE);
        }
        result.err()
    }

    /// Serves the connections that this thread has passed on to others which do not look for them.
    pub(super) fn take_back_passed(&mut self) {
        let now = self.clockwork.now();
        if self.next_return.is_none_or(|due| due > now) {
            return;
        }
        while let Some(passed) = self.passing.take_back(self.number, now) {
            self.serve(passed, now);
        }
        self.next_return = self.passing.next_return(self.number);
    }

    /// Serves the connections that other threads have accepted for this one.
    pub(super) fn serve_passed(&mut self) {
        let now = self.clockwork.now();
        while let Some(passed) = self.passing.take(self.number) {
            self.serve(passed, now);
        }
    }

    fn serve(&mut self, passed: PassedOn, now: Time) {
        // A removed listener that has no session left has no acceptor: the connection is reset.
        let Some(index) = self.acceptors.find_for_accepted(passed.listener) else {
            return;
        };
        (self.eviction).make_way(index, &mut self.sessions, &mut self.acceptors, now);
        self.open(index, passed.accepted, now);
        (self.loads).set(self.number, self.counters.sessions_active.get());
        drop(passed.expected);
    }

    /// No other thread passes connections on to this one from now on; serves those that it already has.
    pub(super) fn end_passing(&mut self) {
        self.passing.close(self.number);
        self.serve_passed();
    }

    /// Decides about an accepted connection; returns whether the next one may be accepted at once.
    fn open(&mut self, index: usize, accepted: Accepted, now: Time) -> bool {
        let Some(acceptor) = self.acceptors.get_mut(index) else {
            return false;
        };
        let acceptance = acceptor.open(accepted, now, &self.register);
        self.finish(index, acceptance, now)
    }

    /// Carries out what was decided; returns whether the next connection may be accepted at once.
    fn finish(&mut self, index: usize, acceptance: Acceptance, now: Time) -> bool {
        match acceptance {
            Acceptance::Session(arrival, legs) => {
                self.counters.option_errors.add(legs.option_errors);
                // Otherwise both legs are dropped, which resets them.
                if !self.kicks.includes(&arrival) {
                    (self.sessions).begin(index, arrival, legs, &mut self.acceptors, now);
                }
            }
            Acceptance::Negotiation(client, negotiator) => {
                let (negotiations, mut around) = self.negotiations();
                negotiations.begin(index, client, &negotiator, &mut around);
            }
            Acceptance::Refused => self.counters.refused_by_policy.add(1),
            Acceptance::Suspect => self.counters.refused_suspects.add(1),
            Acceptance::Drained => self.counters.refused_drained.add(1),
            Acceptance::Denied(client) => {
                (self.negotiations).deny(index, client, &self.acceptors);
            }
            Acceptance::Unconnected(arrival, error) => {
                let at = (&self.acceptors, now);
                (self.sessions).note_unconnected(index, &arrival, error, None, at);
            }
            Acceptance::Gone => self.counters.accept_errors.add(1),
            Acceptance::Nothing => return false,
            Acceptance::Shed(shortage) => self.acceptors.count_shed(shortage),
            Acceptance::Exhausted(error) => return self.acceptors.shed(index, error, now),
        }
        true
    }
}
