//! What a thread does after a panic: it resets its sessions, and continues with its listening sockets.
//!
//! A panic is a fault of the program, and what it was handling may be inconsistent. The thread
//! therefore keeps nothing of its sessions, its clients that negotiate, and of unfinished commands. It
//! keeps the listening sockets, the policies and the sources of events, which other parts of the process
//! refer to. The policies forget the sessions, and each source [recovers](crate::EventSource::recover) what the
//! panic has left. The sessions of other threads notice nothing.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use midspan_units::{Time, TimeSpan};
use rustix::event::epoll::Event;

use super::RelayThread;
use crate::eviction::Eviction;
use crate::kick::Kicks;
use crate::register::InHand;

/// With more panics in this time, the thread ends: a fault that recurs so often lies not in single
/// sessions.
const MOST_PANICS: usize = 10;
const PANIC_TIME: TimeSpan = TimeSpan::from_seconds(600);

/// The panics of a thread.
#[derive(Debug, Default)]
pub(super) struct Panics {
    times: VecDeque<Time>,
}

impl Panics {
    /// Notes a panic; returns whether the thread may continue.
    fn note(&mut self, now: Time) -> bool {
        self.times.push_back(now);
        while self
            .times
            .front()
            .is_some_and(|time| *time + PANIC_TIME <= now)
        {
            self.times.pop_front();
        }
        self.times.len() <= MOST_PANICS
    }
}

/// How the turns of a thread have ended.
enum Turns {
    /// The relay is stopped, or the kernel has refused to wait for events.
    Over(rustix::io::Result<()>),
    /// A panic, which the panic hook has logged.
    Panicked,
}

impl RelayThread {
    /// Runs until the relay is stopped; then all sessions are reset. After a panic, the thread begins
    /// again.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`. `ECANCELED` after too many panics, or one that leaves the thread
    /// unusable.
    pub fn run(mut self) -> rustix::io::Result<()> {
        let mut panics = Panics::default();
        let mut events = Vec::with_capacity(super::EVENTS);
        loop {
            match self.take_turns(&mut events) {
                Turns::Over(result) => return result,
                // Its successor has the listening sockets and the sources.
                Turns::Panicked if self.is_replaced() => return Ok(()),
                Turns::Panicked => {}
            }
            let may_continue = panics.note(self.clockwork.now());
            // `begin_again` drops what the panic has left, which may panic once more.
            let begun = catch_unwind(AssertUnwindSafe(|| self.begin_again()));
            if !may_continue || begun.is_err() {
                return Err(rustix::io::Errno::CANCELED);
            }
        }
    }

    fn take_turns(&mut self, events: &mut Vec<Event>) -> Turns {
        // `begin_again` replaces all that a panic may leave inconsistent.
        let turns = catch_unwind(AssertUnwindSafe(|| {
            while self.turn(events)? {}
            Ok(())
        }));
        turns.map_or(Turns::Panicked, Turns::Over)
    }

    /// New connections like the one that was being handled are not split for a while.
    fn suspect(&mut self) {
        let source = self.source_in_hand.take();
        let source = source.and_then(|index| self.sources.get(index)?.as_ref());
        let of_source = source.and_then(|source| source.in_hand());
        let in_hand = self.register.take_in_hand();
        if let Some(InHand { request, is_plain }) = in_hand.or(of_source.map(InHand::usual)) {
            let now = self.clockwork.now();
            self.suspects.note(now, &request, is_plain);
        }
    }

    /// The policies, which the thread keeps, forget the sessions. A policy may be the part that has failed: if
    /// it fails again, it keeps what it has of sessions that do not exist any more.
    fn lose_sessions(&mut self) {
        let (sessions, acceptors) = (&self.sessions, &mut self.acceptors);
        let lost = catch_unwind(AssertUnwindSafe(|| sessions.lose_all(acceptors)));
        if lost.is_err() {
            tracing::error!("a policy does not forget the sessions that have been reset");
        }
    }

    /// Resets all sessions and negotiations, and begins with none.
    fn begin_again(&mut self) {
        self.counters.panics.add(1);
        self.suspect();
        self.kicks = Kicks::default();
        self.eviction = Eviction::new(self.limits.clone(), self.control.clone());
        self.lose_sessions();
        self.acceptors.forget_sessions();
        // Sessions of another relay that are still to come stay there.
        self.taking = None;
        let lost = self.sessions.abandon();
        self.negotiations.abandon();
        // Events that had been read are lost. Listening sockets report theirs again, sources do not.
        self.has_lost_events = true;
        for source in self.sources.iter_mut().flatten() {
            source.recover();
        }
        tracing::error!(
            "a fault of Midspan (the panic above): the {lost} sessions of relay thread {} have been reset, and \
             the thread continues; please report it (midspan bugreport)",
            self.number
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_if_its_panics_are_frequent() {
        let at = |seconds| Time::ZERO + TimeSpan::from_seconds(seconds);
        let mut panics = Panics::default();
        for second in 0..10 {
            assert!(panics.note(at(second)));
        }
        assert!(!panics.note(at(10)));
        // One panic each minute has no end.
        let mut panics = Panics::default();
        assert!((0..1000).all(|minute| panics.note(at(60 * minute))));
        assert!(panics.times.len() <= MOST_PANICS);
    }
}
