//! The listening sockets of one thread: watched, paused, or about to be closed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use midspan_units::{Time, TimeSpan};
use rustix::io::Errno;

use super::limits::{Limits, Shortage};
use super::opening::{Acceptor, ListenerId};
use super::poll::Poll;
use super::statistics::Counters;

/// How long accepting is paused when descriptors or memory are short.
const ACCEPT_PAUSE: TimeSpan = TimeSpan::from_milliseconds(100);

/// Descriptors that a thread keeps for resetting connections. While one is in use another thread
/// may take it; the remaining descriptors still serve.
const RESERVE: usize = 4;

/// A session names its acceptor by 16 bits. Each old one has a session at least.
const PLACE_LIMIT: usize = 1 << 15;

/// The acceptors of one thread. An old one stays, without a socket, until its last session ends.
pub struct Acceptors {
    list: Vec<Acceptor>,
    poll: Arc<Poll>,
    counters: Arc<Counters>,
    limits: Arc<Limits>,
    /// With one of them a connection can be taken when there is no other descriptor, to reset it.
    reserve: Vec<OwnedFd>,
    /// New connections are accepted at all.
    is_open: bool,
}

impl Acceptors {
    /// These, none of which is watched yet.
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

    /// Watches all for connections.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn watch_all(&self) -> rustix::io::Result<()> {
        (0..self.list.len()).try_for_each(|index| self.watch(index))
    }

    /// The one at this place.
    pub fn get(&self, index: usize) -> Option<&Acceptor> {
        self.list.get(index)
    }

    /// The one at this place.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Acceptor> {
        self.list.get_mut(index)
    }

    /// How many places there are.
    pub const fn count(&self) -> usize {
        self.list.len()
    }

    /// Whether new connections are accepted at all.
    pub const fn are_open(&self) -> bool {
        self.is_open
    }

    /// Accepts no more from now on; whether it did before.
    pub const fn close(&mut self) -> bool {
        std::mem::replace(&mut self.is_open, false)
    }

    /// Whether this one accepts connections.
    pub fn accepts(&self, index: usize) -> bool {
        let has_socket = |acceptor: &Acceptor| acceptor.socket.is_some();
        self.is_open && self.get(index).is_some_and(has_socket)
    }

    /// One session, or client that is spoken with, more of this one.
    pub fn begin_session(&mut self, index: usize) {
        if let Some(acceptor) = self.list.get_mut(index) {
            acceptor.sessions += 1;
        }
    }

    /// One less.
    pub fn end_session(&mut self, index: usize) {
        if let Some(acceptor) = self.list.get_mut(index) {
            acceptor.sessions = acceptor.sessions.saturating_sub(1);
        }
    }

    fn watch(&self, index: usize) -> rustix::io::Result<()> {
        match self.list.get(index).and_then(|it| it.socket.as_ref()) {
            Some(socket) => self.poll.add_listener(socket, index),
            None => Ok(()),
        }
    }

    /// Watches one for connections; it is paused if that fails.
    pub fn watch_or_pause(&mut self, index: usize, now: Time) {
        if let Err(error) = self.watch(index) {
            self.pause(index, error, now);
        }
    }

    /// Accepts no more for a moment, instead of failing again at once; old sessions continue.
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

    /// Those whose pause is over accept again.
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

    /// When the first paused one accepts again.
    pub fn next_resume(&self) -> Option<Time> {
        self.list.iter().filter_map(|it| it.paused_until).min()
    }

    /// When the next retired one is closed.
    pub fn next_retirement(&self) -> Option<Time> {
        self.list.iter().filter_map(|it| it.retire_at).min()
    }

    /// The first that is to be closed by now.
    pub fn due_to_retire(&self, now: Time) -> Option<usize> {
        let is_due = |acceptor: &Acceptor| acceptor.retire_at.is_some_and(|at| at <= now);
        self.list.iter().position(is_due)
    }

    /// Takes the socket of one out, which accepts no more.
    pub fn take_socket(&mut self, index: usize) {
        let Some(acceptor) = self.list.get_mut(index) else {
            return;
        };
        (acceptor.retire_at, acceptor.paused_until) = (None, None);
        if let Some(socket) = acceptor.socket.take() {
            // Closing it is not enough: another process may share it.
            let _ = self.poll.delete(&socket);
        }
    }

    /// A connection was reset since there is no room for it.
    pub fn count_shed(&self, shortage: Shortage) {
        let counter = match shortage {
            Shortage::Sessions => &self.counters.shed_sessions,
            Shortage::Client => &self.counters.shed_client,
            Shortage::Memory => &self.counters.shed_memory,
            Shortage::Descriptors => {
                self.limits.note_descriptors();
                &self.counters.shed_descriptors
            }
        };
        counter.add(1);
    }

    /// Resets a connection that cannot be taken, rather than let it wait; whether more may be taken
    /// at once. Old sessions continue.
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

    /// Makes the reserve full again, as far as there are descriptors.
    ///
    /// # Errors
    /// Those of `fcntl(2)`.
    pub fn keep_reserve(&mut self) -> rustix::io::Result<()> {
        while self.reserve.len() < RESERVE {
            self.reserve.push(self.poll.spare_descriptor()?);
        }
        Ok(())
    }

    /// Puts a new one where an old one has ended, or at the end.
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

    /// Whether one more can be placed.
    pub fn has_room(&self) -> bool {
        self.list.len() < PLACE_LIMIT || self.list.iter().any(is_free)
    }

    /// Where the listener accepts now.
    pub fn find(&self, id: ListenerId) -> Option<usize> {
        let is_it = |acceptor: &Acceptor| acceptor.id == id && acceptor.socket.is_some();
        self.list.iter().position(is_it)
    }

    /// Puts a new one in the place of an old one, whose socket it takes over.
    pub fn replace(&mut self, old: usize, mut acceptor: Acceptor, now: Time) {
        acceptor.socket = self.list[old].socket.take();
        acceptor.paused_until = self.list[old].paused_until.take();
        if let Err(error) = acceptor.set_up_again() {
            self.counters.option_errors.add(1);
            tracing::warn!(
                listener = acceptor.listener.name,
                "a listener goes on without an option: {error}"
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

/// Whether an acceptor has ended, with all its sessions.
fn is_free(acceptor: &Acceptor) -> bool {
    acceptor.socket.is_none() && acceptor.sessions == 0
}
