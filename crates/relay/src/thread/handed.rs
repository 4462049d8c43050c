//! How a thread hands its sessions over to another relay, and how it takes sessions over.
//!
//! Both happen between two turns. Until the decision has come, the thread does nothing else: sessions that are being
//! handed over stay as they are, and those that are being taken over are not handled.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use midspan_handover::FromPredecessor;

use super::RelayThread;
use crate::handing::{Channel, Delivery, HandOver, HandoverError, Parcel, TakeOver, Taken, unpack};
use crate::opening::Acceptor;
use crate::table::Key;

/// The acceptor of sessions that another relay had.
enum NewAcceptor {
    /// It has no session yet, so it has no place among the acceptors.
    Unused(Box<Acceptor>),
    /// It has this index.
    At(usize),
}

impl RelayThread {
    /// Sends the sessions, and lets them go if the other relay has them.
    pub(super) fn hand_over(&mut self, order: &HandOver) {
        let sent = self.send_sessions(&order.channel, order.until);
        let (keys, result) = match sent {
            Ok(keys) => {
                let count = keys.len() as u64;
                (keys, Ok(count))
            }
            Err(error) => (Vec::new(), Err(error)),
        };
        let _ = order.report.send(result);
        // The owner decides within a limit of time.
        if order.verdict.recv().is_ok() {
            for key in keys {
                self.sessions.let_go(key, &mut self.acceptors);
            }
            self.leave_sockets();
        }
    }

    /// Accepts nothing more: the other relay has duplicates of the listening sockets, and of the connections that wait
    /// there. Clients that do not wait for an answer are closed.
    fn leave_sockets(&mut self) {
        self.acceptors.close();
        self.sessions.close_exchanges();
        let now = self.clockwork.now();
        for index in 0..self.acceptors.count() {
            self.acceptors.take_socket(index);
            (self.negotiations).close_idle(index, &mut self.acceptors, now);
        }
    }

    fn send_sessions(&self, channel: &Channel, until: Instant) -> Result<Vec<Key>, HandoverError> {
        let thread = u32::try_from(self.number).unwrap_or(u32::MAX);
        self.send_listeners(channel, thread, until)?;
        let mut parcel = Parcel::new(thread);
        let mut keys = Vec::new();
        for (key, state, parts) in self.sessions.to_hand_over() {
            if !parcel.push(&state, &parts)? {
                std::mem::replace(&mut parcel, Parcel::new(thread)).send(channel, until)?;
                // An empty message has room for any session.
                parcel.push(&state, &parts)?;
            }
            keys.push(key);
        }
        parcel.send(channel, until)?;
        Ok(keys)
    }

    /// Sends the listeners that have sessions.
    fn send_listeners(
        &self,
        channel: &Channel,
        thread: u32,
        until: Instant,
    ) -> Result<(), HandoverError> {
        for index in 0..self.acceptors.count() {
            let acceptor = self.acceptors.get(index);
            if let Some(acceptor) = acceptor.filter(|acceptor| acceptor.sessions > 0) {
                let message = FromPredecessor::Listener {
                    thread,
                    index: u32::try_from(index).unwrap_or(u32::MAX),
                    settings: serde_json::to_value(&*acceptor.listener)?,
                };
                channel.send(&message.encode()?, &[], until)?;
            }
        }
        Ok(())
    }

    /// Takes sessions in, and begins to handle them if the other relay has let them go.
    pub(super) fn take_over(&mut self, order: &TakeOver) {
        let mut keys = Vec::new();
        let result = self.take_deliveries(&order.deliveries, &mut keys);
        let _ = order.report.send(result.map(|()| keys.len() as u64));
        let is_ours = order.verdict.recv().is_ok();
        let now = self.clockwork.now();
        for key in keys {
            match is_ours {
                true => self.sessions.begin_taken(key, &mut self.acceptors, now),
                false => self.sessions.let_go(key, &mut self.acceptors),
            }
        }
    }

    fn take_deliveries(
        &mut self,
        deliveries: &Receiver<Delivery>,
        keys: &mut Vec<Key>,
    ) -> Result<(), HandoverError> {
        let mut places = BTreeMap::new();
        let mut acceptors = BTreeMap::new();
        while let Ok(delivery) = deliveries.recv() {
            match delivery {
                Delivery::Listener {
                    name,
                    place,
                    acceptor,
                } => {
                    places.insert(name, place);
                    if let Some(acceptor) = acceptor {
                        acceptors.insert(place, NewAcceptor::Unused(acceptor));
                    }
                }
                Delivery::Sessions(message) => {
                    for taken in unpack(message, |name| places.get(&name).copied())? {
                        keys.push(self.take_one(taken, &mut acceptors)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn take_one(
        &mut self,
        taken: Taken,
        acceptors: &mut BTreeMap<usize, NewAcceptor>,
    ) -> Result<Key, HandoverError> {
        let place = taken.listener;
        let acceptor = acceptors.remove(&place);
        let index = match acceptor.ok_or(HandoverError::OutOfTurn)? {
            // A place without a session is free, so it is used at once.
            NewAcceptor::Unused(acceptor) => self.acceptors.place(*acceptor),
            NewAcceptor::At(index) => index,
        };
        acceptors.insert(place, NewAcceptor::At(index));
        let key = (self.sessions).take_over(taken, index, &mut self.acceptors)?;
        Ok(key)
    }
}
