//! Changes of listeners while a thread runs, and other commands of the relay's owner.
//!
//! Each thread gets its commands through a channel and carries them out between two turns of its
//! loop. A change keeps the listening socket, so that no connection is lost: the options that
//! connections inherit from the socket are set again, and a new [`Acceptor`] gets the socket. The
//! old acceptor stays, without a socket, until the last session that it accepted ends, because this
//! session has the old acceptor's policy.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use midspan_linux::descriptor_passing::Message;
use midspan_units::Time;

use super::RelayThread;
use crate::crowd::ACCEPTS_PER_TURN;
use crate::handing::{Channel, HandOver, SendListeners, TakeOver};
use crate::kick::{Kicked, Target};
use crate::opening::{Acceptor, ListenerId};
use crate::source::EventSource;

/// Number of batches when accepting ends; more than any accept queue needs.
const LAST_ACCEPT_TURNS: usize = 4096;

/// A command to a thread.
pub enum Update {
    /// A new listener.
    Add(Box<Acceptor>),
    /// A listener has new settings.
    Change(Box<Acceptor>),
    /// A listener stops accepting after this time.
    Retire(ListenerId, Time),
    /// Resets sessions; the sender gets their number.
    Kick(Target, Sender<Kicked>),
    /// Another source of events.
    Source(Box<dyn EventSource>),
    /// Confirms that all commands before this one are carried out.
    Report(Sender<()>),
    /// Sends the listeners to another relay.
    SendListeners(SendListeners),
    /// Hands the sessions over to another relay.
    HandOver(HandOver),
    /// Gets ready for sessions of another relay.
    TakeOver(Box<TakeOver>),
    /// Takes over the sessions in this message, and answers over the connection that it came from.
    Sessions(Message, Arc<Channel>),
    /// The other relay has no more sessions for this one.
    EndTaking,
}

impl RelayThread {
    /// Carries out the commands of the relay's owner.
    pub(super) fn handle_updates(&mut self) {
        while let Ok(update) = self.updates.try_recv() {
            match update {
                Update::Add(acceptor) => {
                    let index = self.acceptors.place(*acceptor);
                    match self.acceptors.are_open() {
                        true => (self.acceptors).watch_or_pause(index, self.clockwork.now()),
                        // The relay accepts no more, so the listener is too late.
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
                        Target::Prefix(_) => {
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
                    // The relay's owner may no longer wait.
                    let _ = sender.send(());
                }
                Update::SendListeners(order) => self.send_listeners(&order),
                Update::HandOver(order) => self.begin_handing(order),
                Update::TakeOver(order) => self.begin_taking(*order),
                Update::Sessions(message, channel) => self.take_part(message, &channel),
                Update::EndTaking => self.end_taking(),
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
                "a listener stays as it is: too many old ones have sessions"
            );
            return;
        }
        let now = self.clockwork.now();
        // The access rules may have changed.
        self.negotiations.close_idle(old, &mut self.acceptors, now);
        self.acceptors.replace(old, acceptor, now);
    }

    /// Closes the listening sockets whose time is over.
    pub(super) fn retire_due(&mut self) {
        while let Some(index) = self.acceptors.due_to_retire(self.clockwork.now()) {
            self.close_acceptor(index);
        }
    }

    /// Accepts the connections that already wait, and then no more.
    pub(super) fn stop_accepting(&mut self) {
        if !self.acceptors.close() {
            return;
        }
        self.sessions.close_exchanges();
        self.end_passing();
        for index in 0..self.acceptors.count() {
            self.close_acceptor(index);
        }
    }

    /// Accepts the connections that already wait at one acceptor, and then no more.
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
