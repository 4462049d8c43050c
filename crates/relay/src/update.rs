//! Listeners that come, change and go while the relay runs.
//!
//! Each thread gets its part by a channel and carries it out between two turns of its loop. A
//! change keeps the listening socket, so that no connection is lost: what connections inherit
//! from it is set anew, and a new [`Acceptor`] takes it over. The old one stays, without a socket,
//! until the last session that it has accepted ends: that session's policy is the old one's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use midspan_linux::tcp;
use midspan_policy::LegStart;
use midspan_units::{Time, TimeSpan};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::Relay;
use super::kick::{Kicked, Target};
use super::listener::Listener;
use super::opening::{self, Acceptor};
use super::settings::{Error, OpenListener};
use super::worker::{FIRST_ACCEPTOR, Worker};

/// Names a listener of one relay, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub(super) u64);

/// What a thread is told.
pub enum Update {
    /// A new listener.
    Add(Box<Acceptor>),
    /// A listener is different from now on.
    Change(Box<Acceptor>),
    /// A listener accepts no more after this time.
    Retire(ListenerId, Time),
    /// Sessions are to be reset; how many that were goes back.
    Kick(Target, Sender<Kicked>),
    /// Says that all before this is done.
    Report(Sender<()>),
}

impl Relay {
    /// The listeners that the relay was started with, in their order.
    pub fn first_listeners(count: usize) -> impl Iterator<Item = ListenerId> {
        (0..count as u64).map(ListenerId)
    }

    /// Accepts for one more listener, with sessions set up as its settings say.
    ///
    /// # Errors
    /// It has not one socket per thread, or what the kernel refuses.
    pub fn add_listener(&mut self, open: OpenListener) -> Result<ListenerId, Error> {
        let OpenListener { listener, sockets } = open;
        if sockets.len() != self.threads.len() {
            return Err(Error::SocketCount {
                listener: listener.name,
                sockets: sockets.len(),
                threads: self.threads.len(),
            });
        }
        for socket in &sockets {
            opening::prepare_listener(socket, &listener)?;
        }
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        let listener = Arc::new(listener);
        for (updates, socket) in self.updates.iter().zip(sockets) {
            let acceptor = self.acceptor(id, Some(socket), &listener);
            // A thread that has ended is noticed by its owner.
            let _ = updates.send(Update::Add(Box::new(acceptor)));
        }
        self.control.wake();
        Ok(id)
    }

    /// Accepts by other settings from now on, on the sockets that the listener has; sessions that
    /// exist go on as they are.
    pub fn change_listener(&mut self, id: ListenerId, listener: Listener) {
        let listener = Arc::new(listener);
        for updates in &self.updates {
            let acceptor = self.acceptor(id, None, &listener);
            let _ = updates.send(Update::Change(Box::new(acceptor)));
        }
        self.control.wake();
    }

    /// Accepts no more for a listener once this time is over; its sessions go on.
    pub fn retire_listener(&mut self, id: ListenerId, after: TimeSpan) {
        let at = self.clock.now() + after;
        for updates in &self.updates {
            let _ = updates.send(Update::Retire(id, at));
        }
        self.control.wake();
    }

    fn acceptor(
        &self,
        id: ListenerId,
        socket: Option<OwnedFd>,
        listener: &Arc<Listener>,
    ) -> Acceptor {
        let policy = midspan_policy::for_settings(&listener.session, self.offered, &self.knowledge);
        let parts = self.shared.acceptor_parts(id, listener, policy);
        Acceptor::new(socket, parts)
    }

    /// Waits until all threads have done what they were told; whether they have.
    #[must_use]
    pub fn wait_for_updates(&self, limit: Duration) -> bool {
        let (sender, reports) = mpsc::channel();
        for updates in &self.updates {
            let _ = updates.send(Update::Report(sender.clone()));
        }
        drop(sender);
        self.control.wake();
        let end = Instant::now() + limit;
        self.updates.iter().all(|_| {
            let left = end.saturating_duration_since(Instant::now());
            reports.recv_timeout(left).is_ok()
        })
    }
}

/// A session names its acceptor by 16 bits. Each old one has a session at least.
const PLACE_LIMIT: usize = 1 << 15;

/// Whether an acceptor has ended, with all its sessions.
fn is_free(acceptor: &Acceptor) -> bool {
    acceptor.socket.is_none() && acceptor.sessions == 0
}

impl Worker {
    /// Carries out what the relay's owner has asked for.
    pub(super) fn handle_updates(&mut self) {
        while let Ok(update) = self.updates.try_recv() {
            match update {
                Update::Add(acceptor) => {
                    let index = self.place(*acceptor);
                    self.watch(index);
                }
                Update::Change(change) => self.change(*change),
                Update::Retire(id, at) => {
                    if let Some(index) = self.find(id) {
                        self.acceptors[index].retire_at = Some(at);
                    }
                }
                Update::Kick(target, reply) => self.begin_kick(target, reply),
                Update::Report(sender) => {
                    // Its owner may have given up waiting.
                    let _ = sender.send(());
                }
            }
        }
    }

    /// Closes what was to be closed by now.
    pub(super) fn retire_due(&mut self) {
        for index in 0..self.acceptors.len() {
            if self.acceptors[index]
                .retire_at
                .is_some_and(|at| at <= self.now)
            {
                self.close_acceptor(index);
            }
        }
    }

    fn change(&mut self, mut acceptor: Acceptor) {
        let Some(old) = self.find(acceptor.id) else {
            return;
        };
        if self.acceptors.len() >= PLACE_LIMIT && !self.acceptors.iter().any(is_free) {
            tracing::warn!(
                listener = acceptor.listener.name,
                "a listener goes on as it is: too many old ones have sessions"
            );
            return;
        }
        acceptor.socket = self.acceptors[old].socket.take();
        acceptor.paused_until = self.acceptors[old].paused_until.take();
        let client = LegStart::from(&acceptor.listener.session.client);
        if let Some(socket) = &acceptor.socket
            && let Err(error) =
                tcp::change_listener(socket, &client, acceptor.listener.marks.client)
        {
            self.counters().option_errors.add(1);
            tracing::warn!(
                listener = acceptor.listener.name,
                "a listener goes on without an option: {error}"
            );
        }
        // What has changed may be who is served.
        self.close_idle(old);
        let index = self.place(acceptor);
        let Some(socket) = &self.acceptors[index].socket else {
            return;
        };
        let token = EventData::new_u64(FIRST_ACCEPTOR + index as u64);
        // While accepting is paused, the socket is not watched.
        if self.acceptors[index].paused_until.is_none()
            && epoll::modify(&self.epoll, socket, token, EventFlags::IN).is_err()
        {
            self.watch(index);
        }
    }

    fn watch(&mut self, index: usize) {
        if !self.accepting {
            // Too late: the relay accepts no more.
            self.close_acceptor(index);
        } else if let Err(error) = self.watch_acceptor(index) {
            self.pause_accepting(index, error);
        }
    }

    /// Puts an acceptor where one has ended, or at the end.
    fn place(&mut self, acceptor: Acceptor) -> usize {
        match self.acceptors.iter().position(is_free) {
            Some(index) => {
                self.acceptors[index] = acceptor;
                index
            }
            None => {
                self.acceptors.push(acceptor);
                self.acceptors.len() - 1
            }
        }
    }

    /// Where the listener accepts now.
    fn find(&self, id: ListenerId) -> Option<usize> {
        self.acceptors
            .iter()
            .position(|acceptor| acceptor.id == id && acceptor.socket.is_some())
    }
}
