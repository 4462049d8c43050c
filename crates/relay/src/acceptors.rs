//! The acceptors of one thread: its listening sockets, with their settings and sessions.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_policy::suspects::Treatment;
use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::limits::{Limits, Shortage};
use super::opening::{Acceptor, ListenerId};
use super::poll::Poll;
use super::statistics::Counters;

/// How long accepting is paused when descriptors or memory are short.
const ACCEPT_PAUSE: TimeSpan = TimeSpan::from_milliseconds(100);

/// Descriptors that a thread keeps free, so that it can accept a connection in order to reset it.
/// While a thread uses one of them, another thread may get it; the remaining descriptors are
/// enough.
const RESERVE: usize = 4;

/// A session refers to its acceptor by 16 bits. An acceptor without a socket has at least one
/// session.
const PLACE_LIMIT: usize = 1 << 15;

/// The acceptors of one thread. A retired acceptor has no socket, and stays until its last session
/// ends.
pub struct Acceptors {
    list: Vec<Acceptor>,
    poll: Arc<Poll>,
    counters: Arc<Counters>,
    limits: Arc<Limits>,
    /// If there is no other descriptor, one of these is closed, so that a connection can be
    /// accepted and reset.
    reserve: Vec<OwnedFd>,
    /// Whether new connections are accepted at all.
    is_open: bool,
}

impl Acceptors {
    /// Acceptors of which none is watched yet.
    pub const fn new(
        list: Vec<Acceptor>,
        poll: Arc<Poll>,
        counters: Arc<Counters>,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            list,
            poll,
            counters,
            limits,
            reserve: Vec::new(),
            is_open: true,
        }
    }

    /// Watches all listening sockets for connections.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn watch_all(&self) -> rustix::io::Result<()> {
        (0..self.list.len()).try_for_each(|index| self.watch(index))
    }

    /// The acceptor at this index.
    pub fn get(&self, index: usize) -> Option<&Acceptor> {
        self.list.get(index)
    }

    /// The acceptor at this index.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Acceptor> {
        self.list.get_mut(index)
    }

    /// Number of indices, free ones included.
    pub const fn count(&self) -> usize {
        self.list.len()
    }

    /// Whether new connections are accepted at all.
    pub const fn are_open(&self) -> bool {
        self.is_open
    }

    /// Accepts no more connections from now on; returns whether it accepted connections before.
    pub const fn close(&mut self) -> bool {
        std::mem::replace(&mut self.is_open, false)
    }

    /// Accepts nothing more, not even the connections that wait.
    pub fn close_at_once(&mut self) {
        if self.close() {
            (0..self.count()).for_each(|index| self.take_socket(index));
        }
    }

    /// Whether the acceptor at this index accepts connections.
    pub fn accepts(&self, index: usize) -> bool {
        let has_socket = |acceptor: &Acceptor| acceptor.socket.is_some();
        self.is_open && self.get(index).is_some_and(has_socket)
    }

    /// Counts a new session, or a new negotiation, of an acceptor.
    pub fn begin_session(&mut self, index: usize) {
        if let Some(acceptor) = self.list.get_mut(index) {
            acceptor.sessions += 1;
        }
    }

    /// Counts the end of a session or negotiation.
    pub fn end_session(&mut self, index: usize) {
        if let Some(acceptor) = self.list.get_mut(index) {
            acceptor.sessions = acceptor.sessions.saturating_sub(1);
        }
    }

    /// The address at which a listener listens, if it is known.
    pub fn address(&self, index: usize) -> Option<SocketAddr> {
        self.list.get(index)?.listener.listen
    }

    /// What happens to a client that [negotiates](Acceptor::treatment) with the listener.
    pub fn treatment(&self, index: usize, client: SocketAddr, now: Time) -> Treatment {
        let acceptor = self.list.get(index);
        acceptor.map_or(Treatment::Usual, |acceptor| acceptor.treatment(client, now))
    }

    /// All sessions and negotiations have ended.
    pub fn forget_sessions(&mut self) {
        for acceptor in &mut self.list {
            acceptor.sessions = 0;
            acceptor.counters.active.set(0);
        }
    }

    fn watch(&self, index: usize) -> rustix::io::Result<()> {
        match self.get(index).and_then(|it| it.socket.as_ref()) {
            Some(socket) => self.poll.add_listener(socket, index),
            None => Ok(()),
        }
    }

    /// Watches an acceptor's socket for connections; pauses the acceptor if this fails.
    pub fn watch_or_pause(&mut self, index: usize, now: Time) {
        if let Err(error) = self.watch(index) {
            self.pause(index, error, now);
        }
    }

    /// Pauses an acceptor for a moment, because another attempt would fail at once; existing
    /// sessions continue.
    pub fn pause(&mut self, index: usize, error: Errno, now: Time) {
        self.counters.accept_errors.add(1);
        let Some(acceptor) = self.list.get_mut(index) else {
            return;
        };
        if acceptor.paused_until.is_some() {
            return;
        }
        acceptor.paused_until = Some(now + ACCEPT_PAUSE);
        if let Some(socket) = &acceptor.socket {
            let _ = self.poll.delete(socket);
        }
        let pauses = self.counters.accept_pauses.get();
        if pauses.is_power_of_two() || pauses == 0 {
            tracing::warn!(
                listener = acceptor.listener.name,
                "cannot accept, pausing: {error} (raise the limit of open files?)"
            );
        }
        self.counters.accept_pauses.add(1);
    }

    /// Ends the pauses that are over.
    pub fn resume(&mut self, now: Time) {
        for index in 0..self.list.len() {
            let acceptor = &mut self.list[index];
            if acceptor.paused_until.is_none_or(|until| until > now) {
                continue;
            }
            acceptor.paused_until = None;
            if self.is_open {
                self.watch_or_pause(index, now);
            }
        }
    }

    /// When the first pause is over.
    pub fn next_resume(&self) -> Option<Time> {
        self.list.iter().filter_map(|it| it.paused_until).min()
    }

    /// When the next retired acceptor closes its socket.
    pub fn next_retirement(&self) -> Option<Time> {
        self.list.iter().filter_map(|it| it.retire_at).min()
    }

    /// The first acceptor whose socket is to be closed by now.
    pub fn due_to_retire(&self, now: Time) -> Option<usize> {
        let is_due = |acceptor: &Acceptor| acceptor.retire_at.is_some_and(|at| at <= now);
        self.list.iter().position(is_due)
    }

    /// Removes the socket of an acceptor, which then accepts no more connections.
    pub fn take_socket(&mut self, index: usize) {
        let Some(acceptor) = self.list.get_mut(index) else {
            return;
        };
        (acceptor.retire_at, acceptor.paused_until) = (None, None);
        acceptor.sharing = None;
        if let Some(socket) = acceptor.socket.take() {
            // It is not enough to close the socket, because another process may share it.
            let _ = self.poll.delete(&socket);
        }
    }

    /// Counts a connection that was reset because there is no room.
    pub fn count_shed(&self, shortage: Shortage) {
        let counter = match shortage {
            Shortage::Sessions => &self.counters.shed_sessions,
            Shortage::Client => &self.counters.shed_client,
            Shortage::ClientRate => &self.counters.shed_client_rate,
            Shortage::Memory => &self.counters.shed_memory,
            Shortage::Descriptors => {
                self.limits.note_descriptors();
                &self.counters.shed_descriptors
            }
        };
        counter.add(1);
    }

    /// Accepts a connection for which there is no room, and resets it, so that it does not wait.
    /// Returns whether the acceptor may accept another connection at once. Existing sessions
    /// continue.
    pub fn shed(&mut self, index: usize, error: Errno, now: Time) -> bool {
        let Some(acceptor) = self.list.get(index) else {
            return false;
        };
        let shed = acceptor.shed(&mut self.reserve);
        let _ = self.keep_reserve();
        match shed {
            Ok(true) => self.count_shed(Shortage::Descriptors),
            Ok(false) => return false,
            Err(_) => self.pause(index, error, now),
        }
        shed.is_ok()
    }

    /// Fills the reserve of descriptors, as far as there are free ones.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub fn keep_reserve(&mut self) -> rustix::io::Result<()> {
        while self.reserve.len() < RESERVE {
            self.reserve.push(self.poll.spare_descriptor()?);
        }
        Ok(())
    }

    /// Adds an acceptor at a free index or at the end.
    pub fn place(&mut self, acceptor: Acceptor) -> usize {
        match self.list.iter().position(is_free) {
            Some(index) => {
                self.list[index] = acceptor;
                index
            }
            None => {
                self.list.push(acceptor);
                self.list.len() - 1
            }
        }
    }

    /// Whether another acceptor can be added.
    pub fn has_room(&self) -> bool {
        self.list.len() < PLACE_LIMIT || self.list.iter().any(is_free)
    }

    /// The index of the listener's acceptor for a connection that another thread has accepted: the present one, or one
    /// that accepts no more.
    pub fn find_for_accepted(&self, id: ListenerId) -> Option<usize> {
        let retired = || self.list.iter().position(|acceptor| acceptor.id == id);
        self.find(id).or_else(retired)
    }

    /// The index of the listener's present acceptor.
    pub fn find(&self, id: ListenerId) -> Option<usize> {
        let is_it = |acceptor: &Acceptor| acceptor.id == id && acceptor.socket.is_some();
        self.list.iter().position(is_it)
    }

    /// Adds an acceptor with the socket of an old one, which it replaces.
    pub fn replace(&mut self, old: usize, mut acceptor: Acceptor, now: Time) {
        acceptor.socket = self.list[old].socket.take();
        acceptor.paused_until = self.list[old].paused_until.take();
        acceptor.sharing = self.list[old].sharing.take();
        if let Err(error) = acceptor.set_up_again() {
            self.counters.option_errors.add(1);
            tracing::warn!(
                listener = acceptor.listener.name,
                "a listener continues without an option: {error}"
            );
        }
        let is_paused = acceptor.paused_until.is_some();
        let index = self.place(acceptor);
        // While accepting is paused, the socket is not watched.
        if let Some(socket) = &self.list[index].socket
            && !is_paused
            && self.poll.change_listener(socket, index).is_err()
        {
            self.watch_or_pause(index, now);
        }
    }
}

/// Whether an acceptor and all its sessions have ended.
fn is_free(acceptor: &Acceptor) -> bool {
    acceptor.socket.is_none() && acceptor.sessions == 0
}
