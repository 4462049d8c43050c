//! What the relay's FINs, resets and closes must not do.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::socket::{Socket, SocketId, State};
use super::World;
use crate::thread::tests::bench::{CONNECT_TIMEOUT, RESET_TIMEOUT};

impl World {
    /// Handles the sockets that the relay has closed.
    pub fn note_closed(&mut self) {
        let open: Vec<SocketId> = self.descriptors.keys().copied().collect();
        let closed: Vec<SocketId> = {
            let sockets = open.iter().map(|id| &self.sockets[id].keeper);
            let mut keepers: Vec<PollFd<'_>> = sockets
                .map(|keeper| PollFd::new(keeper, PollFlags::empty()))
                .collect();
            if poll(&mut keepers, Some(&Timespec::default())) == Ok(0) {
                return;
            }
            let is_closed = |keeper: &PollFd<'_>| keeper.revents().contains(PollFlags::ERR);
            (open.iter().zip(&keepers))
                .filter(|(_, keeper)| is_closed(keeper))
                .map(|(id, _)| *id)
                .collect()
        };
        for socket in closed {
            let descriptor = self.descriptors[&socket];
            self.objects.remove(&descriptor);
            self.watched.remove(&descriptor);
            self.close(socket);
        }
    }

    /// The relay has closed a socket.
    pub(super) fn close(&mut self, id: SocketId) {
        self.progress += 1;
        self.descriptors.remove(&id);
        self.excuse_late(id);
        let socket = &self.sockets[&id];
        // A close with unread data is a reset.
        let is_reset = socket.is_reset_on_close || socket.read < socket.arrived;
        match (socket.state, is_reset) {
            (State::Gone, _) => {}
            (State::Connecting, _) if socket.may_be_reset => {}
            (State::Connecting, _) => self.fail("a server leg is given up before its time"),
            (State::Connected, false) if !socket.has_sent_end => self.check_end(id),
            (State::Connected, false) => {}
            (State::Connected, true) => self.check_reset(id),
        }
        let Some(socket) = self.sockets.get_mut(&id) else {
            return;
        };
        socket.is_closed = true;
        let partner = socket.partner;
        let is_last = partner.is_none_or(|partner| self.sockets[&partner].is_closed);
        if is_last {
            self.sockets.remove(&id);
            if let Some(partner) = partner {
                self.sockets.remove(&partner);
            }
        }
    }

    /// If the server of this session has not answered in time, both legs may be reset.
    fn excuse_late(&mut self, id: SocketId) {
        let now = self.time;
        let is_late = |leg: &mut Socket| {
            leg.state == State::Connecting && now - leg.begun_at >= CONNECT_TIMEOUT
        };
        if self.legs(id).any(is_late) {
            self.permit_reset(id);
        }
    }

    /// The relay sends a FIN.
    pub(super) fn check_end(&self, id: SocketId) {
        let socket = &self.sockets[&id];
        let Some(from) = socket.partner.map(|partner| &self.sockets[&partner]) else {
            self.fail("a FIN for a leg without another leg");
        };
        if !from.is_ended {
            self.fail("a FIN, although the other leg has not ended");
        }
        if socket.written != from.arrived {
            self.fail(&format!(
                "a FIN after {} of {} bytes",
                socket.written, from.arrived
            ));
        }
    }

    /// The relay resets a leg.
    fn check_reset(&self, id: SocketId) {
        let socket = &self.sockets[&id];
        if !socket.may_be_reset {
            self.fail(&format!("a reset without a reason: {socket:?}"));
        }
        let Some(from) = socket.partner.map(|partner| &self.sockets[&partner]) else {
            return;
        };
        let Some(reset_at) = from.reset_at.filter(|_| !socket.is_broken) else {
            return;
        };
        let was_connected = socket.connected_at.is_some_and(|at| at <= reset_at);
        let is_complete = socket.written == from.arrived && socket.unacknowledged() == 0;
        if was_connected && !is_complete && self.time - reset_at < RESET_TIMEOUT {
            self.fail(&format!(
                "a reset overtakes data: {} of {} bytes are written, {} acknowledged",
                socket.written, from.arrived, socket.acknowledged
            ));
        }
    }
}
