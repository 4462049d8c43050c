//! Sessions that move to another relay, or come from one: in parts, between which this thread serves all others.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use midspan_handover::{Batch, FromPredecessor, FromSuccessor};
use midspan_linux::descriptor_passing::Message;

use super::RelayThread;
use crate::handing::{
    ANSWER_LIMIT, Answer, Channel, HandOver, HandoverError, ListenerName, Parcel, SendListeners,
    TakeOver, Taken, unpack,
};
use crate::opening::Acceptor;
use crate::table::Key;

/// Sessions that this thread hands over.
pub struct Handing {
    order: HandOver,
    /// The next slot of the table.
    next: usize,
    /// The sessions that the other relay has.
    sessions: u64,
}

/// Sessions that this thread gets.
pub struct Taking {
    places: BTreeMap<ListenerName, usize>,
    acceptors: BTreeMap<usize, NewAcceptor>,
}

/// The acceptor of sessions that another relay had.
enum NewAcceptor {
    /// It has no session yet, so it has no place among the acceptors.
    Unused(Box<Acceptor>),
    /// It has this index. Until all sessions have come, it counts one session more, so that its place stays its own.
    At(usize),
}

impl RelayThread {
    /// Sends the listeners that have sessions, or may have some soon.
    pub(super) fn send_listeners(&self, order: &SendListeners) {
        let result = self.send_listeners_over(&order.channel, order.until);
        let _ = order.report.send(result);
    }

    fn send_listeners_over(&self, channel: &Channel, until: Instant) -> Result<(), HandoverError> {
        for index in 0..self.acceptors.count() {
            if let Some(acceptor) = self.acceptors.get(index) {
                let message = FromPredecessor::Listener {
                    thread: self.sender(),
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    settings: serde_json::to_string(&*acceptor.listener)?,
                };
                channel.send(&message.encode()?, &[], until)?;
            }
        }
        Ok(())
    }

    /// The number of this thread in messages.
    fn sender(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(u32::MAX)
    }

    /// Accepts nothing more, and begins to hand sessions over.
    pub(super) fn begin_handing(&mut self, order: HandOver) {
        self.leave_sockets();
        self.handing = Some(Handing {
            order,
            next: 0,
            sessions: 0,
        });
    }

    /// Accepts nothing more: the other relay has duplicates of the listening sockets, and of the connections that wait
    /// there. Clients that do not wait for an answer are closed.
    fn leave_sockets(&mut self) {
        self.acceptors.close();
        self.end_passing();
        self.sessions.end_low_water();
        self.sessions.close_exchanges();
        let now = self.clockwork.now();
        for index in 0..self.acceptors.count() {
            self.acceptors.take_socket(index);
            (self.negotiations).close_idle(index, &mut self.acceptors, now);
        }
    }

    /// Hands some sessions over, and waits until the other relay handles them. In the next turn, this thread serves
    /// the others before it continues.
    pub(super) fn hand_over_some(&mut self) {
        let Some(mut handing) = self.handing.take() else {
            return;
        };
        match self.hand_over_part(&mut handing) {
            Ok(false) => self.handing = Some(handing),
            Ok(true) => {
                let Handing {
                    order, sessions, ..
                } = handing;
                let end = FromPredecessor::End { sessions }.encode();
                let sent = end.map_err(HandoverError::from);
                let sent = sent.and_then(|end| order.channel.send(&end, &[], order.until));
                if let Err(error) = sent {
                    tracing::debug!(
                        "the other relay does not learn the number of sessions: {error}"
                    );
                }
                let _ = order.report.send(sessions);
            }
            Err(error) => {
                tracing::warn!("the other sessions of this thread stay in this relay: {error}");
                let _ = handing.order.report.send(handing.sessions);
            }
        }
    }

    /// Hands as many sessions over as fit into a message. Returns whether there are no more.
    fn hand_over_part(&mut self, handing: &mut Handing) -> Result<bool, HandoverError> {
        let Handing {
            order,
            next,
            sessions,
        } = handing;
        let mut parcel = Parcel::new(self.sender());
        let mut keys = Vec::new();
        let mut is_last = true;
        for (place, key, state, parts) in self.sessions.to_hand_over(*next) {
            if !parcel.push(&state, &parts)? {
                is_last = false;
                break;
            }
            *next = place + 1;
            keys.push(key);
        }
        if keys.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= order.until {
            return Err(HandoverError::Late);
        }
        // After an error, the other relay does not have the message.
        parcel.send(&order.channel, order.until)?;
        match order.answers.recv_timeout(ANSWER_LIMIT) {
            Ok(Answer::Taken) => {
                *sessions += keys.len() as u64;
                self.let_go(&keys);
                Ok(is_last)
            }
            Ok(Answer::NotTaken(reason)) => {
                let count = keys.len();
                tracing::warn!("{count} sessions stay in this relay: {reason}");
                Ok(is_last)
            }
            // If it still runs, it handles them later.
            Err(RecvTimeoutError::Timeout) => {
                self.let_go(&keys);
                Err(HandoverError::Late)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let now = self.clockwork.now();
                for key in keys {
                    self.sessions.reset_lost(key, &mut self.acceptors, now);
                }
                Err(HandoverError::Ended)
            }
        }
    }

    fn let_go(&mut self, keys: &[Key]) {
        for key in keys {
            self.sessions.let_go(*key, &mut self.acceptors);
        }
    }

    /// Gets ready for the sessions of another relay.
    pub(super) fn begin_taking(&mut self, order: TakeOver) {
        let acceptors = order.acceptors.into_iter();
        let acceptors =
            acceptors.map(|(place, acceptor)| (place, NewAcceptor::Unused(Box::new(acceptor))));
        self.taking = Some(Taking {
            places: order.places,
            acceptors: acceptors.collect(),
        });
    }

    /// The other relay has no more sessions for this one.
    pub(super) fn end_taking(&mut self) {
        let taken = self.taking.take();
        for acceptor in taken.into_iter().flat_map(|taking| taking.acceptors) {
            if let (_, NewAcceptor::At(index)) = acceptor {
                self.acceptors.end_session(index);
            }
        }
    }

    /// Takes the sessions of a message in, handles them from now on, and answers. Or takes none of them.
    pub(super) fn take_part(&mut self, message: Message, channel: &Channel) {
        let sender = Batch::thread_in(&message.bytes);
        let mut keys = Vec::new();
        let taken = self.take_all(message, &mut keys);
        if let Some(thread) = sender {
            let answer = match &taken {
                Ok(()) => FromSuccessor::Taken { thread },
                Err(error) => FromSuccessor::not_taken(thread, error),
            };
            let sent = answer.encode().map_err(HandoverError::from);
            let sent = sent.and_then(|answer| {
                let until = Instant::now() + ANSWER_LIMIT;
                channel.send(&answer, &[], until)
            });
            if let Err(error) = sent {
                tracing::warn!("the former relay gets no answer for some sessions: {error}");
            }
        }
        let now = self.clockwork.now();
        match taken {
            Ok(()) => {
                for key in keys {
                    self.sessions.begin_taken(key, &mut self.acceptors, now);
                }
            }
            Err(error) => {
                tracing::warn!("some sessions stay in the former relay: {error}");
                self.let_go(&keys);
            }
        }
    }

    fn take_all(&mut self, message: Message, keys: &mut Vec<Key>) -> Result<(), HandoverError> {
        let mut taking = self.taking.take().ok_or(HandoverError::NotExpected)?;
        let taken = unpack(message, |name| taking.places.get(&name).copied());
        let result = taken.and_then(|taken| {
            for taken in taken {
                keys.push(self.take_one(taken, &mut taking.acceptors)?);
            }
            Ok(())
        });
        self.taking = Some(taking);
        result
    }

    fn take_one(
        &mut self,
        taken: Taken,
        acceptors: &mut BTreeMap<usize, NewAcceptor>,
    ) -> Result<Key, HandoverError> {
        let place = taken.listener;
        let acceptor = acceptors.remove(&place);
        let index = match acceptor.ok_or(HandoverError::OutOfTurn)? {
            NewAcceptor::Unused(acceptor) => {
                let index = self.acceptors.place(*acceptor);
                self.acceptors.begin_session(index);
                index
            }
            NewAcceptor::At(index) => index,
        };
        acceptors.insert(place, NewAcceptor::At(index));
        let key = (self.sessions).take_over(taken, index, &mut self.acceptors)?;
        Ok(key)
    }
}
