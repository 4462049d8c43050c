//! Listeners that come, change and go while a thread runs, and other commands of the relay's owner.
//!
//! Each thread gets its part by a channel and carries it out between two turns of its loop. A
//! change keeps the listening socket, so that no connection is lost: what connections inherit
//! from it is set again, and a new [`Acceptor`] takes it over. The old one stays, without a socket,
//! until the last session that it has accepted ends: that session's policy is the old one's.

use std::sync::mpsc::Sender;

use midspan_units::Time;

use super::RelayThread;
use crate::crowd::ACCEPTS_PER_TURN;
use crate::kick::{Kicked, Target};
use crate::opening::{Acceptor, ListenerId};
use crate::source::EventSource;

/// Such turns when accepting ends; more than any backlog needs.
const LAST_ACCEPT_TURNS: usize = 4096;

/// A command to a thread.
pub enum Update {
    /// A new listener.
    Add(Box<Acceptor>),
    /// A listener is different from now on.
    Change(Box<Acceptor>),
    /// A listener accepts no more after this time.
    Retire(ListenerId, Time),
    /// Sessions are to be reset; how many that were goes back.
    Kick(Target, Sender<Kicked>),
    /// One more source of events.
    Source(Box<dyn EventSource>),
    /// Confirms that all commands before this one are carried out.
    Report(Sender<()>),
}

impl RelayThread {
    /// Carries out what the relay's owner has asked for.
    pub(super) fn handle_updates(&mut self) {
        while let Ok(update) = self.updates.try_recv() {
            match update {
                Update::Add(acceptor) => {
                    let index = self.acceptors.place(*acceptor);
                    match self.acceptors.are_open() {
                        true => (self.acceptors).watch_or_pause(index, self.clockwork.now()),
                        // Too late: the relay accepts no more.
                        false => self.close_acceptor(index),
                    }
                }
                Update::Change(acceptor) => self.change(*acceptor),
                Update::Retire(id, at) => {
                    let acceptors = &mut self.acceptors;
                    let index = acceptors.find(id);
                    if let Some(acceptor) = index.and_then(|index| acceptors.get_mut(index)) {
                        acceptor.retire_at = Some(at);
                    }
                }
                Update::Kick(target, reply) => {
                    let negotiations = match target {
                        Target::Prefix { .. } => {
                            let acceptors = &mut self.acceptors;
                            self.negotiations
                                .kick(target, acceptors, self.clockwork.now())
                        }
                        Target::Session(_) => 0,
                    };
                    let now = self.clockwork.now();
                    self.kicks.begin(target, reply, negotiations, now);
                }
                Update::Source(source) => {
                    if let Err(error) = self.add_source(source) {
                        tracing::warn!("a source of events cannot be watched: {error}");
                    }
                }
                Update::Report(sender) => {
                    // Its owner may have given up waiting.
                    let _ = sender.send(());
                }
            }
        }
    }

    fn change(&mut self, acceptor: Acceptor) {
        let Some(old) = self.acceptors.find(acceptor.id) else {
            return;
        };
        if !self.acceptors.has_room() {
            tracing::warn!(
                listener = acceptor.listener.name,
                "a listener goes on as it is: too many old ones have sessions"
            );
            return;
        }
        let now = self.clockwork.now();
        // Whom it serves may have changed.
        self.negotiations.close_idle(old, &mut self.acceptors, now);
        self.acceptors.replace(old, acceptor, now);
    }

    /// Closes what was to be closed by now.
    pub(super) fn retire_due(&mut self) {
        while let Some(index) = self.acceptors.due_to_retire(self.clockwork.now()) {
            self.close_acceptor(index);
        }
    }

    /// Takes what waits already, then no more.
    pub(super) fn stop_accepting(&mut self) {
        if !self.acceptors.close() {
            return;
        }
        self.sessions.close_exchanges();
        for index in 0..self.acceptors.count() {
            self.close_acceptor(index);
        }
    }

    /// Takes what waits already, then no more.
    fn close_acceptor(&mut self, index: usize) {
        let mut turns = 0;
        while turns < LAST_ACCEPT_TURNS && self.accept(index, ACCEPTS_PER_TURN) {
            turns += 1;
        }
        self.acceptors.take_socket(index);
        let now = self.clockwork.now();
        self.negotiations
            .close_idle(index, &mut self.acceptors, now);
    }
}
